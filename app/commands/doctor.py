"""``ddpwizard doctor``: check this machine, or analyse a saved snapshot."""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ...knowledge.schema import NATS, Intrusiveness, Knowledge
from ..errors import InspectionError, UserError
from ..evidence import Check
from ..exit_codes import ExitCode
from ..jobs.types import Job
from ..options import Options, knowledge_for, target_python
from ..probes.context import ProbeContext, level_permitted
from ..probes.run_probes import PROBES, judge_snapshot, permitted_probes, run_probes
from ..snapshot import LIMIT_BYTES, Snapshot, read_snapshot
from ..system.files import check_result_file, read_regular_file, write_result
from ..system.procfs import process_of
from ..text import redact
from ..text.json_output import json_bytes, print_json, public_document
from ..text.terminal import print_progress
from .common import common_options, force_option
from .doctor_text import BENCH, print_checks

WORST = ("fail", "warn", "unknown", "skip", "ok")
STRICT = ("fail", "warn", "unknown")


@click.command(name="doctor")
@click.option("--pid", type=int, metavar="PID", help="Check the environment of the job of this process.")
@click.option("--full", is_flag=True, help="Also list the checks that passed.")
@click.option("--bench", is_flag=True, help="Also run a real all-reduce over the GPUs (or CPUs) of this machine.")
@click.option("--save", metavar="FILE", type=click.Path(path_type=Path), help="Save the snapshot as JSON.")
@force_option("--save")
@click.option("--replay", metavar="FILE", type=click.Path(path_type=Path), help="Analyse a saved snapshot instead.")
@click.option("--strict", is_flag=True, help="Exit with 1 also for warnings and for what could not be inspected.")
@common_options
def command(
    pid: int | None,
    full: bool,
    bench: bool,
    save: Path | None,
    force: bool,
    replay: Path | None,
    strict: bool,
    options: Options,
) -> int:
    """Check this machine: launch environment, torch, GPUs, port, network, limits, MASTER_ADDR.

    The environment is that of the job that was started in this directory or below, if there is one, else of this shell.

    Exit code 0: no check failed; 1: a check failed (with --strict also a warning or an unknown); 3: nothing could be
    inspected.

    \b
    Examples:
      ddpwizard doctor
      ddpwizard doctor --bench --save snapshot.json
      ddpwizard doctor --replay snapshot.json
    """
    if replay and (bench or save or pid is not None):
        raise UserError("--replay analyses a saved snapshot and runs nothing", "leave out --bench, --save and --pid")
    knowledge = knowledge_for(options)
    if save:
        check_result_file(save, "--save", force=force)
    snapshot = _load(replay) if replay else _take_snapshot(knowledge, options, bench, pid)
    if save:
        content = json_bytes(redact.redact_record(msgspec.to_builtins(snapshot)))
        write_result(save, content, "--save", force=force)
        print_progress(f"saved to {save}")
    checks = sorted(judge_snapshot(snapshot), key=lambda check: WORST.index(check.status))
    if not any(getattr(snapshot, probe) is not None for probe in PROBES):
        reasons = "; ".join(f"{PROBES.get(probe, probe)}: {why}" for probe, why in snapshot.failed.items())
        raise InspectionError(
            f"nothing could be inspected ({reasons or 'it has no section'})",
            "fix the first of these, or select another --python",
        )
    if options.json:
        print_json(public_document("doctor", knowledge, _body(snapshot, checks, knowledge)))
    else:
        print_checks(snapshot, checks, full=full, ascii_only=options.ascii)
    return ExitCode.FOUND if any(check.status in (STRICT if strict else ("fail",)) for check in checks) else ExitCode.OK


