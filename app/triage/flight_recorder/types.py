"""The Flight Recorder records of a job, and the findings of comparing them."""

from typing import Literal

import msgspec

from ..types import RankRecord

FindingKind = Literal[
    "missing",  # ranks that have not entered a collective that the others of their group wait in
    "first_call",  # the same, and they have made no call at all yet
    "silent",  # ranks that left no record and that others wait for
    "op",  # different operations under the same sequence number
    "order",  # the same operations in another order
    "size",  # the same operation on other sizes
    "batch",  # the same, where only the first dimension differs from all earlier calls at this line
    "dtype",  # the same operation on another data type
    "wrong_group",  # the operation the others wait in, entered in another group
    "p2p",  # sends and receives that wait for each other
    "group_cycle",  # ranks that go through several groups in different orders
    "extra",  # a few ranks entered a collective that most of their group never did
    "unfinished",  # ranks that still wait in a collective that all others have finished
    "together",  # every rank of a group is in the same operation, and it does not end
]


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a job. ``problems``: the files that could not be read, and why."""

    records: list[RankRecord]
    problems: list[str] = []
    folder: str = ""


class MismatchSide(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that made the same call. ``collective`` is None if they made none; ``where`` is then the location of their
    last recorded call."""

    ranks: list[int]
    collective: str | None
    sizes: list[list[int]] = []
    dtype: str = ""
    where: str = ""
    function: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A disagreement between ranks. ``group`` is the readable name, ``group_name`` the backend's.

    ``follows``: these ranks wait only because of another finding.
    """

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
    """The result of comparing all records: the culprits, and the findings, root causes first."""

    culprits: list[int]
    findings: list[Finding]
    confidence: float
    world_size: int
    silent: list[int]
