"""Types of the JSON documents about jobs, machines and sessions that a command builds as a dictionary."""

from typing import Literal

import msgspec
from ddpwizard.app.evidence import Diagnosis, Status
from ddpwizard.app.fixes.fix_text import FixDocument
from ddpwizard.app.snapshot import BenchRow, Snapshot
from ddpwizard.app.triage.types import Child, Connection, GpuUse, RankRow, Verdict
from msgspec import UNSET, UnsetType


class DiagnosisDocument(Diagnosis, frozen=True):
    """The ranked causes of a case, and the fix of the first. ``why`` is in the report of ``run`` only."""

    fix: FixDocument | UnsetType | None = UNSET
    why: str | UnsetType = UNSET


class ProcessThread(msgspec.Struct):
    """A thread other than the main one; frames as ``function (path:line)``, innermost first."""

    name: str
    stack: list[str]


class ProcessChild(Child, frozen=True, kw_only=True):
    """A process that a rank started."""

    stack: list[str]  # type: ignore[assignment]


class JobProcess(msgspec.Struct):
    """A process of a job. The counters are differences between its first and its last sample."""

    rank: int | None
    rank_from: str
    pid: int
    host: str
    command: list[str]
    children: list[ProcessChild]
    links: list[Connection]
    devices: list[GpuUse]
    output: list[str]
    output_from: str
    looks: int | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    process_state: str | UnsetType = UNSET
    cpu_seconds: float | UnsetType = UNSET
    switches: int | UnsetType = UNSET
    read_bytes: int | UnsetType = UNSET
    written_bytes: int | UnsetType = UNSET
    kernel_function: str | UnsetType = UNSET
    stack: list[str] | UnsetType = UNSET
    threads: list[ProcessThread] | UnsetType = UNSET


class TriagedJob(msgspec.Struct):
    """A job: its ranks, the verdict on it, and the diagnosis that follows."""

    id: str
    launcher: str
    world_size: int
    nodes: list[str]
    ranks: list[RankRow]
    verdict: Verdict
    processes: list[JobProcess]
    diagnosis: Diagnosis


class TriageDocument(msgspec.Struct):
    """The jobs of this machine, worst first. ``why`` is in the report of ``run`` only."""

    jobs: list[TriagedJob]
    hints: list[str] | UnsetType = UNSET
    why: str | UnsetType = UNSET


class MachineCheck(msgspec.Struct):
    """A check of this machine, with the cause that it supports most."""

    id: str
    status: Status
    title: str
    detail: str
    cause: str | None
    fix: str | None


class DoctorDocument(msgspec.Struct):
    """The snapshot of this machine, and its checks."""

    snapshot: Snapshot
    checks: list[MachineCheck]
    bench: list[BenchRow]


class ListedSession(msgspec.Struct):
    """A session; times in seconds since 1970."""

    id: str
    path: str
    begun_at: float
    updated_at: float
    steps: int
    open: bool
    outcome: str | None
    about: str


class SessionsDocument(msgspec.Struct):
    """The sessions, newest first."""

    sessions: list[ListedSession]


class ExportDocument(msgspec.Struct):
    """An exported session: its text, or with ``--output`` the path of the file."""

    id: str
    format: Literal["md", "html"]
    public: bool
    path: str | None
    text: str | UnsetType = UNSET
