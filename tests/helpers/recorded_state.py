"""A recorded machine, job and small knowledge base, so that screens can be tested without this machine's state.

The recording replaces what this machine lacks (eight GPUs, a hung job); the screens and the case are real.
"""

import asyncio
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from ddpwizard.app.evidence import Check
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.labs.course import Course, read_course
from ddpwizard.app.options import Options
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.snapshot import (
    AllreduceSection,
    BenchRow,
    Gpu,
    GpuSection,
    Interface,
    LimitsSection,
    NetworkSection,
    PortSection,
    Snapshot,
    SoftwareSection,
)
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import (
    Child,
    Connection,
    GpuUse,
    JobReport,
    Observation,
    ProcessSamples,
    RankRow,
    Sample,
    ThreadStack,
    Verdict,
)
from ddpwizard.knowledge.schema import (
    Cause,
    FixSpec,
    Intrusiveness,
    Knowledge,
    Message,
    Probe,
    Question,
    Reference,
    Signature,
    Term,
    Verification,
)
from ddpwizard.screens.shell.state import WizardState
from helpers.built_in_knowledge import built_in_knowledge

TRAIN = """\
import torch.distributed as dist


def validate(preds):
    if dist.get_rank() == 0:
        acc = accuracy(preds)
        dist.all_reduce(acc)
        print(acc)


def main():
    for epoch in range(3):
        train()
        validate(predict())
    dist.barrier()
"""
PATCHED = TRAIN.replace(
    """    if dist.get_rank() == 0:
        acc = accuracy(preds)
        dist.all_reduce(acc)
        print(acc)
""",
    """    acc = accuracy(preds)
    dist.all_reduce(acc)
    if dist.get_rank() == 0:
        print(acc)
""",
)


def knowledge() -> Knowledge:
    """Three causes, two questions, a few probes: enough to rank, to ask and to probe."""
    collective = _cause(
        "rank-conditional-collective",
        "A collective that only some ranks reach",
        "hang",
        "One rank enters an operation that needs everybody; all wait for ever.",
        symptoms=["it hangs at validation, always at the same place"],
        questions={"symptom": {"hangs": "moderate"}, "same-place": {"same-step": "strong", "differs": "against"}},
        findings={"job.ranks-in-different-collectives": "strong"},
        see_also=["port-in-use"],
    )
    port = _cause(
        "port-in-use",
        "The rendezvous port is already taken",
        "launch",
        "Another program listens on MASTER_PORT; the first rank cannot bind it.",
        symptoms=["address already in use"],
        questions={
            "symptom": {"does-not-start": "moderate", "crashes": "weak"},
            "same-place": {"same-step": "moderate"},
        },
        findings={"ports.busy": "moderate", "ports.free": "against"},
        signatures=[Signature(pattern="EADDRINUSE", literal="EADDRINUSE", weight="decisive")],
    )
    shm = _cause(
        "shm-too-small",
        "/dev/shm is too small",
        "nccl",
        "Loader workers and NCCL hand data to each other through /dev/shm.",
        symptoms=["bus error in a container"],
        questions={"symptom": {"crashes": "weak"}, "same-place": {"differs": "weak"}},
        findings={"limits.shm-small": "weak"},
    )
    return Knowledge(
        causes={cause.id: cause for cause in (collective, port, shm)},
        questions={
            "symptom": Question(
                ask="What do you see?",
                why="It decides where to look first.",
                answers={
                    "hangs": "It hangs, nothing moves",
                    "crashes": "It crashed, I have an error",
                    "wrong-or-slow": "It runs, but wrong or too slow",
                    "does-not-start": "It does not even start",
                },
            ),
            "same-place": Question(
                ask="Does it stop at the same step each time?",
                why="The same step suggests the code. Different steps suggest the data or the hardware.",
                answers={"same-step": "Yes, at the same step", "differs": "No, at different steps"},
            ),
        },
        probes={
            "ports": _probe("the rendezvous port", "reads", {"busy": "somebody listens", "free": "it is free"}),
            "limits": _probe("shared memory and limits", "reads", {"shm-small": "/dev/shm is small"}),
            "allreduce": _probe("a real all-reduce over the ranks here", "allocates", {"correct": "it went through"}),
            "job": _probe("the running job's ranks", "reads", {"ranks-in-different-collectives": "they differ"}),
            "log": _probe("the given logs", "given", {"restarted": "the job was started again"}),
        },
        messages={
            "sigterm": Message(
                pattern="closing signal SIGTERM",
                literal="closing signal SIGTERM",
                kind="consequence",
                says="torchrun ends the other ranks after one of them failed",
            )
        },
        rules=built_in_knowledge().rules,  # the review needs them all
        in_scope_words=["rank", "nccl", "torchrun", "eaddrinuse"],
        synonyms=[],
        topics={},
        multi_rank_words=[],
        glossary={},
        terms={
            "/dev/shm": Term(
                text="A file system in memory. Loader workers use it.", chapter="networks", causes=["shm-too-small"]
            )
        },
        version="recorded",
    )


