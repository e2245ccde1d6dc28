"""Every cause is reached by a case that happened: a log captured on this project's machines (``logs/``), or a public
report retold in our own words (``reports.yaml``)."""

from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import read_sources
from ddpwizard.app.evidence import RankedCause
from ddpwizard.app.logs.read import LogInput, find_sources, source_of_text
from ddpwizard.knowledge.schema import StrictStruct
from ddpwizard.knowledge.yaml_file import convert
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
HERE = Path(__file__).parent
AMONG = 3

# Causes without a case, and why.
ONLY_A_RUNNING_JOB = {
    "python-lock": "only the stacks of a running job show it: tests/journeys/table.py runs one",
    "rank-paused": "only a running job shows it: tests/real_jobs/test_triage.py pauses one",
}


class Report(StrictStruct, frozen=True):
    """A retold report, and the address of the thread."""

    source: str
    text: str


REPORTS = convert(HERE / "reports.yaml", (HERE / "reports.yaml").read_bytes(), dict[str, list[Report]])
LOGS = sorted((HERE / "logs").glob("*.log"))
CASES = [(path.name.partition(".")[0], path.stem, find_sources([str(path)])) for path in LOGS] + [
    (cause, report.source.removeprefix("https://github.com/"), [source_of_text(report.text, "x")])
    for cause, reports in REPORTS.items()
    for report in reports
]


def named(sources: list[LogInput]) -> list[RankedCause]:
    """Return the first causes that are supported."""
    case = Case(KNOWLEDGE)
    case.add(read_sources(sources, KNOWLEDGE).evidence)
    return [cause for cause in case.diagnosis().causes if cause.because][:AMONG]


def test_every_cause_has_a_case_or_a_reason_why_not():
    covered = {cause for cause, _, _ in CASES}
    assert covered | set(ONLY_A_RUNNING_JOB) == set(KNOWLEDGE.causes)
    assert covered.isdisjoint(ONLY_A_RUNNING_JOB)
    assert all(report.source.startswith("https://") for reports in REPORTS.values() for report in reports)


@pytest.mark.parametrize(
    ("cause", "sources"), [(cause, sources) for cause, _, sources in CASES], ids=[c[1] for c in CASES]
)
def test_case_reaches_its_cause(cause: str, sources: list[LogInput]):
    found = {each.id: each for each in named(sources)}
    assert cause in found
    is_log = sources[0].origin.endswith(".log")
    assert not is_log or any(line.source == "log" for line in found[cause].because)


def test_most_reports_lead_to_their_cause_first():
    firsts = [named(sources)[0].id == cause for cause, _, sources in CASES[len(LOGS) :]]
    assert sum(firsts) >= 0.8 * len(firsts)
