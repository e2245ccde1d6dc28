"""Parse an answer of NCCL's RAS service: JSON (NCCL 2.28.7 and later) or text (2.24 and later).

Follows NCCL's documentation (troubleshooting/ras.rst) and src/ras/client_support.cc of 2.30. The text lists only ranks
that differ from most.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from ..types import Communicator, LaunchedOperation, RasProcess, RasStatus

KEPT_CHARACTERS = 64 << 10
IN_PROGRESS = 7  # ncclInProgress
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Status(msgspec.Struct):
    init_state: Whole = 0
    async_error: Whole = 0
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: Whole
    host: str = ""
    pid: Whole | None = None
    cuda_dev: Whole | None = None
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, Whole] = {}


class _Communicator(msgspec.Struct):
    size: Whole
    hash: str = ""
    ranks: list[_Rank] = []
    missing_ranks: list[_Rank] = []


class _Service(msgspec.Struct):
    timeouts_count: Whole = 0


class _Answer(msgspec.Struct):
    nccl_version: str = ""
    communicators: list[_Communicator] = []
    ras: _Service = msgspec.field(default_factory=_Service)


PROCESS = re.compile(r"\s*Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,100}) managing GPUs? (?P<gpu>\d{1,4})?")
HEAD = re.compile(r"#(?P<group>\d{1,9})-\d{1,9} \((?P<id>[\da-f]{1,16})\) (?P<what>[A-Z]+)")
RANK = re.compile(
    r"\s*Rank (?P<rank>\d{1,9})(?: has (?:launched up to operation (?P<count>\d{1,18})|(?P<none>not launched any)"
    r"|status (?P<status>\w+))[^-\n]{0,40}?)?"
    r" -- (?:GPU (?P<gpu>\d{1,4})\S{0,40} managed by process (?P<pid>\d{1,10}) on node (?P<host>\S{1,100}))?"
)
MISSING = re.compile(r"\s*The missing ranks?: (?P<ranks>\d{1,9}(?:, ?\d{1,9}){0,4000})")
COUNTS = re.compile(r"\s*Communicator ranks have different (?:collective|(?P<operation>\w{1,40})) operation counts")
GROUP = re.compile(r"\s*(?P<size>\d{1,9}) ranks have (?:launched up to operation (?P<count>\d{1,18})|not launched any)")
TABLE = re.compile(
    r"\s*(?P<group>\d{1,9})(?: {2,}\d{1,9}){2} {2,}[\d-]{1,20} {2,}(?P<size>\d{1,9}) {2,}\d{1,9} {2,}[A-Z]"
)
VERSION = re.compile(r"NCCL version (?P<version>[\w.+-]{1,40})")
TIMEOUTS = re.compile(r"Encountered (?P<count>\d{1,9}) communication timeout")


def parse_answer(text: str) -> RasStatus:
    """Parse an answer; ``problem`` is set if it cannot be read."""
    kept = text[:KEPT_CHARACTERS]
    if not text.lstrip().startswith("{"):
        return _from_text(text, kept)
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        return RasStatus(text=kept, problem=f"the answer of NCCL's RAS service cannot be read: {error}")
    communicators = [_communicator(each) for each in answer.communicators]
    gone = [each for communicator in communicators for each in communicator.missing if each.dead]
    return RasStatus(
        text=kept,
        version=answer.nccl_version,
        communicators=communicators,
        gone=gone,
        timeouts=answer.ras.timeouts_count,
    )


def _communicator(raw: _Communicator) -> Communicator:
    counts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for rank in raw.ranks:
        for operation, count in rank.collective_counts.items():
            counts[operation, count].append(rank.rank)
    return Communicator(
        id=raw.hash.removeprefix("0x"),
        size=raw.size,
        ranks=[_process(rank) for rank in raw.ranks],
        missing=[
            _process(rank) for rank in raw.missing_ranks if rank.status.unresponsive or rank.status.considered_dead
        ],
        launched=[
            LaunchedOperation(operation=operation, count=count, size=len(ranks), ranks=sorted(ranks))
            for (operation, count), ranks in counts.items()
        ],
        starting=sorted(rank.rank for rank in raw.ranks if rank.status.init_state == IN_PROGRESS),
        failed={
            rank.rank: rank.status.async_error or rank.status.init_state
            for rank in raw.ranks
            if rank.status.async_error not in (0, IN_PROGRESS) or rank.status.init_state not in (0, IN_PROGRESS)
        },
    )


def _process(raw: _Rank) -> RasProcess:
    return RasProcess(rank=raw.rank, host=raw.host, pid=raw.pid, device=raw.cuda_dev, dead=raw.status.considered_dead)


def _from_text(text: str, kept: str) -> RasStatus:
    lines = text.splitlines()
    version = next((found["version"] for line in lines if (found := VERSION.search(line))), "")
    sizes = {found["group"]: int(found["size"]) for line in lines if (found := TABLE.match(line))}
    timeouts = [int(found["count"]) for line in lines if (found := TIMEOUTS.search(line))]
    gone: list[RasProcess] = []
    sections: dict[str, list[list[str]]] = defaultdict(list)
    dead, current = False, list[str]()
    for line in lines:
        if line.startswith(("DEAD", "INCOMPLETE")):
            dead, current = line.startswith("DEAD"), []
        elif found := HEAD.match(line):
            current = [line]
            sections[found["id"]].append(current)
        elif found := PROCESS.match(line):
            device = int(found["gpu"]) if found["gpu"] else None
            gone.append(RasProcess(rank=None, host=found["host"], pid=int(found["pid"]), device=device, dead=dead))
        else:
            current.append(line)
    communicators = [_section(id_, [line for part in parts for line in part], sizes) for id_, parts in sections.items()]
    problem = "" if sizes or communicators or version else "no answer of NCCL's RAS service"
    return RasStatus(
        text=kept, version=version, communicators=communicators, gone=gone, timeouts=sum(timeouts), problem=problem
    )


def _section(id_: str, lines: Sequence[str], sizes: Mapping[str, int]) -> Communicator:
    """Parse the sections of a communicator. ``sizes``: by the number of its group in the table."""
    missing: list[RasProcess] = []
    launched: list[LaunchedOperation] = []
    what, operation, group, size = "", "", None, 0
    for line in lines:
        if found := HEAD.match(line):
            what, group, size = found["what"], None, sizes.get(found["group"], 0)
        elif found := COUNTS.match(line):
            operation, group = found["operation"] or "", None
        elif found := MISSING.match(line):
            missing += [RasProcess(rank=int(n), host="", pid=None) for n in found["ranks"].split(",")]
        elif found := GROUP.match(line):
            group = LaunchedOperation(operation=operation, count=int(found["count"] or 0), size=int(found["size"]))
            launched.append(group)
        elif found := RANK.match(line):
            rank = int(found["rank"])
            if what == "INCOMPLETE":
                missing.append(_process_of_line(found))
            elif found["count"] or found["none"]:
                launched.append(
                    LaunchedOperation(operation=operation, count=int(found["count"] or 0), size=1, ranks=[rank])
                )
                group = None
            elif group is not None and not found["status"]:
                group = msgspec.structs.replace(group, ranks=[*group.ranks, rank])
                launched[-1] = group
    return Communicator(id=id_, size=size, missing=missing, launched=launched)


def _process_of_line(found: re.Match[str]) -> RasProcess:
    def number(name: str) -> int | None:
        return int(found[name]) if found[name] else None

    return RasProcess(rank=int(found["rank"]), host=found["host"] or "", pid=number("pid"), device=number("gpu"))
