"""The scope of findings: a local job is not judged by the network between nodes, and the job's verdict comes first."""

from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.evidence_weights import weight_table
from ddpwizard.app.diagnosis.ranking import rank_causes
from ddpwizard.app.diagnosis.scope import scale_by_scope
from ddpwizard.app.evidence import Evidence, Source, answer_id, confirmed_id, verdict_id
from ddpwizard.app.triage.triage import evidence_of_report
from ddpwizard.knowledge.schema import NATS
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import report
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()
WEIGHTS = weight_table(KNOWLEDGE)
OF_JOBS = sorted(
    cause.id
    for cause in KNOWLEDGE.causes.values()
    if any(finding.startswith("job.") and NATS[weight] >= NATS["strong"] for finding, weight in cause.findings.items())
)
NETWORK = [f"network.{name}" for name in KNOWLEDGE.probes["network"].findings if name != "clear-choice"]


def first(*evidence: Evidence) -> str:
    return rank_causes(KNOWLEDGE, WEIGHTS, scale_by_scope(evidence, KNOWLEDGE, ())).causes[0].id


def verdict_on(cause: str) -> list[Evidence]:
    """The evidence of a triage that names a cause: its strongest finding, and the verdict."""
    weights = KNOWLEDGE.causes[cause].findings
    finding = max((id_ for id_ in weights if id_.startswith("job.")), key=lambda id_: NATS[weights[id_]])
    return [Evidence(finding, "job", "found"), Evidence(verdict_id(cause), "job", "verdict", strength=0.85)]


def test_a_finding_that_matters_between_nodes_weighs_by_the_number_of_nodes():
    def share(*more: Evidence) -> float:
        case = Case(KNOWLEDGE)
        case.add([Evidence("network.virtual-selected", "probe", "veth0"), *more])
        return next(cause.confidence for cause in case.diagnosis().causes if cause.id == "wrong-nic")

    several, unknown = share(Evidence(answer_id("how-many-nodes", "several"), "job", "two nodes")), share()
    case = Case(KNOWLEDGE)
    case.add([Evidence("network.virtual-selected", "probe", "veth0")])
    case.answer("how-many-nodes", "one")
    local = next((cause for cause in case.diagnosis().causes if cause.id == "wrong-nic"), None)
    assert several > unknown
    assert local is None or not any(reason.source == "probe" for reason in local.because)


@pytest.mark.parametrize("cause", OF_JOBS)
def test_the_verdict_on_the_job_comes_before_what_the_machine_could_cause(cause: str):
    seen = verdict_on(cause)
    machine = [
        Evidence(f"{probe}.{name}", "probe", name)
        for probe, spec in KNOWLEDGE.probes.items()
        if probe not in ("job", "log", "allreduce")
        for name in spec.findings
    ]
    wrong = {item.id: found for item in machine if (found := first(*seen, item)) != cause}
    assert wrong == {}
    local = Evidence(answer_id("how-many-nodes", "one"), "job", "one node")
    assert first(*seen, local, *(item for item in machine if item.id in NETWORK)) == cause


def test_a_rejected_verdict_no_longer_counts():
    seen = verdict_on("dataloader-stall")
    case = Case(KNOWLEDGE)
    case.add([*seen, Evidence(confirmed_id("dataloader-stall", False), "answer", "rejected")])
    assert case.diagnosis().causes[0].id != "dataloader-stall" or case.diagnosis().causes[0].confidence < 0.3


def test_a_question_that_the_job_has_answered_is_not_asked():
    case = Case(KNOWLEDGE)
    case.answer("symptom", "hangs")
    assert not {"ranks-stand-in", "how-launched", "how-many-nodes"} & case.known_answers()
    case.add([Evidence(answer_id("how-many-nodes", "one"), "job", "4 ranks on one node")])
    assert {"ranks-stand-in", "how-launched", "how-many-nodes", "interfaces"} <= case.known_answers()


def test_a_question_is_asked_only_where_it_fits():
    case = Case(KNOWLEDGE)
    case.answer("symptom", "wrong-or-slow")
    assert {"when-it-stops", "error-words", "same-place"} <= case.known_answers()
    case.add([Evidence("gpus.none", "probe", "no driver")])
    assert {"gpu-use", "link-measured"} <= case.known_answers()


def test_a_job_that_is_still_starting_has_no_cause_yet(tmp_path: Path):
    base = report(tmp_path)
    verdict = replace(base.verdict, state="starting", cause=None, culprits=[], findings=[], why="It is starting up.")
    case = Case(KNOWLEDGE)
    case.answer("symptom", "hangs")
    case.add(evidence_of_report(replace(base, verdict=verdict), KNOWLEDGE.findings()))
    assert case.diagnosis().named(3) == []
    assert case.diagnosis().other > 0.9


def test_the_number_of_nodes_that_a_job_shows_excludes_causes_and_supports_none():
    def shares(source: Source) -> dict[str, float]:
        case = Case(KNOWLEDGE)
        case.answer("symptom", "hangs")
        case.add([Evidence(answer_id("how-many-nodes", "one"), source, "one node")])
        return {cause.id: cause.confidence for cause in case.diagnosis().causes}

    shown, answered, none = shares("job"), shares("answer"), Case(KNOWLEDGE)
    none.answer("symptom", "hangs")
    before = {cause.id: cause.confidence for cause in none.diagnosis().causes}
    assert answered["p2p-broken"] > 2 * shown["p2p-broken"], "the user is asked about the symptoms"
    assert shown["p2p-broken"] < 1.5 * before["p2p-broken"]
    assert shown["wrong-nic"] < before["wrong-nic"] / 2


def test_a_hung_job_whose_ranks_agree_names_no_cause():
    agree = Evidence("job.same-collective", "job", "every rank waits in the same collective")
    here = [Evidence(answer_id(*pair), "job", "") for pair in (("how-many-nodes", "one"), ("gpu-use", "no-gpu"))]
    case = Case(KNOWLEDGE)
    case.answer("symptom", "hangs")
    case.add([agree, *here])
    shares = {cause.id: cause.confidence for cause in case.diagnosis().causes}
    assert max(shares.values()) < 0.2
    assert case.diagnosis().other > 0.5
    assert all(shares.get(cause, 0.0) < 0.005 for cause in ("barrier-wrong-device", "p2p-broken", "wrong-nic"))


def test_a_log_that_names_a_cause_is_not_outweighed_by_a_job_that_shows_none():
    case = Case(KNOWLEDGE)
    case.add([Evidence("job.same-collective", "job", ""), Evidence("log.ranks-disagree-on-collective", "log", "")])
    assert case.diagnosis().causes[0].id == "collective-desync"


def test_a_job_that_does_not_start_is_not_asked_when_it_stops():
    case = Case(KNOWLEDGE)
    case.answer("symptom", "does-not-start")
    assert {"when-it-stops", "same-place"} <= case.known_answers()
