"""The Flight Recorder records of a job, and the findings of their comparison."""

from typing import Literal

import msgspec

from ..types import RankRecord

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
