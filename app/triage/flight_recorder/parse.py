"""A dump as plain containers made a ``RankRecord``: columns of small numbers, and each distinct call once."""

import re
import time
from collections.abc import Callable
from functools import lru_cache
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import msgspec

from ...training_script.frame import StackFrame
from ..rank_activity.collectives_in_stack import collective_of
from ..rank_activity.frames import user_frames
from ..types import Call, ProcessGroup, RankRecord
from .safe_unpickle import DumpError, is_pickle, unpickle, unpickle_safely

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Key of an entry -> what stands for it where an older version lacks it, or it is None.
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
MOST_RANKS = 1_000_000
MOST_TEXT = 4000
RANKS = re.compile(r"\d+")
PAIR = re.compile(r" \d+(?:->|<-)\d+$")
# The backend's word for it -> torch.distributed's.
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
    """What equal calls have in common, in the order of ``SHAPE``."""

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
    data: bytes, rank: int, *, host: str = "", source: str = "", taken_at: float | None = None, limited: bool = False
) -> RankRecord:
    """One dump, of either form. ``limited``: this process may use only so much memory, so that need not be checked.

    Raises:
        Unreadable: The text says why.
    """
    if is_pickle(data):
        content = unpickle(data if limited else unpickle_safely(data))
        if not isinstance(content, dict):
            raise DumpError("not a Flight Recorder dump")
        entries = content.pop("entries", [])
        dump = _shaped(lambda: msgspec.convert(content, _Dump, strict=False))
    else:
        dump = _shaped(lambda: msgspec.json.decode(data, type=_Dump, strict=False))
        entries = dump.entries
    number = tuple(int(part) for part in re.findall(r"\d{1,9}", dump.version)[:2])
    if number < OLDEST or number[0] > NEWEST_MAJOR:
        raise DumpError(f"dump version {_plain(dump.version)[:20] or 'missing'}: 2.0 to 2.10 can be read")
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise DumpError("not a Flight Recorder dump (its entries are no list of entries)")
    if len(entries) > MOST_ENTRIES:
        raise DumpError(f"refused: it claims more than {MOST_ENTRIES} entries")
    return _shaped(lambda: _record(dump, entries, rank, host, source, taken_at))


def parse_json_record(data: bytes, rank: int, host: str = "", taken_at: float | None = None) -> RankRecord:
    """What a live rank's worker server answers (``fr_trace_json``); it holds no frames. ``taken_at``: when, now if not
    given.

    Raises:
        Unreadable: It is no such answer.
    """
    if is_pickle(data):
        raise DumpError("the answer is no JSON")
    return parse_dump(data, rank, host=host, taken_at=time.time() if taken_at is None else taken_at)


def _shaped(make: Callable[[], T]) -> T:
    try:
        return make()
    except DumpError:
        raise
    except Exception as error:
        cut = "truncated" in str(error)
        said = _plain(str(error)) or type(error).__name__
        raise DumpError("the file is cut off" if cut else f"not a Flight Recorder dump ({said[:200]})") from None


