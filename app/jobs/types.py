"""Processes and jobs, as found on this machine."""

from typing import Literal

import msgspec

from ..launchers.arguments import LaunchRequest


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's process as discovery finds it. ``rank_from`` says where its rank is known from."""

    pid: int
    rank: int | None
    local_rank: int | None
    command: list[str]
    cwd: str
    python: str
    environ: dict[str, str]
    started_at: float = 0.0  # seconds since the epoch
    rank_from: Literal["environ", "spawn", "frames", "command", "order", "log"] = "environ"
    pid_inside: int | None = None  # its pid in its own container, where that is another one


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that belong together. ``launcher_command`` is what would start it again."""

    launcher: str  # torchrun, accelerate, deepspeed, mpirun, srun, python
    launcher_pid: int | None
    launcher_command: list[str]
    world_size: int
    master: str  # "address:port" or ""
    host: str
    processes: list[Process]
    launcher_cwd: str = ""
    container: str = ""  # the short id or name of the container its ranks run in, where that is not ours
    launcher_gone: bool = False  # its ranks are left over: what started them has ended
    asked: LaunchRequest | None = None  # of a launcher that has no rank

    @property
    def id(self) -> str:
        """Stable while the job lives: the launcher's name and pid, or that of its first process; of a job without any
        process, the name of the folder it is known from."""
        pids = [process.pid for process in self.processes]
        if self.launcher_pid is None and not pids and self.launcher_cwd:
            return f"{self.launcher}-{self.launcher_cwd.rstrip('/').rpartition('/')[2]}"
        return f"{self.launcher}-{self.launcher_pid or min(pids, default=0)}"
