"""A running or dead job as plain data: what was collected of it, the state of each rank, and the verdict.

The field names are the public JSON of ``ddpwizard triage`` and of its saved files.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ..jobs.types import Job, Process
from ..training_script.frame import StackFrame

DisplayState = Literal[
    "running", "waiting", "starting", "stopped", "blocked_io", "zombie", "dead", "missing", "unreadable"
]
JobState = Literal["hung", "progressing", "dead", "starting", "unknown"]
LogEventKind = Literal[
    "nccl-init",  # a stage of NCCL's start-up (stage; comm, member, of)
    "nccl-version",
    "watchdog",  # a collective that ran out of time (seq, op, numel_in, numel_out, timeout_ms, group, pg)
    "work",  # the last enqueued and completed work of a group (enqueued, completed, group, pg)
    "stuck",  # the watchdog thread or the GIL was blocked
    "signal-from",  # another rank sent the signal to dump (from)
    "nccl-error",
    "gloo-timeout",  # (timeout_ms, operation)
    "peer-closed",  # (peer)
    "size",  # gloo: a message of the wrong size arrived (got, expected)
    "mismatch",  # collectives of two ranks that differ (one, seq, op, shape, dtype; other, other_op …)
    "absent",  # monitored_barrier names the ranks that did not arrive (absent, timeout_ms)
    "desync",  # TORCH_NCCL_DESYNC_DEBUG names the ranks that lag (never; or started, ended and seq, last)
    "store-timeout",  # (timeout_ms, key) or (joined, of)
    "traceback",  # a Python exception (exception, location, collective; follows: a consequence of another failure)
    "exit",  # the launcher reports that a process has ended (code, pid, signal)
    "root-cause",  # the first failure in torchrun's own summary
    "killed",  # killed by the kernel or a signal, as reported by the system (pid, signal)
]


class ThreadStack(msgspec.Struct, frozen=True):
    """A thread other than the main one: its name and its Python frames, innermost first.

    The other fields are not always known.
    """

    name: str
    frames: list[StackFrame]
    process_state: str = ""
    switches: int = 0
    owns_gil: bool = False  # holds Python's global interpreter lock


class LocalsFrame(msgspec.Struct, frozen=True):
    """A frame with its local variables: name to a short, redacted text of the value."""

    frame: StackFrame
    values: dict[str, str]


class LocalsStack(msgspec.Struct, frozen=True):
    """A thread with the local variables of its frames, innermost first; the main thread comes first."""

    name: str
    frames: list[LocalsFrame]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of one process. The counters are cumulative: only differences between samples are meaningful."""

    at: float
    process_state: str  # the letter of /proc/PID/stat: R S D T t Z, or "" if the process no longer exists
    cpu_s: float
    switches: int
    read_bytes: int = 0  # by read() and similar calls, from files, sockets and terminals (/proc/PID/io, rchar)
    written_bytes: int = 0
    waits_in: str = ""  # the kernel function the main thread sleeps in (/proc/PID/wchan), "" if not shown
    stack: list[StackFrame] = []  # main thread, innermost first
    runs: bool | None = None  # the main thread used a CPU, or could, when its stack was read; None: not known
    others: list[ThreadStack] = []
    threads: int = 0
    owns_gil: bool = False  # the main thread holds Python's global interpreter lock
    problem: str = ""  # why the stack could not be read
    gpu: bool = False  # has a GPU open: CPU time is then no sign of progress


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a rank started: a data loader worker, a shell command, a compiler."""

    pid: int
    command: list[str]
    kind: Literal["loader", "other"]
    process_state: str
    moved: bool  # made progress between two samples
    stack: list[StackFrame] = []


class Connection(msgspec.Struct, frozen=True):
    """One TCP connection of a rank; addresses as ``host:port``. ``state`` is that of ss(8), in lower case."""

    local: str
    peer: str
    state: str
    waiting_to_send_bytes: int = 0


class GpuUse(msgspec.Struct, frozen=True):
    """A GPU that a rank uses, as NVML showed it at the last sample."""

    index: int
    busy_percent: int | None
    memory_used_bytes: int | None


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one rank. ``where`` is the innermost frame of the user's code as ``path:line``."""

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


def is_failure(state: str, findings: Sequence[str]) -> bool:
    """Return whether a verdict with this state is that of a job that failed."""
    return state == "hung" or (state == "dead" and bool(findings))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a job. ``findings`` are the evidence ids that it supports (``job.…``)."""

    state: JobState
    cause: str | None
    culprits: list[int]
    collective: str | None
    where: str | None
    branch: str | None
    why: str
    confidence: float
    findings: list[str] = []

    @property
    def is_failure(self) -> bool:
        """True for a job that hangs, or that has ended with a known failure: it may also have ended as it should."""
        return is_failure(self.state, self.findings)


class ProcessSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a job with everything that was collected of it. ``samples`` oldest first."""

    process: Process
    host: str
    samples: list[Sample] = []
    children: list[Child] = []
    links: list[Connection] = []
    devices: list[GpuUse] = []
    output: list[str] = []  # the last lines it printed
    output_from: str = ""  # the file that holds them


