"""Convert a decoded dump into a ``RankRecord``: columns of numbers, and each distinct call once."""

import re
import time
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import msgspec

from ...text.numbers import MOST_RANKS
from ...training_script.frame import StackFrame
from ..rank_activity.collectives_in_stack import collective_of
from ..rank_activity.frames import user_frames
from ..types import Call, ProcessGroup, RankRecord
from .safe_unpickle import DumpError, is_pickle, unpickle
from .unfolded_size import SizeBudget

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Key of an entry -> its value if an older version lacks the key or it is None.
DEFAULTS: dict[str, Any] = {
    "process_group": ("", ""),
    "profiling_name": "",
    "input_sizes": [],
    "output_sizes": [],
    "input_dtypes": [],
    "output_dtypes": [],
    "is_p2p": False,
    "pg_id": 0,
    "state": "",
    "retired": False,
    "collective_seq_id": 0,
    "p2p_seq_id": 0,
    "time_created_ns": 0,
    "frames": [],
}
SHAPE = [*DEFAULTS][:10]
ENCODE = msgspec.msgpack.Encoder().encode
MOST_FRAMES = 200
OLDEST, NEWEST_MAJOR = (2, 0), 2
MOST_ENTRIES = 1_000_000
MOST_TEXT = 4000
RANKS = re.compile(r"\d+")
PAIR = re.compile(r" \d+(?:->|<-)\d+$")
# The backend's name of a collective -> torch.distributed's.
PUBLIC = {
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "ALLGATHER_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "REDUCE_SCATTER_coalesced": "reduce_scatter",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "coalesced": "batch_isend_irecv",
}


class _Status(msgspec.Struct):
    last_enqueued_collective: Number = -1
    last_completed_collective: Number = -1


class _Config(msgspec.Struct):
    name: str = ""
    desc: str = ""
    ranks: str | list[Number] = ""


class _Shape(msgspec.Struct, array_like=True):
    """The fields that equal calls share, in the order of ``SHAPE``."""

    group: tuple[str, str]
    name: str
    inputs: list[list[Number]]
    outputs: list[list[Number]]
    input_types: list[str]
    output_types: list[str]
    p2p: bool
    group_id: Number
    state: str
    retired: bool


DECODE = msgspec.msgpack.Decoder(_Shape, strict=False).decode


class _Dump(msgspec.Struct):
    version: str
    entries: list[dict[str, Any]] = []
    pg_config: dict[str, _Config] = {}
    pg_status: dict[str, _Status] = {}
    comm_lib_version: str = ""
    nccl_version: str = ""


def parse_dump(
    data: bytes, rank: int, *, host: str = "", source: str = "", taken_at: float | None = None
) -> RankRecord:
    """Parse a dump, pickle or JSON. A hostile pickle may claim any amount of memory: see ``child``.

    Raises:
        DumpError: The dump cannot be read.
    """
    if is_pickle(data):
        content = unpickle(data)
        if not isinstance(content, dict):
            raise DumpError("not a Flight Recorder dump")
        entries = content.pop("entries", [])
        budget = SizeBudget(len(data))
        budget.take_value(content)
        dump = _checked(lambda: msgspec.convert(content, _Dump, strict=False))
    else:
        dump = _checked(lambda: msgspec.json.decode(data, type=_Dump, strict=False))
        entries, budget = dump.entries, None
    number = tuple(int(part) for part in re.findall(r"\d{1,9}", dump.version)[:2])
    if number < OLDEST or number[0] > NEWEST_MAJOR:
        raise DumpError(f"dump version {_printable(dump.version)[:20] or 'missing'}: 2.0 to 2.10 can be read")
    if not isinstance(entries, list) or not set(map(type, entries)) <= {dict}:
        raise DumpError("not a Flight Recorder dump (its entries are not a list of dictionaries)")
    if len(entries) > MOST_ENTRIES:
        raise DumpError(f"refused: more than {MOST_ENTRIES} entries")
    if any(each.get(key) is None for each in (*entries[:1], *entries[-1:]) for key in DEFAULTS):
        entries = [
            {key: each[key] if each.get(key) is not None else DEFAULTS[key] for key in DEFAULTS} for each in entries
        ]
    if budget:  # JSON has no references
        _checked(lambda: budget.take_entries(entries, SHAPE, "frames"))
    return _checked(lambda: _record(dump, entries, rank, host, source, taken_at))


