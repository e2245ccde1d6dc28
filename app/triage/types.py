"""A running or dead job as plain data: what discovery found, what each rank does, and the verdict.

The field names are the public JSON of ``ddpwizard triage``.
"""

from typing import Literal

import msgspec

from ..jobs.types import Job, Process
from ..training_script.frame import StackFrame
from .flight_recorder.types import RankRecord
from .job_logs.types import JobLog
from .nccl_ras.types import RasStatus

DisplayState = Literal[
    "running", "waiting", "starting", "stopped", "blocked_io", "zombie", "dead", "missing", "unreadable"
]
JobState = Literal["hung", "progressing", "dead", "starting", "unknown"]


class ThreadStack(msgspec.Struct, frozen=True):
    """A thread beside the main one: its name and its Python frames, innermost first. The rest is not always known."""

    name: str
    frames: list[StackFrame]
    process_state: str = ""
    switches: int = 0
    owns_gil: bool = False  # has Python's lock, without which no thread runs Python


class LocalsFrame(msgspec.Struct, frozen=True):
    """A frame with its local variables: name to a short, redacted text of the value."""

    frame: StackFrame
    values: dict[str, str]


class LocalsStack(msgspec.Struct, frozen=True):
    """A thread with the local variables of its frames, innermost first; the main thread comes first."""

    name: str
    frames: list[LocalsFrame]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one process. The counters only mean something as differences between samples."""

    at: float
    process_state: str  # the letter of /proc/PID/stat: R S D T t Z, or "" where gone
    cpu_s: float
    switches: int
    read_bytes: int = 0  # through read() and its kin, from files, sockets and terminals (/proc/PID/io, rchar)
    written_bytes: int = 0
    waits_in: str = ""  # the kernel function the main thread sleeps in (/proc/PID/wchan), "" where not shown
    stack: list[StackFrame] = []  # main thread, innermost first
    others: list[ThreadStack] = []
    threads: int = 0
    owns_gil: bool = False  # the main thread has Python's lock
    problem: str = ""  # why the stack could not be read
    gpu: bool = False  # has an NVIDIA device open: then CPU time is no sign of life


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a rank started: a loader worker, a shell command, a compiler."""

    pid: int
    command: list[str]
    kind: Literal["loader", "other"]
    process_state: str
    moved: bool  # whether anything of it moved between two looks
    stack: list[StackFrame] = []


class Connection(msgspec.Struct, frozen=True):
    """One TCP connection of a rank; addresses as ``host:port``. ``state`` is that of ss(8), in lower case."""

    local: str
    peer: str
    state: str
    waiting_to_send_bytes: int = 0


class GpuUse(msgspec.Struct, frozen=True):
    """A GPU a rank uses, as NVML shows it at the last look."""

    index: int
    busy_percent: int | None
    memory_used_bytes: int | None


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rank. ``where`` is the user's innermost frame as ``path:line``."""

    rank: int
    local_rank: int | None = None
    pid: int | None = None
    host: str
    state: DisplayState
    where: str | None = None
    function: str | None = None
    collective: str | None = None
    group: str | None = None
    seq: int | None = None
    since_s: float | None = None
    since_from: Literal["recorder", "log", "samples"]
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement over a job. ``findings`` are the evidence ids it stands for (``job.…``)."""

    state: JobState
    cause: str | None
    culprits: list[int]
    collective: str | None
    where: str | None
    branch: str | None
    why: str
    confidence: float
    findings: list[str] = []


class ProcessSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job with all that was seen of it. ``samples`` oldest first."""

    process: Process
    host: str
    samples: list[Sample] = []
    children: list[Child] = []
    links: list[Connection] = []
    devices: list[GpuUse] = []
    output: list[str] = []  # the last lines it printed
    output_from: str = ""  # the file they stand in


class ProcessDeath(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the job that was ended: by the kernel's OOM killer, a signal or an error. None: not known."""

    pid: int | None
    rank: int | None
    how: Literal["oom_killer", "signal", "exit"]
    what: str  # as the source says it
    where: str  # the source: "kernel log", a cgroup's file, a log's path:line
    at: float | None = None


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    """What starts the ranks of a host, looked at where it has started none. ``stack``: its main thread's."""

    host: str
    age_s: float
    stack: list[StackFrame] = []
    problem: str = ""  # why the stack could not be read


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was collected of one job, on one host or many, and nothing that was concluded: what is saved,
    merged, replayed and judged. ``problems`` say what could not be looked at and why."""

    job: Job
    seen: list[ProcessSamples]
    sources: dict[str, str] = {}  # path -> text of the files the ranks stand in
    records: list[RankRecord] = []
    log: JobLog | None = None
    deaths: list[ProcessDeath] = []
    ras: RasStatus | None = None
    launchers: list[Launcher] = []
    problems: list[str] = []

    @property
    def hosts(self) -> list[str]:
        """The hosts that were looked at."""
        return sorted({seen.host for seen in self.seen} | {each.host for each in self.launchers} or {self.job.host})


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One job, its ranks and its verdict; the diagnosis is made from them by ``app.wizard``."""

    launcher: str
    world_size: int
    nodes: list[str]
    ranks: list[RankRow]
    verdict: Verdict
    observed: Observation

    @property
    def job(self) -> Job:
        return self.observed.job

    @property
    def sources(self) -> dict[str, str]:
        return self.observed.sources

    def samples(self, row: RankRow) -> list[Sample]:
        """The looks at a rank's process, oldest first."""
        return next(
            (seen.samples for seen in self.observed.seen if (seen.process.pid, seen.host) == (row.pid, row.host)), []
        )