class ProcessDeath(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the job that was ended: by the kernel's OOM killer, a signal or an error. None: not known."""

    pid: int | None
    rank: int | None
    how: Literal["oom_killer", "signal", "exit"]
    what: str  # the words of the source
    where: str  # the source: "kernel log", a cgroup's file, a log's path:line
    at: float | None = None


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    """The launcher of a host, sampled if it has started no rank. ``stack`` is that of its main thread."""

    host: str
    age_s: float
    stack: list[StackFrame] = []
    problem: str = ""  # why the stack could not be read


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group as one rank recorded it. ``ranks`` is empty and the numbers are None if the record lacks them."""

    name: str
    title: str = ""
    ranks: list[int] = []
    enqueued: int | None = None
    completed: int | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call site of the script: all entries made by it share one. ``op`` is the backend's name without its prefix,
    ``collective`` that of torch.distributed; ``group`` is an index into the record's groups."""

    group: int
    op: str
    collective: str
    inputs: list[list[int]] = []
    outputs: list[list[int]] = []
    input_types: list[str] = []
    output_types: list[str] = []
    p2p: bool = False
    where: str = ""  # path:line of the innermost frame of the user's code
    function: str = ""
    via: str = ""  # the feature that issued a collective the user did not write


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The Flight Recorder's record of one rank, independent of the format and version of its dump; the columns run
    from old to new.

    ``calls`` are the distinct ones, ``call`` the index of each entry's; ``seq`` counts within the group (collectives
    and point-to-point separately); ``states`` has a letter per entry: d done, s started, e entered.
    """

    rank: int
    host: str = ""
    source: str = ""
    version: str = ""
    backend: str = ""
    library: str = ""  # version of the communication library
    taken_at: float | None = None  # seconds since the epoch
    groups: list[ProcessGroup] = []
    calls: list[Call] = []
    call: list[int] = []
    seq: list[int] = []
    created_ns: list[int] = []
    states: str = ""

    @property
    def pending(self) -> Iterator[int]:
        """The entries that are not done, oldest first."""
        return (at for at, state in enumerate(self.states) if state != "d")


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event in a log, at ``where`` (path:line). ``rank`` is the rank it concerns, None if not known.

    ``at`` is its time in seconds since the epoch, if there is a time stamp on the line or shortly before it.
    """

    kind: LogEventKind
    text: str
    where: str
    rank: int | None = None
    at: float | None = None
    values: dict[str, str] = {}


class RankLog(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of the log. ``silent_since`` is the time of its last line (epoch): the line's own, or that of the
    last write to a file that belongs to the rank alone."""

    rank: int
    host: str
    last: str
    last_where: str
    silent_since: float | None = None
    step: int | None = None
    epoch: int | None = None
    step_where: str = ""


class JobLog(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the logs of one job, for its last attempt.

    ``first`` is the first rank with an error of its own, and ``first_where`` the line of that error. ``whole`` is False
    if so many ranks write to one text that some may have been left out: the silence of a rank then proves nothing.
    """

    files: list[str]
    read_at: float = 0.0
    attempts: int = 1
    world_size: int | None = None
    facts: list[LogEvent] = []
    ranks: list[RankLog] = []
    first: int | None = None
    first_where: str = ""
    whole: bool = True

    def of(self, *kinds: LogEventKind) -> list[LogEvent]:
        """Return the events of these kinds, in the order of the log."""
        return [event for event in self.facts if event.kind in kinds]


class RasProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A rank, or a process that RAS names without its rank (None). ``dead``: not reached for a minute."""

    rank: int | None
    host: str
    pid: int | None
    device: int | None = None
    dead: bool = False


class LaunchedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """``size`` ranks of a communicator have launched an operation ``count`` times; ``ranks``: those that are named."""

    operation: str  # NCCL's name: AllReduce, Broadcast …; "" if not reported
    count: int
    size: int
    ranks: list[int] = []


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator. It numbers its own ranks; those of the largest one usually equal the job's.

    ``starting`` are the ranks that have not finished their start-up, ``failed`` those with an error of NCCL (its
    number).
    """

    id: str
    size: int
    ranks: list[RasProcess] = []
    missing: list[RasProcess] = []
    launched: list[LaunchedOperation] = []
    starting: list[int] = []
    failed: dict[int, int] = {}


class RasStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The communicators of a live NCCL job, as one answer of NCCL's RAS service describes them.

    ``steady``: the ranks differ in what they launched, and did so in two answers. If all ranks have launched the same,
    something may still be stuck: RAS does not see the GPU and the network.
    """

    text: str
    version: str = ""
    communicators: list[Communicator] = []
    gone: list[RasProcess] = []
    timeouts: int = 0
    steady: bool = False
    problem: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was collected of one job, on one host or many, without conclusions: the data that is saved,
    merged, replayed and judged. ``problems`` list what could not be inspected, and why."""

    job: Job
    seen: list[ProcessSamples]
    sources: dict[str, str] = {}  # path -> text of the source files in the ranks' stacks
    changed_sources: dict[str, float] = {}  # path -> time of a change after the ranks had started
    records: list[RankRecord] = []
    log: JobLog | None = None
    deaths: list[ProcessDeath] = []
    ras: RasStatus | None = None
    launchers: list[Launcher] = []
    problems: list[str] = []

    @property
    def hosts(self) -> list[str]:
        """The hosts that were inspected."""
        return sorted({each.host for each in (*self.seen, *self.launchers)} or {self.job.host})


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One job, its ranks and its verdict, from which ``app.diagnosis.case`` makes the diagnosis."""

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
        """Return the samples of a rank's process, oldest first."""
        return next(
            (seen.samples for seen in self.observed.seen if (seen.process.pid, seen.host) == (row.pid, row.host)), []
        )
