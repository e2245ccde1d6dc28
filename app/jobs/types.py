"""Processes and jobs as discovery finds them."""

from typing import Literal

import msgspec

from ..launchers.arguments import LaunchRequest


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The process of one rank. ``rank_from``: the source of its rank."""

    pid: int
    rank: int | None
    local_rank: int | None
    command: list[str]
    cwd: str
    python: str
    environ: dict[str, str]
    started_at: float = 0.0  # seconds since the epoch
    rank_from: Literal["environ", "spawn", "frames", "command", "order", "log"] = "environ"
    pid_inside: int | None = None  # its pid in its own container, if that differs


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that belong together. ``launcher_command`` starts the job again."""

    launcher: str  # torchrun, accelerate, deepspeed, mpirun, srun, python
    launcher_pid: int | None
    launcher_command: list[str]
    world_size: int
    master: str  # "address:port" or ""
    host: str
    processes: list[Process]
    launcher_cwd: str = ""
    container: str = ""  # short id or name of the container of its ranks, if it is not ours
    launcher_gone: bool = False  # its launcher has ended, its ranks have not
    asked: LaunchRequest | None = None  # of a launcher without ranks

    @property
    def id(self) -> str:
        """Stable while the job lives: the launcher's name and pid, else the pid of the first process; without any
        process, the name of the job's run directory."""
        pids = [process.pid for process in self.processes]
        if self.launcher_pid is None and not pids and self.launcher_cwd:
            return f"{self.launcher}-{self.launcher_cwd.rstrip('/').rpartition('/')[2]}"
        return f"{self.launcher}-{self.launcher_pid or min(pids, default=0)}"
