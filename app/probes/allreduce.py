"""The live test: a real all-reduce over real processes under torchrun, in the target interpreter.

It uses NCCL with one rank per GPU if torch sees GPUs, else gloo. Every element is checked on every rank. The ranks
write into a private directory, because torchrun passes no file descriptors to them.
"""

import asyncio
import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InspectionError
from ..evidence import Check, Status
from ..launchers.rank_variables import without_launch_variables
from ..snapshot import AllreduceSection, Snapshot
from ..system import proc_files
from ..system.subprocesses import run_process
from ..system.temporary_directories import make_temporary_directory
from ..text.units import bytes_text, count_text, gbps_text, ranks_text, seconds_text
from . import software
from .allreduce_judge import TIMED_OUT, RankProgress, all_reduce_verdict, build_bench_rows, parse_exit_codes
from .context import ProbeContext

AGENT = Path(__file__).parent.parent / "agents" / "allreduce.py"
CPU_RANKS = 2
COLLECTIVE_SHARE = 1 / 3  # of the limit: after that a collective counts as hung
COLLECTIVE_LIMIT_S = 30.0
POLL_S = 0.1
GRACE_S = 5.0  # after the first rank has failed: time for the others to report
LAST_LINES = 5
OF_GPUS = ("nccl",)  # backends whose test uses the GPUs and their links
OF_ANY_BACKEND = ("shm-error", "interface-error")  # findings that do not depend on it
RANK_PREFIX = re.compile(r"^\[rank\d+\]: *")

# Finding, fix and log pattern; the first match counts. Sources: NCCL's transport/shm.cc,
# bootstrap.cc, init.cc (2.18 to 2.30), gloo's transport/tcp/device.cc, torch 2.13's ProcessGroupGloo and
# ProcessGroupNCCL. A write into a full /dev/shm ends with SIGBUS.
SIGNS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    (
        "duplicate-gpu",
        "start one rank per GPU, and let each take the GPU of its LOCAL_RANK",
        re.compile(r"Duplicate GPU detected|Multiple Ranks are using the same GPU"),
    ),
    (
        "shm-error",
        "give the container more shared memory: --shm-size=16g",
        re.compile(r"/dev/shm|shared memory segment|No space left on device|SIGBUS"),
    ),
    (
        "interface-error",
        "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to an interface that is up, or unset them",
        re.compile(
            r"Unable to find address for|no socket interface found|No usable listening interface|connectFullMesh failed"
            r"|[Uu]nable to resolve hostname|Cannot assign requested address"
        ),
    ),
)


