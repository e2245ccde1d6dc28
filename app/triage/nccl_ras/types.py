"""NCCL's RAS service: the communicators of a live NCCL job as they see themselves, as plain data."""

import msgspec


class RasProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A rank, or a process that RAS names without its rank (None). ``dead``: not reached for a minute."""

    rank: int | None
    host: str
    pid: int | None
    device: int | None = None
    dead: bool = False


class LaunchedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """``size`` ranks of a communicator have launched an operation ``count`` times; ``ranks``: those that are named."""

    operation: str  # NCCL's name: AllReduce, Broadcast …; "" where it does not say
    count: int
    size: int
    ranks: list[int] = []


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator. The numbers of its ranks are its own; those of the largest one are the job's, as a rule.

    ``starting`` are the ranks whose start-up is not done, ``failed`` those with an error of NCCL (its number).
    """

    id: str
    size: int
    ranks: list[RasProcess] = []
    missing: list[RasProcess] = []
    launched: list[LaunchedOperation] = []
    starting: list[int] = []
    failed: dict[int, int] = {}


class RasStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the RAS service. ``steady``: ranks differ in what they launched, and did so in two answers.

    That all ranks have launched the same does not mean that nothing is stuck: RAS does not see GPU and network.
    """

    text: str
    version: str = ""
    communicators: list[Communicator] = []
    gone: list[RasProcess] = []
    timeouts: int = 0
    steady: bool = False
    problem: str = ""