def parse_json_record(data: bytes, rank: int, host: str = "", taken_at: float | None = None) -> RankRecord:
    """Parse the answer of a live rank's worker server (``fr_trace_json``), which holds no frames.

    ``taken_at``: time of the answer [default: now].

    Raises:
        DumpError: The answer is not a record.
    """
    if is_pickle(data):
        raise DumpError("the answer is not JSON")
    return parse_dump(data, rank, host=host, taken_at=time.time() if taken_at is None else taken_at)


def _checked(make: Callable[[], T]) -> T:
    try:
        return make()
    except DumpError:
        raise
    except Exception as error:
        cut = "truncated" in str(error)
        reason = _printable(str(error)) or type(error).__name__
        raise DumpError("the file is cut off" if cut else f"not a Flight Recorder dump ({reason[:200]})") from None


def _record(
    dump: _Dump, entries: list[dict[str, Any]], rank: int, host: str, source: str, taken_at: float | None
) -> RankRecord:
    """Build the record. Entries that differ only in sequence number and time are parsed once: there are few kinds."""
    shapes = list(map(ENCODE, map(itemgetter(*SHAPE), entries)))
    frames: list[list[Any]] = [each["frames"] for each in entries]
    kinds: dict[tuple[bytes, tuple[int, ...]], int] = {}
    which = [
        kinds.setdefault((shape, tuple(map(id, stack))), at)
        for at, (shape, stack) in enumerate(zip(shapes, frames, strict=True))
    ]
    groups: dict[tuple[str, str], int] = {}
    ids: dict[int, int] = {}
    calls: list[Call] = []
    places: dict[tuple[int, ...], tuple[str, str, str, str]] = {}
    call_of: dict[int, int] = {}
    state_of: dict[int, str] = {}
    for (_, stack), at in kinds.items():
        shape = _shape(shapes[at])
        if stack not in places:
            places[stack] = _place(tuple(map(_frame, frames[at][:MOST_FRAMES])))
        group = groups.setdefault(shape.group, len(groups))
        ids[shape.group_id] = group
        call_of[at] = len(calls)
        calls.append(_call(shapes[at], group, places[stack]))
        done = shape.retired or shape.state == "completed"
        state_of[at] = "d" if done else "s" if shape.state == "started" else "e"
    call_column = [call_of[at] for at in which]
    states = [state_of[at] for at in which]
    seq = [
        each["p2p_seq_id"] if calls[call].p2p else each["collective_seq_id"]
        for each, call in zip(entries, call_column, strict=True)
    ]
    if any(each.op.endswith("coalesced") for each in calls):
        _set_part_states(calls, call_column, seq, states)
    names = [_shape(shapes[at]).name for at in kinds.values()]
    backend = next((name.partition(":")[0] for name in names if ":" in name), "")
    return RankRecord(
        rank=rank,
        host=host,
        source=source,
        version=_printable(dump.version),
        backend=_printable(backend),
        library=_printable(dump.comm_lib_version or dump.nccl_version),
        taken_at=taken_at,
        groups=_groups(dump, groups, ids, rank, counts=backend != "gloo"),
        calls=calls,
        call=call_column,
        seq=_numbers(seq),
        created_ns=_numbers([each["time_created_ns"] for each in entries]),
        states="".join(states),
    )


def _numbers(column: list[Any]) -> list[int]:
    return msgspec.convert(column, list[Number])


@lru_cache(maxsize=10_000)
def _shape(encoded: bytes) -> _Shape:
    return DECODE(encoded)