def _record(
    dump: _Dump, entries: list[dict[str, Any]], rank: int, host: str, source: str, taken_at: float | None
) -> RankRecord:
    """Entries that are equal but for their number and time are looked at once: there are few kinds of them."""
    if any(each.get(key) is None for each in (*entries[:1], *entries[-1:]) for key in DEFAULTS):
        entries = [
            {key: each[key] if each.get(key) is not None else DEFAULTS[key] for key in DEFAULTS} for each in entries
        ]
    shapes = list(map(ENCODE, map(itemgetter(*SHAPE), entries)))
    frames: list[list[Any]] = [each["frames"] for each in entries]
    kinds: dict[tuple[bytes, tuple[int, ...]], int] = {}
    which = [
        kinds.setdefault((shape, tuple(map(id, stack))), at)
        for at, (shape, stack) in enumerate(zip(shapes, frames, strict=True))
    ]
    groups: dict[tuple[str, str], int] = {}
    ids: dict[int, int] = {}
    made: list[Call] = []
    places: dict[tuple[int, ...], tuple[str, str, str, str]] = {}
    call_of: dict[int, int] = {}
    state_of: dict[int, str] = {}
    for (_, stack), at in kinds.items():
        shape = _shape(shapes[at])
        if stack not in places:
            places[stack] = _place(tuple(map(_frame, frames[at][:MOST_FRAMES])))
        group = groups.setdefault(shape.group, len(groups))
        ids[shape.group_id] = group
        call_of[at] = len(made)
        made.append(_call(shapes[at], group, places[stack]))
        done = shape.retired or shape.state == "completed"
        state_of[at] = "d" if done else "s" if shape.state == "started" else "e"
    call_column = [call_of[at] for at in which]
    states = [state_of[at] for at in which]
    seq = [
        each["p2p_seq_id"] if made[call].p2p else each["collective_seq_id"]
        for each, call in zip(entries, call_column, strict=True)
    ]
    if any(each.op.endswith("coalesced") for each in made):
        _end_as_one(made, call_column, seq, states)
    names = [_shape(shapes[at]).name for at in kinds.values()]
    backend = next((name.partition(":")[0] for name in names if ":" in name), "")
    return RankRecord(
        rank=rank,
        host=host,
        source=source,
        version=_plain(dump.version),
        backend=_plain(backend),
        library=_plain(dump.comm_lib_version or dump.nccl_version),
        taken_at=taken_at,
        groups=_groups(dump, groups, ids, rank, counts=backend != "gloo"),
        calls=made,
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
    name = _plain(shape.name)
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
        input_types=[_plain(kind) for kind in shape.input_types],
        output_types=[_plain(kind) for kind in shape.output_types],
        p2p=shape.p2p,
        where=where,
        function=function,
        via=via,
    )


@lru_cache(maxsize=10_000)
def _place(raw: tuple[tuple[str, str, int] | None, ...]) -> tuple[str, str, str, str]:
    """The collective as the user called it, ``path:line``, the function, and what came between. Most ranks of a job
    come through the same places."""
    stack = [StackFrame(_plain(frame[0]), _plain(frame[1]), frame[2]) for frame in raw if frame]
    mine = user_frames(stack)
    collective, via = collective_of(stack)
    inner = mine[-1] if mine else None
    return collective or "", f"{inner.path}:{inner.line}" if inner else "", inner.function if inner else "", via


def _frame(raw: object) -> tuple[str, str, int] | None:
    if not isinstance(raw, dict):
        return None
    name, path, line = raw.get("name"), raw.get("filename"), raw.get("line")
    if isinstance(name, str) and isinstance(path, str) and isinstance(line, int):
        return name, path, min(max(line, 0), 2**31)
    return None


def _end_as_one(calls: list[Call], call: list[int], seq: list[int], states: list[str]) -> None:
    """The parts of a coalesced call are never told done by themselves: they are when the whole is."""
    whole: dict[tuple[int, int], str] = {}
    for at in range(len(call) - 1, -1, -1):
        this = calls[call[at]]
        place = (this.group, seq[at])
        if this.op.endswith("coalesced"):
            whole[place] = states[at]
        elif place in whole:
            states[at] = whole[place]


def _groups(
    dump: _Dump, used: dict[tuple[str, str], int], ids: dict[int, int], rank: int, counts: bool
) -> list[ProcessGroup]:
    """The groups the entries name, in the order of their indices, then those that only the configuration knows.

    The status of a group is found by the rank's own number of it; where no entry tells that, by order: both are
    numbered as the groups were made. On gloo (``counts`` is False) the status counts other things than entries do.
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
                name=_plain(name),
                title=_plain(title or (config.desc if config else "")),
                ranks=_members(config, rank),
                enqueued=at.last_enqueued_collective if at else None,
                completed=at.last_completed_collective if at else None,
            )
        )
    return found


def _members(config: _Config | None, rank: int) -> list[int]:
    """Empty where the configuration cannot be sound: it leaves out the very rank that wrote it, or names one that no
    job is large enough for."""
    if config is None:
        return []
    ranks = config.ranks if isinstance(config.ranks, list) else [int(n[:9]) for n in RANKS.findall(config.ranks)]
    return sorted(set(ranks)) if rank in ranks and min(ranks) >= 0 and max(ranks) < MOST_RANKS else []


def _plain(text: str) -> str:
    """Text that can be shown and written: no control characters, no half of a character, not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MOST_TEXT])
