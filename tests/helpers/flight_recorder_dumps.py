"""Flight Recorder dumps as torch writes them, made of plain data: what its C++ pickler and its JSON writer produce."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

VERSION = "2.10"
FRAMES = (
    ("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3245),
    ("wrapper", "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83),
    ("step", "/home/me/train.py", 24),
    ("<module>", "/home/me/train.py", 60),
)
BEGAN_NS = 1_760_000_000_000_000_000

Frames = Sequence[tuple[str, str, int]]


def entry(
    number: int,
    *,
    op: str = "nccl:all_reduce",
    seq: int | None = None,
    sizes: list[list[int]] | None = None,
    out: list[list[int]] | None = None,
    dtype: str = "Float",
    group: tuple[str, str] = ("0", "default_pg"),
    group_id: int = 0,
    done: bool = True,
    state: str = "",
    created_ns: int | None = None,
    frames: Frames = FRAMES,
    p2p: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """One entry of version 2.10. ``done`` is written as the backend of ``op`` writes it."""
    sizes = [[1024]] if sizes is None else sizes
    seq = number + 1 if seq is None else seq
    created = BEGAN_NS + number * 1_000_000 if created_ns is None else created_ns
    gloo = op.startswith("gloo:")
    return {
        "frames": [{"name": name, "filename": path, "line": line} for name, path, line in frames],
        "record_id": number,
        "pg_id": group_id,
        "process_group": group,
        "thread_name": "python",
        "thread_id": "140149583059840",
        "collective_seq_id": 0 if p2p else seq,
        "p2p_seq_id": seq if p2p else 0,
        "op_id": seq,
        "profiling_name": op,
        "time_created_ns": created,
        "input_sizes": sizes,
        "input_dtypes": [dtype] * len(sizes),
        "output_sizes": sizes if out is None else out,
        "output_dtypes": [dtype] * len(sizes if out is None else out),
        "state": state or ("completed" if done and not gloo else "scheduled"),
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": created + 5000 if done and not gloo else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": p2p,
        **more,
    }


def dump(
    entries: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[int]] | None = None, **more: Any
) -> dict[str, Any]:
    """A complete dump; ``groups`` (name to ranks) becomes ``pg_config``, or None for gloo, which writes none."""
    config = {name: {"name": name, "desc": name, "ranks": str(list(ranks))} for name, ranks in (groups or {}).items()}
    status: dict[str, dict[str, int]] = {}
    for each in entries:
        at = status.setdefault(str(each["pg_id"]), dict.fromkeys((f"last_{what}_collective" for what in STATES), -1))
        at["last_enqueued_collective"] = each["op_id"]
        if each["retired"]:
            at["last_completed_collective"] = each["op_id"]
    return {
        "version": VERSION,
        "pg_config": config or {"": {"name": "", "desc": "", "ranks": "[]"}},
        "comm_lib_version": "2.27.3" if config else "",
        "pg_status": status,
        "entries": list(entries),
        **more,
    }


STATES = ("enqueued", "started", "completed")


def write(folder: Path, dumps: Mapping[int, Mapping[str, Any]], prefix: str = "trace_", form: str = "pickle") -> Path:
    """One file per rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, content in dumps.items():
        (folder / f"{prefix}{rank}").write_bytes(pickled(content) if form == "pickle" else in_json(content))
    return folder


def in_json(content: Mapping[str, Any]) -> bytes:
    """The JSON form: no frames, numbers of ``pg_status`` as text, 0 for a time that is not known."""
    entries = [
        {
            key: 0 if value is None else list(value) if isinstance(value, tuple) else value
            for key, value in each.items()
            if key != "frames"
        }
        for each in content["entries"]
    ]
    status = {name: {key: str(value) for key, value in at.items()} for name, at in content["pg_status"].items()}
    return json.dumps({**content, "entries": entries, "pg_status": status, "nccl_comm_state": {}}).encode()


def pickled(content: Any) -> bytes:
    """The bytes torch's pickler writes: protocol 2, strings and shared frames remembered, lists and entries not."""
    writer = _Pickler()
    writer.out += b"\x80\x02"
    writer.put(content)
    return bytes(writer.out) + b"."


class _Pickler:
    def __init__(self) -> None:
        self.out = bytearray()
        self.known: dict[Any, int] = {}

    def put(self, value: Any) -> None:
        if value is None or value is True or value is False:
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, str):
            self._remembered(value, lambda: self._text(value.encode()))
        elif isinstance(value, int):
            self._number(value)
        elif isinstance(value, Mapping) and {*value} == {"name", "filename", "line"}:
            self._remembered(tuple(value.values()), lambda: self._mapping(value))
        elif isinstance(value, Mapping):
            self._mapping(value)
        elif isinstance(value, tuple):
            for each in value:
                self.put(each)
            self.out += b"\x86"
        else:
            self._list(value)

    def _remembered(self, key: Any, write: Any) -> None:
        if (at := self.known.get(key)) is not None:
            self.out += struct.pack("<cB", b"h", at) if at < 256 else struct.pack("<cI", b"j", at)
            return
        write()
        at = self.known[key] = len(self.known)
        self.out += struct.pack("<cB", b"q", at) if at < 256 else struct.pack("<cI", b"r", at)

    def _text(self, text: bytes) -> None:
        self.out += struct.pack("<cI", b"X", len(text)) + text

    def _number(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += struct.pack("<cB", b"K", value)
        elif 0 <= value < 65536:
            self.out += struct.pack("<cH", b"M", value)
        elif -(2**31) <= value < 2**31:
            self.out += struct.pack("<ci", b"J", value)
        else:
            self.out += b"\x8a\x08" + struct.pack("<q", value)

    def _mapping(self, value: Mapping[str, Any]) -> None:
        self.out += b"}("
        for key, each in value.items():
            self.put(key)
            self.put(each)
        self.out += b"u"

    def _list(self, value: Iterable[Any]) -> None:
        self.out += b"]("
        for each in value:
            self.put(each)
        self.out += b"e"
