"""What the Flight Recorder of one rank holds, and what the records of all ranks say together."""

from collections.abc import Iterator
from typing import Literal

import msgspec

FindingKind = Literal[
    "missing",  # ranks that have not entered what the others of their group wait in
    "silent",  # ranks that left no record though others wait for them
    "op",  # at the same place in the group's order, different operations
    "order",  # the same operations in another order
    "size",  # the same operation on other sizes
    "dtype",  # the same operation on another data type
    "wrong_group",  # the operation the others wait in, entered in another group
    "p2p",  # sends and receives that wait for each other
    "group_cycle",  # ranks that go through several groups in different orders
    "extra",  # a few ranks entered what most of their group never did
    "unfinished",  # everybody else has finished what these ranks still wait in
    "together",  # every rank of a group is in the same operation, and it does not end
]


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A process group as one rank knows it. ``ranks`` is empty and the numbers are None where the record is silent."""

    name: str
    title: str = ""
    ranks: list[int] = []
    enqueued: int | None = None
    completed: int | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it stands in the script: all times it was made share one. ``op`` is the backend's word without its
    prefix, ``collective`` torch.distributed's; ``group`` an index into the record's groups."""

    group: int
    op: str
    collective: str
    inputs: list[list[int]] = []
    outputs: list[list[int]] = []
    input_types: list[str] = []
    output_types: list[str] = []
    p2p: bool = False
    where: str = ""  # path:line of the user's innermost frame
    function: str = ""
    via: str = ""  # how a collective that the user did not write came about


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's record, whatever form and version it was dumped in; the columns run from old to new.

    ``calls`` are the distinct ones, ``call`` the index of each entry's; ``seq`` counts within the group (collectives
    and point-to-point apart); ``states`` has a letter per entry: d done, s started, e entered.
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


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a job. ``problems`` say which file could not be read and why."""

    records: list[RankRecord]
    problems: list[str] = []
    folder: str = ""


class MismatchSide(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that did the same. ``collective`` is None for those that did nothing of the kind; their ``where`` is then
    the last place the record knows."""

    ranks: list[int]
    collective: str | None
    sizes: list[list[int]] = []
    dtype: str = ""
    where: str = ""
    function: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong between ranks. ``group`` is how people know it, ``group_name`` the backend's word for it.
    ``follows``: these ranks only wait because of another finding."""

    kind: FindingKind
    group: str
    group_name: str = ""
    seq: int | None
    culprits: list[int]
    collective: str | None
    sides: list[MismatchSide]
    words: str
    at_ns: int = 0
    confidence: float = 0.8
    follows: bool = False


class RecorderVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What all records say together: the findings, what came first at the front, and who is to blame for it."""

    culprits: list[int]
    findings: list[Finding]
    confidence: float
    world_size: int
    silent: list[int]