@lru_cache(maxsize=10_000)
def _call(encoded: bytes, group: int, place: tuple[str, str, str, str]) -> Call:
    shape = _shape(encoded)
    name = _printable(shape.name)
    op = name.partition(":")[2] or name
    bare = PAIR.sub("", op)
    collective, where, function, via = place
    public = PUBLIC.get(bare, bare)
    return Call(
        group=group,
        op=op,
        collective=public if shape.p2p and bare != "coalesced" else collective or public,
        inputs=shape.inputs,
        outputs=shape.outputs,
        input_types=[_printable(kind) for kind in shape.input_types],
        output_types=[_printable(kind) for kind in shape.output_types],
        p2p=shape.p2p,
        where=where,
        function=function,
        via=via,
    )


@lru_cache(maxsize=10_000)
def _place(raw: tuple[tuple[str, str, int] | None, ...]) -> tuple[str, str, str, str]:
    """Return the collective as the user called it, ``path:line``, the function, and the library call in between.

    Cached because most ranks of a job share the same locations.
    """
    stack = [StackFrame(_printable(frame[0]), _printable(frame[1]), frame[2]) for frame in raw if frame]
    own_frames = user_frames(stack)
    collective, via = collective_of(stack)
    inner = own_frames[-1] if own_frames else None
    return collective or "", f"{inner.path}:{inner.line}" if inner else "", inner.function if inner else "", via


def _frame(raw: object) -> tuple[str, str, int] | None:
    if not isinstance(raw, dict):
        return None
    name, path, line = raw.get("name"), raw.get("filename"), raw.get("line")
    if isinstance(name, str) and isinstance(path, str) and isinstance(line, int):
        return name, path, min(max(line, 0), 2**31)
    return None


def _set_part_states(calls: list[Call], call: list[int], seq: list[int], states: list[str]) -> None:
    """Give the parts of a coalesced call the state of the whole call: the parts are never recorded as completed."""
    state_of_whole: dict[tuple[int, int], str] = {}
    for at in range(len(call) - 1, -1, -1):
        this = calls[call[at]]
        place = (this.group, seq[at])
        if this.op.endswith("coalesced"):
            state_of_whole[place] = states[at]
        elif place in state_of_whole:
            states[at] = state_of_whole[place]


def _groups(
    dump: _Dump, used: dict[tuple[str, str], int], ids: dict[int, int], rank: int, counts: bool
) -> list[ProcessGroup]:
    """Return the groups named by entries, in the order of their indices, then those only in the configuration.

    The status of a group is found by the rank's own number of the group; if no entry has it, by order, since both are
    numbered in order of creation. On gloo (``counts`` is False) the status counts other events than entries.
    """
    known = {name for name, _ in used}
    names = [*used, *((name, each.desc) for name, each in dump.pg_config.items() if name and name not in known)]
    status = {int(key): each for key, each in dump.pg_status.items() if re.fullmatch(r"\d{1,9}", key)}
    number_of = {names[group][0]: number for number, group in ids.items()}
    numbered = [name for name in dump.pg_config if re.fullmatch(r"\d{1,9}", name)]
    if len(numbered) == len(dump.pg_config) == len(status):
        number_of = dict(zip(sorted(numbered, key=int), sorted(status), strict=True)) | number_of
    found: list[ProcessGroup] = []
    for name, title in names:
        config = dump.pg_config.get(name)
        at = status.get(number_of.get(name, -1)) if counts else None
        found.append(
            ProcessGroup(
                name=_printable(name),
                title=_printable(title or (config.desc if config else "")),
                ranks=_members(config, rank),
                enqueued=at.last_enqueued_collective if at else None,
                completed=at.last_completed_collective if at else None,
            )
        )
    return found


def _members(config: _Config | None, rank: int) -> list[int]:
    """Return the members, or [] if the configuration is invalid: without the rank that wrote it, or with a rank larger
    than any job has."""
    if config is None:
        return []
    ranks = config.ranks if isinstance(config.ranks, list) else [int(n[:9]) for n in RANKS.findall(config.ranks)]
    return sorted(set(ranks)) if rank in ranks and min(ranks) >= 0 and max(ranks) < MOST_RANKS else []


def _printable(text: str) -> str:
    """Return text that is safe to show: printable characters only, and not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MOST_TEXT])
