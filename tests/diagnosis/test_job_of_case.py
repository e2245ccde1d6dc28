"""The job of a case: the one of which it has the script or the output. A fix is for one job, never over two."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.diagnosis.job_evidence import add_triage
from ddpwizard.app.diagnosis.job_of_case import CaseFiles, jobs_for_fix, jobs_of_case, jobs_of_file
from ddpwizard.app.logs.read import find_sources, source_of_text
from ddpwizard.app.session import Session
from ddpwizard.app.triage.types import JobReport
from helpers.built_in_knowledge import built_in_knowledge
from helpers.recorded_state import RecordedState, report
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()
CAUSE = "rank-conditional-collective"


def job_in(directory: Path, launcher_pid: int, cause: str | None = CAUSE) -> JobReport:
    directory.mkdir()
    base = report(directory)
    job = replace(base.job, launcher_pid=launcher_pid)
    verdict = replace(base.verdict, cause=cause)
    return replace(base, verdict=verdict, observed=replace(base.observed, job=job))


@pytest.fixture
def two(tmp_path: Path) -> list[JobReport]:
    return [job_in(tmp_path / "a", 1), job_in(tmp_path / "b", 2)]


def traceback_in(script: Path) -> str:
    return f"Traceback (most recent call last):\n  File \"{script}\", line 7, in validate\nKeyError: 'acc'\n"


def test_the_job_of_a_log_is_the_one_whose_script_it_names(two: list[JobReport], tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text(traceback_in(tmp_path / "b" / "train.py"))
    found = add_to_case(Case(KNOWLEDGE), find_sources([str(log)]))
    assert jobs_of_case(two, CaseFiles(found.logs, [], found.timeline)) == two[1:]
    pasted = add_to_case(Case(KNOWLEDGE), [source_of_text("[rank0]: step 3\n" * 40 + log.read_text(), "the text")])
    assert jobs_of_case(two, CaseFiles(pasted.logs, [], pasted.timeline)) == two[1:]


def test_a_job_that_began_after_the_log_was_written_is_another_run(two: list[JobReport], tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text(traceback_in(tmp_path / "a" / "train.py"))
    found = add_to_case(Case(KNOWLEDGE), find_sources([str(log)]))
    for began_s, counts in ((-60.0, True), (60.0, False)):
        at = log.stat().st_mtime + began_s
        ranks = [replace(each, started_at=at) for each in two[0].job.processes]
        began = replace(two[0], observed=replace(two[0].observed, job=replace(two[0].job, processes=ranks)))
        assert bool(jobs_of_case([began], CaseFiles(found.logs, [], found.timeline))) == counts


def test_a_job_that_runs_is_another_run_if_the_log_shows_the_end_of_all_ranks(two: list[JobReport], tmp_path: Path):
    log = tmp_path / "run.log"
    end = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-23_04:22:59\n  host      : localhost\n"
    end += "  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 8)\n"
    for more, counts in (("", True), (end, False)):
        log.write_text(traceback_in(tmp_path / "a" / "train.py") + more)
        found = add_to_case(Case(KNOWLEDGE), find_sources([str(log)]))
        assert bool(jobs_of_case(two, CaseFiles(found.logs, [], found.timeline))) == counts


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A process that writes to a log."""
    log = tmp_path / "run.log"
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-c", "print('step 1', flush=True); input()"], stdout=file, stdin=subprocess.PIPE
        ) as process,
    ):
        yield process.pid, log
        process.kill()


def test_the_job_of_a_log_is_the_one_that_writes_it(
    two: list[JobReport], writer: tuple[int, Path], tmp_path: Path
) -> None:
    pid, log = writer
    while not log.stat().st_size:
        pass
    ranks = [replace(each, pid=pid) for each in two[0].job.processes[:1]]
    writes = replace(two[0], observed=replace(two[0].observed, job=replace(two[0].job, processes=ranks)))
    link = tmp_path / "latest.log"
    link.symlink_to(log)
    assert jobs_of_case([two[1], writes], CaseFiles([str(link)])) == [writes]


def test_a_log_of_no_job_here_is_of_none_and_words_may_be_of_any(two: list[JobReport], tmp_path: Path):
    log = tmp_path / "old.log"
    log.write_text("step 1\nstep 2\n")
    silent = add_to_case(Case(KNOWLEDGE), find_sources([str(log)]))
    assert jobs_of_case(two, CaseFiles(silent.logs, [], silent.timeline)) == []
    words = add_to_case(Case(KNOWLEDGE), [source_of_text("my job hangs at validation on 4 GPUs", "your words")])
    assert jobs_of_case(two, CaseFiles(words.logs, [], words.timeline)) == two
    assert jobs_of_case(two, CaseFiles(scripts=[str(tmp_path / "a" / "train.py")])) == two[:1], (
        "the script that was given"
    )


def test_of_several_jobs_the_one_of_the_case_comes_first(two: list[JobReport], tmp_path: Path):
    other = job_in(tmp_path / "c", 3, cause=None)
    assert jobs_for_fix(CAUSE, [*two, other]) == two
    assert jobs_for_fix("uneven-inputs", [*two, other]) == [*two, other]
    assert jobs_for_fix(CAUSE, [*two, other], two[1].job.id) == two[1:]
    assert jobs_for_fix("uneven-inputs", [*two, other], two[1].job.id) == two[1:]
    assert jobs_for_fix(CAUSE, [*two, other], other.job.id) == [other, *two], "to be chosen by the user"
    assert jobs_for_fix(CAUSE, two, "torchrun-77") == [], "the job of the case has ended"


def test_a_finding_is_fixed_for_the_jobs_that_run_its_file(two: list[JobReport], tmp_path: Path):
    assert jobs_of_file(two, str(tmp_path / "a" / "train.py")) == two[:1]
    other = tmp_path / "tools.py"
    other.write_text("x = 1\n")
    assert jobs_of_file(two, str(other)) == []
    sources = {str(other): other.read_text()}
    importing = replace(two[1], observed=replace(two[1].observed, sources=sources))
    assert jobs_of_file([two[0], importing], str(other)) == [importing]


def test_a_fix_is_built_from_the_files_of_one_job(tmp_path: Path):
    first, second = job_in(tmp_path / "a", 1), job_in(tmp_path / "b", 2, cause=None)
    state = RecordedState([first, second])
    state.knowledge = KNOWLEDGE
    state.reports = [first, second]
    add_triage(state.begin(), state.reports)
    for chosen, directory in ((first, tmp_path / "a"), (second, tmp_path / "b")):
        fixes = state.fix_flow(CAUSE, chosen).build()
        paths = {patch.path for fix in fixes for patch in fix.patches}
        paths |= {place.path for fix in fixes for place in fix.places}
        assert paths == {str(directory / "train.py")}


def test_a_session_knows_its_job(two: list[JobReport]):
    session = Session.new()
    add_triage(Case(KNOWLEDGE, session), [two[1], two[0]])
    assert Case(KNOWLEDGE, Session.load(session.id)).job == two[1].job.id