def _cause(id_: str, title: str, family: Any, summary: str, **more: Any) -> Cause:
    return Cause(
        id=id_,
        title=title,
        family=family,
        summary=summary,
        explain="Every rank of a group must call the same collectives\nin the same order.",
        fixes=[FixSpec(id="repair", kind="text", title="Fix it by hand", text="Do what the entry says.")],
        verify=Verification(probe="ports", gone=["ports.busy"]),
        holds_for={"torch": ">=2.1"},
        sources=[Reference(title="PyTorch: torch.distributed", url="https://docs.pytorch.org", checked="2.13")],
        **more,
    )


def _probe(title: str, intrusiveness: Intrusiveness, findings: dict[str, str]) -> Probe:
    return Probe(title=title, intrusiveness=intrusiveness, limit_s=5, cost_s=0.2, findings=findings)


def snapshot() -> Snapshot:
    """A machine with eight GPUs, a small /dev/shm and a port in use."""
    gpus = [
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name="NVIDIA H100 80GB HBM3",
            pci_id=f"0000:{index:02x}:00.0",
            memory_total_bytes=80 << 30,
            memory_used_bytes=0,
        )
        for index in range(8)
    ]
    ens3 = Interface(name="ens3", up=True, speed_mbps=100_000, mtu=9000, addresses=["10.0.0.7"], kind="physical")
    return Snapshot(
        taken_at=1_760_000_000.0,
        host="node-07",
        ddpwizard_version="0",
        software=SoftwareSection(
            python="/opt/venv/bin/python", python_version="3.11", torch="2.13.0", cuda="13.0", backends=["nccl", "gloo"]
        ),
        gpus=GpuSection(driver="580.65", gpus=gpus),
        ports=PortSection(port=29500, from_variable=False, free=False, holder_pid=77, holder="python old.py"),
        network=NetworkSection(
            hostname="node-07", hostname_addresses=["10.0.0.7"], interfaces=[ens3], nccl_would_use=["ens3"]
        ),
        limits=LimitsSection(
            shm_total_bytes=64 << 20,
            shm_free_bytes=64 << 20,
            memlock_bytes=None,
            open_files=65536,
            cgroup_memory_limit_bytes=None,
            cgroup_memory_used_bytes=None,
            cgroup_oom_kills=None,
            memory_total_bytes=1 << 40,
            memory_available_bytes=900 << 30,
            cpus=96,
        ),
    )


