"""Read stacks and Flight Recorder records from torch's worker server in a rank.

``ddpwizard run`` starts it in each rank. It answers over a unix socket while the main thread waits, and needs no
permission to trace the process. The format of its answers is that of torch 2.13; stacks are text of Python's
faulthandler.
"""

import asyncio
import re
from pathlib import Path

from ...jobs.types import Process
from ...system import run_directory
from ...system.waiting import wait_for
from ...text.numbers import parse_count
from ...training_script.frame import StackFrame
from ..types import RankRecord, ThreadStack

LIMIT_S = 3.0
ANSWER_LIMIT_BYTES = 256 * 1024 * 1024
STACKS, RECORD = "dump_traceback", "fr_trace_json"

THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def worker_socket(process: Process) -> Path | None:
    """Return the socket of this rank, or None if the process is not a rank started with ``ddpwizard run``."""
    record = run_directory.record_of(process.pid, process.environ.get(run_directory.FOLDER_VARIABLE, ""))
    socket = record.with_suffix(".sock") if record else None
    return socket if socket and socket.is_socket() else None


async def fetch_stacks(
    socket_path: Path, limit_s: float = LIMIT_S
) -> tuple[list[StackFrame], list[ThreadStack]] | None:
    """Return the main thread's frames, innermost first, and the other threads that run Python.

    Returns None without an answer in time: a process that is stopped, or whose native code holds the interpreter's
    lock, does not answer.
    """
    answer = await call_handler(socket_path, STACKS, limit_s)
    if answer is None:
        return None
    record = run_directory.read_record(socket_path.with_suffix(".json"))
    return parse_faulthandler(answer.decode(errors="replace"), record.main_thread if record else "")


async def fetch_record(socket_path: Path, rank: int, limit_s: float = LIMIT_S) -> RankRecord | None:
    """Return the Flight Recorder record of the rank, or None without a readable answer in time."""
    answer = await call_handler(socket_path, RECORD, limit_s)
    if answer is None:
        return None
    from ..flight_recorder.parse import parse_json_record

    try:
        return parse_json_record(answer, rank=rank)
    except ValueError:
        return None


async def call_handler(socket_path: Path, handler: str, limit_s: float = LIMIT_S) -> bytes | None:
    """Return the answer of a handler of the server, or None without an answer in time."""
    try:
        return await wait_for(limit_s, _answer(socket_path, handler))
    except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None


async def _answer(socket_path: Path, handler: str) -> bytes | None:
    reader, writer = await asyncio.open_unix_connection(str(socket_path))
    try:
        writer.write(f"POST /handler/{handler} HTTP/1.1\r\nHost: rank\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        lengths = [line.partition(":")[2] for line in head[1:] if line.lower().startswith("content-length:")]
        size_bytes = int(lengths[0]) if lengths else -1
        if head[0].split()[1:2] != ["200"] or not 0 <= size_bytes <= ANSWER_LIMIT_BYTES:
            return None
        return await reader.readexactly(size_bytes)
    finally:
        writer.close()


def parse_faulthandler(text: str, main_thread: str = "") -> tuple[list[StackFrame], list[ThreadStack]]:
    """Parse the text of faulthandler: the frames of the main thread, and the other threads.

    Without its name the main thread is the last one (Python lists the newest thread first).
    """
    threads: list[tuple[str, str, list[StackFrame]]] = []
    for line in text.splitlines():
        if head := THREAD.fullmatch(line):
            threads.append((head[1], head[2] or f"thread 0x{head[1].lstrip('0')}", []))
        elif threads and (frame := FRAME.fullmatch(line)):
            number = parse_count(frame[2]) or 0
            threads[-1][2].append(StackFrame(_unescaped(frame[3]), _unescaped(frame[1]), number))
    wanted = int(main_thread, 16) if main_thread else None
    main = next((thread for thread in threads if int(thread[0], 16) == wanted), threads[-1] if threads else None)
    others = [ThreadStack(name, frames) for each in threads if each is not main for _, name, frames in [each] if frames]
    return (main[2] if main else []), others


def _unescaped(text: str) -> str:
    """Decode a name (faulthandler writes ASCII); invalid code points stay escaped."""

    def character(found: re.Match[str]) -> str:
        code = int(found[1] or found[2] or found[3], 16)
        return found[0] if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF else chr(code)

    return ESCAPED.sub(character, text)