def _take_snapshot(knowledge: Knowledge, options: Options, bench: bool, pid: int | None) -> Snapshot:
    """Probe this machine with the permitted probes, and the environment of a job or of this shell."""
    jobs = _jobs(pid)
    granted = options.allow or ("reads" if jobs or _others_run_jobs() else "allocates")
    if bench and not _may_bench(knowledge, granted):
        granted = _asked(knowledge, granted, options)
    if bench and not options.allow and not _may_bench(knowledge, granted):
        print_progress("--bench is not run, as it would take CPU time and memory from the job that runs here")
    probes = [probe for probe in permitted_probes(knowledge, "perturbs") if bench or probe != BENCH]
    job = jobs[0] if pid is not None and jobs else _job_of_directory(jobs, Path.cwd())
    if job:
        print_progress(f"checking the environment of the job of {_launcher_text(job)}")
    elif jobs:
        print_progress(_other_jobs_note(jobs))
    print_progress(f"checking {', '.join(PROBES[probe] for probe in probes)}")

    def run(job: Job | None) -> Snapshot:
        pids = [process.pid for process in job.processes if process.environ] if job else []
        context = ProbeContext(python=_python_of(job, options), pids=pids, progress=print_progress)
        return asyncio.run(run_probes(probes, context, knowledge, granted=granted))

    snapshot = run(job)
    if job and pid is None and not any(map(process_of, (process.pid for process in job.processes))):
        print_progress("that job has ended: checking again, with the environment of this shell")
        snapshot = run(None)
    return snapshot


def _may_bench(knowledge: Knowledge, granted: Intrusiveness) -> bool:
    return level_permitted(knowledge.probes[BENCH].intrusiveness, granted)


def _launcher_text(job: Job) -> str:
    return job.launcher + (f" (pid {job.launcher_pid})" if job.launcher_pid else "")


def _jobs(pid: int | None) -> list[Job]:
    """Return the jobs of this machine, or that of a process.

    Raises:
        UserError: No process has that pid.
        InspectionError: That process cannot be inspected.
    """
    from ..jobs import discover

    if pid is not None:
        return discover.job_of_pid(pid)
    try:
        return discover.find_jobs()
    except InspectionError as error:
        print_progress(str(error))
        return []


def _job_of_directory(jobs: Sequence[Job], directory: Path) -> Job | None:
    """Return the job that was started in a directory or below it, or None if there is none, or several."""
    found = [
        job
        for job in jobs
        if any(
            each and Path(each).is_relative_to(directory)
            for each in (job.launcher_cwd, *(process.cwd for process in job.processes))
        )
    ]
    return found[0] if len(found) == 1 else None


def _other_jobs_note(jobs: Sequence[Job]) -> str:
    """Return how to check the environment of a job that runs here instead of that of this shell."""
    pids = [job.launcher_pid or min((process.pid for process in job.processes), default=0) for job in jobs]
    named = ", ".join(f"--pid {pid} ({job.launcher})" for job, pid in zip(jobs, pids, strict=True))
    return f"checking the environment of this shell; for that of a job that runs here: {named}"


def _others_run_jobs() -> bool:
    from ..jobs.other_processes import jobs_of_other_users
    from ..system.procfs import all_processes

    try:
        return bool(jobs_of_other_users(all_processes()))
    except InspectionError:
        return False


def _python_of(job: Job | None, options: Options) -> str:
    """Return the given interpreter, else that of the job, else the default one."""
    of_job = next((process.python for process in job.processes if process.python), "") if job else ""
    return target_python(options) if options.python or not of_job else of_job


def _asked(knowledge: Knowledge, granted: Intrusiveness, options: Options) -> Intrusiveness:
    """Return the level after asking the user for more; without a terminal it is unchanged."""
    needed = knowledge.probes[BENCH].intrusiveness
    if options.allow or options.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return granted
    question = "A job is running here; the all-reduce test uses memory and CPU at the same time. Run it anyway?"
    return needed if click.confirm(question, err=True) else granted


def _load(path: Path) -> Snapshot:
    content = read_regular_file(path, LIMIT_BYTES, "give a file written by ddpwizard doctor --save")
    return read_snapshot(content, str(path))


def cause_of_check(check: Check, knowledge: Knowledge) -> str | None:
    """Return the cause that a failed finding supports most, or None."""
    if check.status not in ("fail", "warn") or not check.evidence():
        return None
    weights = {
        id_: NATS[cause.findings[check.finding]]
        for id_, cause in sorted(knowledge.causes.items())
        if check.finding in cause.findings
    }
    best = max(weights, key=lambda id_: weights[id_], default=None)
    return best if best and weights[best] > 0 else None


def _body(snapshot: Snapshot, checks: Iterable[Check], knowledge: Knowledge) -> dict[str, Any]:
    return {
        "snapshot": snapshot,
        "checks": [
            {
                "id": check.id,
                "status": check.status,
                "title": check.title,
                "detail": check.detail,
                "cause": cause_of_check(check, knowledge),
                "fix": check.fix or None,
            }
            for check in checks
        ],
        "bench": snapshot.allreduce.rows if snapshot.allreduce else [],
    }