SMALL = Check(
    "limits.shm",
    "fail",
    "/dev/shm is 64 MiB",
    "NCCL and DataLoader workers fail when it fills.",
    finding="limits.shm-small",
    fix="start the container with --shm-size=16g",
)
TAKEN = Check("ports.port", "warn", "port 29500 is taken", "python old.py", finding="ports.busy", where="pid 77")
CHECKS = [
    Check("gpus.free", "ok", "8 GPUs are free"),
    TAKEN,
    SMALL,
    Check(
        "resolve",
        "unknown",
        "could not check MASTER_ADDR",
        "not run: it opens connections, which needs --allow connects",
    ),
]
BENCH_CHECK = Check("allreduce.correct", "ok", "the all-reduce was right on every rank")


def healthy_snapshot() -> Snapshot:
    """The same machine with a large /dev/shm and a free port."""
    whole = snapshot()
    assert whole.ports and whole.limits
    return msgspec.structs.replace(
        whole,
        ports=msgspec.structs.replace(whole.ports, free=True, holder_pid=None, holder=""),
        limits=msgspec.structs.replace(whole.limits, shm_total_bytes=512 << 30, shm_free_bytes=512 << 30),
    )


def bench() -> AllreduceSection:
    """A live test that passed."""
    sizes = [1 << 10, 1 << 16, 1 << 20, 1 << 26]
    rows = [
        BenchRow(
            operation="all_reduce",
            backend="gloo",
            ranks=2,
            bytes=size,
            seconds=0.001 * n,
            algbw_gbps=0.5 * n,
            busbw_gbps=0.5 * n,
            correct=True,
        )
        for n, size in enumerate(sizes, 1)
    ]
    return AllreduceSection(backend="gloo", ranks=2, rows=rows, elapsed_s=3.1)


LOOKED_AT = time.mktime((2026, 11, 21, 17, 34, 5, 0, 0, -1))  # the same on the clock wherever the tests run


def report(directory: Path) -> JobReport:
    """Four ranks: rank 0 in an all-reduce under a rank test, the others at the barrier."""
    script = directory / "train.py"
    script.write_text(TRAIN)
    lines = [line.strip() for line in TRAIN.splitlines()]
    inside, after = lines.index("dist.all_reduce(acc)") + 1, lines.index("dist.barrier()") + 1
    branch = lines.index("if dist.get_rank() == 0:") + 1
    rows = [
        RankRow(
            rank=rank,
            local_rank=rank,
            pid=4_000_000_000 + rank,
            host="node-07",
            state="waiting",
            where=f"{script}:{after if rank else inside}",
            function="main" if rank else "validate",
            collective="barrier" if rank else "all_reduce",
            group=None,
            seq=None,
            since_s=3.0,
            since_from="samples",
        )
        for rank in range(4)
    ]
    processes = [
        Process(
            pid=row.pid or 0,
            rank=row.rank,
            local_rank=row.local_rank,
            command=["python", str(script)],
            cwd=str(directory),
            python="python",
            environ={},
        )
        for row in rows
    ]
    job = Job(
        launcher="torchrun",
        launcher_pid=4711,
        launcher_command=["torchrun", "--nproc-per-node=4", str(script)],
        world_size=4,
        master="127.0.0.1:29500",
        host="node-07",
        processes=processes,
    )
    seen = [
        ProcessSamples(
            process=process, host="node-07", samples=[_sample(at, row, script) for at in (LOOKED_AT - 3, LOOKED_AT)]
        )
        for process, row in zip(processes, rows, strict=True)
    ]
    return JobReport(
        launcher="torchrun",
        world_size=4,
        nodes=["node-07"],
        ranks=rows,
        verdict=Verdict(
            state="hung",
            cause="rank-conditional-collective",
            culprits=[0],
            collective="all_reduce",
            where=f"{script}:{inside}",
            branch=f"{script}:{branch}",
            why=f"Rank 0 waits in all_reduce at train.py:{inside}. Ranks 1–3 do not join it: they wait in "
            f"barrier at train.py:{after}.",
            confidence=0.97,
            findings=["job.ranks-in-different-collectives"],
        ),
        observed=Observation(job=job, seen=seen, sources={str(script): TRAIN}),
    )