async def collect(context: ProbeContext, limit_s: float) -> AllreduceSection:
    """Run the test. ``context.ranks`` overrides the number of processes.

    Raises:
        InspectionError: The interpreter has no suitable torch, or torchrun cannot be started.
    """
    started = time.monotonic()
    context.progress("all-reduce: reading the versions and backends of the interpreter")
    facts = await software.collect(context, limit_s)
    backend, ranks = choose_backend(facts.backends, facts.gpu_count_torch, context.ranks)
    if not backend:
        reason = facts.problem or "its torch has neither gloo nor NCCL"
        raise InspectionError(f"no all-reduce in {context.python}: {reason}", "choose another one with --python")
    left_s = limit_s - (time.monotonic() - started)
    directory = make_temporary_directory("ddpwizard-allreduce-")
    try:
        test = _Test(directory, backend, ranks, context)
        await test.run(left_s, min(COLLECTIVE_LIMIT_S, limit_s * COLLECTIVE_SHARE))
        return test.section(time.monotonic() - started)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def choose_backend(backends: list[str], gpus: int, ranks: int | None) -> tuple[str, int]:
    """Return backend ("" if there is none) and number of ranks: NCCL if each rank has its own GPU."""
    if "nccl" in backends and gpus and (ranks or 1) <= gpus:
        return "nccl", ranks or gpus
    return ("gloo" if "gloo" in backends else ""), ranks or CPU_RANKS


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment without the launch variables of another job, with NCCL's warnings enabled."""
    return {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"} | without_launch_variables(environ)


class _Test:
    """One run of the test and the progress of its ranks."""

    def __init__(self, directory: Path, backend: str, ranks: int, context: ProbeContext) -> None:
        self.directory, self.backend, self.context = directory, backend, context
        self.logs = {rank: RankProgress() for rank in range(ranks)}
        self.load = os.getloadavg()[0]
        self.torchrun: deque[str] = deque(maxlen=500)
        self.timed_out = False
        self._taken_bytes = dict.fromkeys(self.logs, 0)

    async def run(self, limit_s: float, collective_limit_s: float) -> None:
        command = [self.context.python, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={len(self.logs)}", "--redirects=3", f"--log-dir={self.directory / 'logs'}"]
        command += [str(AGENT), str(self.directory), self.backend, str(collective_limit_s)]
        self.context.progress(f"all-reduce: starting {ranks_text(list(self.logs))}, {self.backend}")
        env = clean_environment(self.context.environ)
        child = asyncio.ensure_future(
            run_process(command, limit_s=limit_s, env=env, cwd=self.directory, on_output=self.torchrun.append)
        )
        try:
            await self._watch(child)
        finally:
            child.cancel()
            await asyncio.wait([child])
        if child.cancelled():
            return  # a rank failed and the launcher did not end
        outcome = child.result()
        if outcome.status == "not_started":
            raise InspectionError(f"{self.context.python} {outcome.why}", "check --python")
        self.timed_out = outcome.status == "timed_out"
        for rank, code in parse_exit_codes(self.torchrun).items():
            self.logs[rank].exit_code = code

    async def _watch(self, child: "asyncio.Future[Any]") -> None:
        """Read the ranks' progress until the launcher ends, or for GRACE_S after the first rank has failed.

        Only the launcher knows how a rank ended that has reported nothing: it is waited for, as it ends the others.
        """
        give_up_at = float("inf")
        while not child.done() and (time.monotonic() < give_up_at or self._has_silent_death()):
            await asyncio.wait([child], timeout=POLL_S)
            self._read_progress()
            if give_up_at == float("inf") and any(log.error for log in self.logs.values()):
                give_up_at = time.monotonic() + GRACE_S

    def _has_silent_death(self) -> bool:
        unreported = [log.pid for log in self.logs.values() if log.pid and not (log.error or log.done)]
        return any((proc_files.process_state(pid) or "Z") == "Z" for pid in unreported)

    def _read_progress(self) -> None:
        for rank, log in self.logs.items():
            for event in self._new_events(rank):
                log.take(event)
                if rank == 0 and event["event"] == "row":
                    took = seconds_text(event["seconds"])
                    self.context.progress(f"all-reduce: {bytes_text(event['bytes'])} in {took}")
            if log.pid is not None:
                log.process_state = proc_files.process_state(log.pid) or log.process_state

    def _new_events(self, rank: int) -> list[dict[str, Any]]:
        try:
            data = (self.directory / f"rank{rank}.jsonl").read_bytes()[self._taken_bytes[rank] :]
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._taken_bytes[rank] += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def section(self, elapsed_s: float) -> AllreduceSection:
        last_line = next((line.strip() for line in reversed(self.torchrun) if line.strip("=- ")), "")
        ended, culprits, verdict = all_reduce_verdict(self.logs, self.timed_out, last_line)
        lines = {rank: last_lines_of_rank(self.directory, rank) for rank in self.logs}
        return AllreduceSection(
            backend=self.backend,
            ranks=len(self.logs),
            rows=build_bench_rows(self.backend, self.logs),
            verdict=verdict,
            ended=ended,
            culprits=culprits,
            last_lines={rank: of_rank for rank, of_rank in lines.items() if of_rank},
            elapsed_s=round(elapsed_s, 2),
            load=round(self.load, 1),
            cpus=os.cpu_count(),
        )


def last_lines_of_rank(directory: Path, rank: int) -> list[str]:
    """Return the last lines of a rank's stdout and stderr from torchrun's log directory."""
    lines: list[str] = []
    for name in ("stdout.log", "stderr.log"):
        for path in sorted(directory.glob(f"logs/*/attempt_*/{rank}/{name}")):
            text = path.read_bytes()[-65536:].decode(errors="replace")
            lines += [line.rstrip() for line in text.splitlines() if line.strip()]
    return lines[-LAST_LINES:]


def judge(snapshot: Snapshot) -> list[Check]:
    """Return one check: all elements correct, or the failure and its ranks."""
    test = snapshot.allreduce
    if test is None:
        return []
    of = f"{test.ranks} rank{'s' * (test.ranks > 1)}, {test.backend}"
    status: Status = "fail"
    if test.ended != "done":
        name, fix = failure_finding(test)
        ended, detail = ("did not finish" if test.ended == "hung" else "failed"), _with_lines(test)
    elif test.verdict:
        name, ended, detail = "wrong-data", "wrong data", test.verdict
        fix = "do not train on this machine"
        fix += "; if it passes with NCCL_P2P_DISABLE=1, peer copies are at fault" * (test.backend in OF_GPUS)
    else:
        name, ended, detail, fix, status = "correct", "correct", _fastest(test), "", "ok"
    measured = test.backend in OF_GPUS or name in OF_ANY_BACKEND
    return [
        Check(
            "allreduce",
            status,
            f"all-reduce, {of}: {ended}",
            detail if measured else f"{detail}\n{_measured_text(test)}",
            finding=f"allreduce.{name}",
            fix=fix,
            is_evidence=measured,
        )
    ]


def failure_finding(test: AllreduceSection) -> tuple[str, str]:
    """Return the finding of a failed test, and its fix."""
    text = "\n".join([test.verdict, *(line for lines in test.last_lines.values() for line in lines)])
    for name, fix, pattern in SIGNS:
        if pattern.search(text):
            return name, fix
    return ("hung" if test.ended == "hung" or TIMED_OUT.search(text) else "failed"), ""


def _measured_text(test: AllreduceSection) -> str:
    """Return what a test without GPUs has measured, so that its figures are not taken for those of a link."""
    ran = f"It ran over {test.backend} on the CPUs of this host, not on GPUs, and over no link between hosts."
    if not (test.load and test.cpus) or test.load <= test.cpus:
        return ran
    return f"{ran} Other programs slowed it: the load was {test.load:g} on {count_text(test.cpus, 'CPU')}."


def _fastest(test: AllreduceSection) -> str:
    if not test.rows or test.ranks == 1:
        return "one rank: nothing crosses a link"
    row = max(test.rows, key=lambda r: r.busbw_gbps)
    return f"every element correct; {gbps_text(row.busbw_gbps)} bus bandwidth at {bytes_text(row.bytes)}"


def _with_lines(test: AllreduceSection) -> str:
    """The verdict, then the ranks' last lines that it does not contain."""
    last_lines: dict[str, list[int]] = {}
    for rank, lines in sorted(test.last_lines.items()):
        last = RANK_PREFIX.sub("", lines[-1]) if lines else ""
        if last and last not in test.verdict:
            last_lines.setdefault(last, []).append(rank)
    return "\n".join([test.verdict, *(f"{ranks_text(ranks)}: {line}" for line, ranks in last_lines.items())])
