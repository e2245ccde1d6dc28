"""Plan of a run for proof: what will be started and what it would touch, to be shown before it is started."""

import os
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import UserError
from ..launchers.arguments import parse_launcher
from ..launchers.recognise import parse_python
from ..launchers.rewrite import REPLACED, environment_to_start_again, start_again
from ..session import Session
from ..system import proc_files, procfs
from ..system.files import expand_user
from ..system.paths import relative_to_cwd
from ..text.units import bytes_text, count_text, seconds_text
from ..training_script.written_paths import WrittenPath
from ..triage.types import JobReport
from .code_state import code_files
from .proof_limit import ProofLimit, proof_limit, until_failure_in_log_s
from .relaunch import Relaunch, changed_files, module_file, plan_relaunch
from .sandbox import gpus_in_use, refuse_held_gpus, written_paths
from .state_before import failure_before, last_failure_here
from .types import Fix

SHOWN = 6  # written paths in the question


class ProofPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A run for proof before it starts.

    ``changed``: files that differ from those of the job, by the fix or by hand. ``held``: what the job still occupies.
    ``steady_s``: the run has to go on for this long, because the job hung only after it had run well.
    """

    relaunch: Relaunch
    ranks: int
    limit: ProofLimit
    changed: list[str]
    held: list[str]
    written: list[WrittenPath]
    steady_s: float = 0.0
    before: str = ""  # the failure that was seen, in a few words
    seen_here: bool = True  # on this machine
    other_command: bool = False  # than the one that failed: that is the fix
    environ: dict[str, str] = {}  # variables that the fix changes
    from_job: bool = True  # a job that was seen to fail; else a command line that the user gave


def plan_job_proof(report: JobReport, fix: Fix, memory_total_bytes: Mapping[int, int]) -> ProofPlan:
    """Plan to start a job again with the fix, or as its files are now if the user has changed them.

    Raises:
        UserError: The job cannot be started again from here; the message gives the reason.
    """
    refuse_other_users(report)
    refuse_held_gpus(report, memory_total_bytes)
    relaunch, environ = _with_variables(plan_relaunch(report.job, fix), fix)
    until_failure_s = time_until_failure_s(report)
    return ProofPlan(
        relaunch=relaunch,
        ranks=report.world_size,
        limit=proof_limit(relaunch.cwd, until_failure_s),
        changed=sorted({*_replaced(relaunch), *_changed_of_job(relaunch, report)}),
        held=_held(report),
        written=written_paths(relaunch),
        steady_s=0.0 if report.verdict.branch else until_failure_s,
        before=f"the job was {report.verdict.state}",
        other_command=is_started_by_fix(report, fix),
        environ=environ,
    )


def plan_command_proof(line: str, fix: Fix, session: Session, cwd: Path, python: str) -> ProofPlan:
    """Plan to run a command line of the user with the fix, for a failure that is known from a log only.

    A launcher that is not on the PATH is that of the interpreter ``python``.

    Raises:
        UserError: It starts no script, or its program or script does not exist.
    """
    words = _words(line, python)
    started, known = parse_launcher(words), parse_python(words)
    if started and started.launcher in REPLACED and started.script:
        head, rest, launcher = start_again(started), started.script_words, started.launcher
        count = started.value("nproc-per-node") or started.value("num-processes") or started.value("num-gpus") or "1"
        is_module = started.is_module
    elif known and not started:
        head, rest, launcher, count = words[: known.target_index], words[known.target_index :], "python", "1"
        is_module = known.is_module
    else:
        raise UserError(f"{line!r} starts no script here", "give the whole line: torchrun --nproc-per-node=2 train.py")
    script = module_file(cwd, rest[0]) if is_module else expand_user(str(cwd / rest[0]))
    if not script.is_file():
        raise UserError(f"{relative_to_cwd(str(script))}: no such script", f"give a path that counts from {cwd}")
    failed_at = last_failure_here(session, script)
    failed = Relaunch(
        command=[*head, *rest],
        script_index=len(head),
        script=script,
        cwd=cwd,
        environ=environment_to_start_again(os.environ, launcher),
        root=cwd if script.is_relative_to(cwd) else script.parent,
        copy=cwd if script.is_relative_to(cwd) else script.parent,
        files=changed_files(fix, cwd),
    )
    relaunch, environ = _with_variables(failed, fix)
    return ProofPlan(
        relaunch=relaunch,
        ranks=int(count) if count.isdecimal() else 0,
        limit=proof_limit(cwd, until_failure_in_log_s(session)),
        changed=sorted({*_replaced(relaunch), *changed_since(relaunch, failed_at or 0.0)}),
        held=[],
        written=written_paths(relaunch),
        before=failure_before(session),
        seen_here=failed_at is not None,
        other_command=bool(fix.start) and shlex.split(line) == shlex.split(fix.start),
        environ=environ,
        from_job=False,
    )


def _with_variables(relaunch: Relaunch, fix: Fix) -> tuple[Relaunch, dict[str, str]]:
    """Return the relaunch with the variables that the fix sets, and those of them that it changes."""
    changed = {name: value for name, value in fix.environ.items() if relaunch.environ.get(name) != value}
    return msgspec.structs.replace(relaunch, environ=relaunch.environ | changed), changed


def question_lines(plan: ProofPlan) -> list[str]:
    """Return what is to be known before a run for proof is started, one fact a line."""
    relaunch = plan.relaunch
    ranks = f"{count_text(plan.ranks, 'rank')}, " if plan.ranks else ""
    names = ", ".join(_short(path, relaunch.cwd) for path in plan.changed)
    as_now = "as they are now"
    if plan.other_command:
        as_now += ", with the command line of the fix"
    elif plan.environ:
        as_now += f", with {' '.join(f'{name}={shlex.quote(value)}' for name, value in plan.environ.items())}"
    elif plan.seen_here:
        as_now += "; none was changed since the failure"
    lines = [
        f"Runs: {shlex.join(relaunch.command)}",
        f"in {relaunch.cwd}: {ranks}on a free port",
        f"Limit: {seconds_text(plan.limit.limit_s, whole=True)} ({plan.limit.origin})",
        f"Changed for this run: {names}" if names else f"Files: {as_now}",
    ]
    if plan.held:
        lines.append(f"Still in use by the old job: {', '.join(plan.held)}")
    written = [_written_line(each, relaunch.cwd) for each in plan.written]
    if written:
        more = [f"and {len(written) - SHOWN} more"] if len(written) > SHOWN else []
        lines += ["The script writes to (redirected to a copy, removed afterwards):", *written[:SHOWN], *more]
    lines.append("Your files do not change. W&B, MLflow, Comet, ClearML and the Hugging Face Hub are set to offline.")
    lines.append("Network connections are not cut: what the script sends to a database or a service arrives there.")
    return lines


def is_started_by_fix(report: JobReport, fix: Fix) -> bool:
    """Return whether the command line of a fix starts the ranks of a job that no launcher had started."""
    return bool(fix.start) and report.job.launcher == "python"


def refuse_other_users(report: JobReport) -> None:
    """Refuse to run the code of another user with our rights.

    Raises:
        UserError: The job belongs to another user.
    """
    for process in report.job.processes:
        owner = proc_files.user_of(process.pid)
        if owner is not None and owner != os.getuid():
            raise UserError(
                f"the job belongs to user {owner}, and its code would run with your rights",
                "run ddpwizard as that user to prove the fix",
            )


def started_at(report: JobReport) -> float:
    """Return when the first rank of a job started, or 0 if that is not known."""
    return min((p.started_at for p in report.job.processes if p.started_at), default=0.0)


def time_until_failure_s(report: JobReport) -> float:
    """Return the longest time that the job can have run well: from its start to when it was first seen to hang."""
    samples = [sample.at for seen in report.observed.seen for sample in seen.samples[-1:]]
    waited = [row.since_s for row in report.ranks if row.since_s is not None]
    began = started_at(report)
    return max(0.0, max(samples) - min(waited, default=0.0) - began) if samples and began else 0.0


def _replaced(relaunch: Relaunch) -> list[str]:
    """Return the files of the job that the fix changes; a new file next to them, an example, changes nothing."""
    return [path for path in relaunch.files if Path(path).is_file()]


def changed_since(relaunch: Relaunch, moment: float) -> list[str]:
    """Return the code and configuration of the job that was written after a moment (seconds since the epoch)."""
    return [str(path) for path in code_files(relaunch) if _modified_at(path) > moment] if moment else []


def _changed_of_job(relaunch: Relaunch, report: JobReport) -> list[str]:
    """Return the code and configuration written since the job started, less files with the text that it runs."""
    known = {path: text for path, text in report.sources.items() if path not in report.observed.changed_sources}
    changed = changed_since(relaunch, started_at(report))
    return [path for path in changed if path not in known or known[path] != relaunch.text_of(path)]


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _held(report: JobReport) -> list[str]:
    """Return what the processes of a job that still run occupy."""
    alive = [process for process in report.job.processes if procfs.process_of(process.pid) is not None]
    if not alive:
        return []
    held = [f"GPU {index} ({bytes_text(used)})" for index, used in sorted(gpus_in_use(report).items())]
    port = report.job.master.rpartition(":")[2]
    held += [f"port {port}"] if port else []
    return [*held, f"{count_text(len(alive), 'rank')} still running"]


def _short(path: str, directory: Path) -> str:
    """Return a path as the job sees it: relative to its working directory if it is below."""
    return str(Path(path).relative_to(directory)) if Path(path).is_relative_to(directory) else path


def _written_line(each: WrittenPath, directory: Path) -> str:
    place = f"{_short(each.file, directory)}:{each.line}"
    return f"  {place} {each.call} → {each.path or f'{each.argument} (known only when it runs)'}"


def _words(line: str, python: str) -> list[str]:
    """Return the words of a command line, with the path of its program.

    Raises:
        UserError: It cannot be split, or its program does not exist.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"{line!r}: {error}", "close the quotes") from error
    if not words:
        raise UserError(
            "no command was given", "give the line that starts the job, such as torchrun --nproc-per-node=2 train.py"
        )
    program = shutil.which(words[0]) or shutil.which(words[0], path=str(Path(python).parent))
    if program is None:
        raise UserError(f"{words[0]}: no such program", "activate the environment of the job, or give its path")
    return [program, *words[1:]]


def elapsed_s(since: float) -> float:
    """Return the seconds since a moment of ``time.monotonic``, to a tenth."""
    return round(time.monotonic() - since, 1)