def _sample(at: float, row: RankRow, script: Path) -> Sample:
    inner = StackFrame(row.collective or "", "/opt/venv/torch/distributed/distributed_c10d.py", 2901)
    outer = StackFrame(row.function or "", str(script), int((row.where or ":0").rpartition(":")[2]))
    return Sample(at=at, process_state="S", cpu_s=1.0, switches=5, stack=[inner, outer])


def surrounded(recorded: JobReport) -> JobReport:
    """The same job with all that can be sampled of a rank: threads, loader workers, connections, GPU, output."""
    seen = [_surrounded(each) for each in recorded.observed.seen]
    rows = [msgspec.structs.replace(row, group="default_pg", seq=117 + (row.rank > 0)) for row in recorded.ranks]
    observed = msgspec.structs.replace(recorded.observed, seen=seen)
    return msgspec.structs.replace(recorded, observed=observed, ranks=rows)


def _surrounded(seen: ProcessSamples) -> ProcessSamples:
    rank = seen.process.rank or 0
    queue = [
        StackFrame("wait", "/usr/lib/python3.11/threading.py", 327),
        StackFrame("_feed", "/opt/venv/torch/queues.py", 12),
    ]
    first, last = (
        msgspec.structs.replace(
            sample,
            threads=3,
            others=[ThreadStack("QueueFeederThread", queue)],
            waits_in="futex_wait_queue",
            cpu_s=1.0 + 0.03 * n,
            read_bytes=5000 + 3 * 65536 * n,
            written_bytes=10,
        )
        for n, sample in enumerate(seen.samples)
    )
    loader = Child(
        pid=5000 + rank,
        command=["python", "train.py"],
        kind="loader",
        process_state="S",
        moved=False,
        stack=[
            StackFrame("read", "/usr/lib/python3.11/ssl.py", 1100),
            StackFrame("__getitem__", "/home/ana/run/data.py", 17),
        ],
    )
    return msgspec.structs.replace(
        seen,
        samples=[first, last],
        children=[loader],
        links=[
            Connection("10.0.0.7:41000", "10.0.0.7:29500", "estab"),
            Connection("10.0.0.7:41002", "10.0.0.8:5", "estab", 70000),
        ],
        devices=[GpuUse(rank % 8, 100 - rank % 8, (10 + rank % 8) << 30)],
        output=["step 117 loss 2.31", f"rank {rank} validates"],
        output_from="/home/ana/run/logs/0/stderr.log",
    )


def large(directory: Path, ranks: int = 1024, places: int = 300) -> JobReport:
    """A job of many ranks at many places: rank 517 in an all-reduce, the others all over ``loop.py``."""
    base = report(directory)
    script = directory / "loop.py"
    script.write_text("".join(f"work({n})\n" for n in range(places + 2)))
    rows: list[RankRow] = []
    for rank in range(ranks):
        line = 1 if rank == 517 else 2 + rank * 7 % places
        row = msgspec.structs.replace(
            base.ranks[1 if rank != 517 else 0],
            rank=rank,
            local_rank=rank % 8,
            pid=10_000 + rank,
            host=f"node-{rank // 8:03}",
            where=f"{script}:{line}",
            state="waiting" if rank % 3 or rank == 517 else "running",
            since_s=3.0 if rank % 3 or rank == 517 else None,
        )
        rows.append(row)
    processes = [
        msgspec.structs.replace(base.job.processes[0], pid=row.pid or 0, rank=row.rank, local_rank=row.local_rank)
        for row in rows
    ]
    seen = [
        _surrounded(
            ProcessSamples(process=each, host=row.host, samples=[_sample(LOOKED_AT + n, row, script) for n in (-3, 0)])
        )
        for each, row in zip(processes, rows, strict=True)
    ]
    job = msgspec.structs.replace(base.job, world_size=ranks, processes=processes, launcher_pid=4712)
    verdict = msgspec.structs.replace(
        base.verdict, culprits=[517], where=f"{script}:1", branch=None, why="Rank 517 waits in all_reduce at loop.py:1."
    )
    observed = Observation(job=job, seen=seen, sources={str(script): script.read_text()})
    nodes = sorted({row.host for row in rows})
    return msgspec.structs.replace(base, world_size=ranks, nodes=nodes, ranks=rows, verdict=verdict, observed=observed)


def patch_fix(directory: Path) -> Fix:
    """The patch of the recorded script."""
    return Fix(
        id="hoist-collective",
        cause="rank-conditional-collective",
        title="run the all-reduce on every rank",
        safety="unsafe",
        why_unsafe="the code before the collective now runs on all ranks",
        text="The collective moves out of the rank test; only the print stays in it.",
        commands=["torchrun --nproc-per-node=4 train.py"],
        patches=[FilePatch(path=str(directory / "train.py"), before=TRAIN, after=PATCHED)],
    )


class RecordedState(WizardState):
    """A state with a recorded machine, jobs and knowledge. ``stuck``: probes that never answer."""

    def __init__(
        self, reports: list[JobReport] | None = None, *, stuck: bool = False, ascii_only: bool = False
    ) -> None:
        super().__init__(Options(ascii=ascii_only), run_probes=self._recorded_probes, triage=self._recorded_triage)
        self.knowledge = knowledge()
        self.recorded_reports = reports or []
        self.stuck = stuck
        self.cancelled: list[str] = []
        self.looked: list[str] = []
        self.ended_jobs: set[str] = set()

    @cached_property
    def course(self) -> Course:
        return read_course(self.knowledge)

    def has_ended(self, report: JobReport) -> bool:
        return report.job.id in self.ended_jobs

    def may_probe(self, granted: Intrusiveness | None = None) -> list[str]:
        return ["ports", "limits"]

    async def _recorded_probes(self, probes: list[str], context: ProbeContext, granted: Intrusiveness) -> Snapshot:
        self.looked += probes
        if self.stuck:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += probes
                raise
        whole = snapshot()
        parts = {name: getattr(whole, name) for name in ("software", "gpus", "network", *probes)}
        if "allreduce" in probes:
            parts["allreduce"] = bench()
        return Snapshot(taken_at=0.0, host=whole.host, ddpwizard_version="0", **parts)

    async def _recorded_triage(self, pid: int | None) -> list[JobReport]:
        return self.recorded_reports

    def merge_snapshot(self, found: Snapshot) -> None:
        from ddpwizard.app.probes.run_probes import merge_snapshots

        self.snapshot = merge_snapshots(self.snapshot, found) if self.snapshot else found
        self.checks = [*CHECKS, BENCH_CHECK] if self.snapshot.allreduce else CHECKS

    def take_snapshot(self, found: Snapshot) -> None:
        for probe, checks in (("ports", [TAKEN]), ("limits", [SMALL]), ("allreduce", [])):
            if getattr(found, probe) is not None and probe not in self.case.probed:
                self.case.add(item for check in checks if (item := check.evidence()))
                self.case.mark_probed(probe)


class RecordedMachine(WizardState):
    """A state with the built-in knowledge base on a recorded healthy machine without jobs."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, run_probes=self._recorded_probes, triage=self._no_jobs)

    async def _recorded_probes(self, probes: list[str], context: ProbeContext, granted: Intrusiveness) -> Snapshot:
        whole = healthy_snapshot()
        parts = {probe: part for probe in probes if (part := getattr(whole, probe, None)) is not None}
        failed = {probe: "not recorded" for probe in probes if probe not in parts}
        return Snapshot(taken_at=0.0, host=whole.host, ddpwizard_version="0", failed=failed, **parts)

    async def _no_jobs(self, pid: int | None) -> list[JobReport]:
        return []
