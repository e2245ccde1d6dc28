"""Read logs from files, directories, or standard input, without blocking and whatever their bytes.

A text is read in chunks, so that a log of any size fits: gzip is unpacked, terminal sequences are removed.
"""

import codecs
import os
import re
import select
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath

import msgspec

from ..errors import InspectionError, UserError
from ..system.files import files_below
from ..text.terminal import split_at_sequence, strip_sequences_bytes
from .path_hints import PathHint, path_hints

STDIN = "<stdin>"
LOG_ENDINGS = ("", ".log", ".out", ".err", ".txt", ".stdout", ".stderr", ".jsonl")
LOG_WORD = re.compile(r"\.log\b|stdout|stderr|slurm-|\.[oe]\d+$|^(?:log|error)\b.*\.json$")
ROTATED = re.compile(r"\.\d+$|\.old$|[-.]\d{4}-?\d\d-?\d\d.*$")
NO_LOG = re.compile(r"\.|requirements|license|licence|readme|makefile|dockerfile|notice|authors|changelog")
BINARY_PROBE_BYTES = 8192
BINARY_SHARE = 0.05  # of control bytes; torch prints a NUL after some messages of its data loader workers
LATIN_SHARE = 0.7  # of the characters of a UTF-16 log without a byte order mark
LOST_BYTES = 64  # NUL bytes in a row: a hole, left in a log by a lost write, as on NFS
LOST_WRITE = re.compile(rb"\0{%d,}" % LOST_BYTES)
OWN_NAME = b"ddpwizard: "
OWN_LINE = re.compile(rb"^(?:\d{1,6}: ?)?ddpwizard: [^\n]*", re.MULTILINE)  # Slurm puts the number of the task first
CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\a\x1b"))
GZIP = b"\x1f\x8b"
SHOWN_PATHS = 3
SILENT_LIMIT_S = 10.0
CHUNK_BYTES = 8 << 20
STREAM_LIMIT_BYTES = 16 << 30  # a pipe or a gzip file may be endless


class LogInput(msgspec.Struct, frozen=True):
    """The source of a text: a file, standard input, or the text itself (``content``).

    ``size_bytes`` is 0 if it is not known in advance; compressed texts grow while they are read.
    """

    origin: str
    path: str = ""
    content: bytes | None = None
    size_bytes: int = 0
    place: PathHint = PathHint()


def find_sources(paths: Sequence[str]) -> list[LogInput]:
    """Return the sources behind ``paths``, not read yet; ``-`` is standard input, a directory means the files in it.

    Raises:
        UserError: A path is missing, or a directory has no text file.
    """
    if "" in paths:
        raise UserError("an empty path was given", "pass a log, a directory of logs, or - for standard input")
    files = [file for given in paths for file in ([Path(STDIN)] if given == "-" else _files(Path(given)))]
    names = [STDIN if str(file) == STDIN else str(file.absolute()) for file in files]
    return [
        LogInput(name) if name == STDIN else LogInput(name, path=str(file), size_bytes=_size(file), place=place)
        for name, file, place in zip(names, files, path_hints(names), strict=True)
    ]


def source_of_text(text: str, origin: str) -> LogInput:
    """Return the source of a text in memory (pasted, typed)."""
    content = text.encode("utf-8", errors="replace")
    return LogInput(origin, content=content, size_bytes=len(content))


def read_chunks(source: LogInput) -> Iterator[bytes]:
    """Yield the bytes of a source in chunks, unpacked, without terminal sequences and without what ``run`` printed.

    An earlier verdict in the log of a job is no evidence. Its lines are left empty, so that line numbers stay.

    Raises:
        UserError: The source is missing, unreadable or binary.
        InspectionError: A pipe stayed open without data for ``SILENT_LIMIT_S`` seconds.
    """
    if source.content is not None:
        raw: Iterable[bytes] = [source.content]
    elif source.origin == STDIN:
        raw = iter(lambda: sys.stdin.buffer.read(CHUNK_BYTES), b"")
    else:
        raw = _file(Path(source.path))
    total, kept, first = 0, b"", True
    for chunk in _as_utf8(_unpacked(raw, source.origin)):
        if first and _is_binary(chunk) and source.content is None:
            what = "binary data" if source.origin == STDIN else "a binary file"
            raise UserError(f"{source.origin}: looks like {what}, not a log", "pass the text that the job printed")
        first = False
        total += len(chunk)
        chunk, kept = split_at_sequence(kept + _fill_holes(chunk, b"\n"))
        yield _without_own_lines(strip_sequences_bytes(chunk))
        if total >= max(STREAM_LIMIT_BYTES, source.size_bytes):
            break
    if kept:
        yield _without_own_lines(strip_sequences_bytes(kept))


def _without_own_lines(chunk: bytes) -> bytes:
    """Return the chunk with the lines that ``run`` printed left empty; to look for its name is much faster."""
    return OWN_LINE.sub(b"", chunk) if OWN_NAME in chunk else chunk


def empty_input_error(paths: Sequence[str]) -> UserError:
    """Build the error for texts that are all empty."""
    more = f" and {len(paths) - SHOWN_PATHS} more files" if len(paths) > SHOWN_PATHS else ""
    return UserError(
        f"{', '.join(paths[:SHOWN_PATHS])}{more}: nothing in it", "pass a log, an error text or a description"
    )


def clean_text(content: bytes) -> str:
    """Decode text without terminal sequences; each state of a progress bar becomes a line."""
    text = strip_sequences_bytes(content).decode("utf-8", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unpacked(raw: Iterable[bytes], origin: str) -> Iterator[bytes]:
    """Yield the chunks, unpacked if the first one begins like gzip."""
    unpack = None
    for number, chunk in enumerate(raw):
        if number == 0 and chunk.startswith(GZIP):
            unpack = zlib.decompressobj(wbits=31)
        if unpack is None:
            yield chunk
            continue
        while chunk:
            try:
                out = unpack.decompress(chunk, CHUNK_BYTES)
            except zlib.error as error:
                if number == 0:
                    raise UserError(f"{origin}: damaged gzip file: {error}", "unpack it first") from error
                return
            if out:
                yield out
            chunk = unpack.unconsumed_tail
            if unpack.eof:
                chunk, unpack = unpack.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)
    if unpack is not None and (rest := unpack.flush()):
        yield rest


def _files(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return [path]
        found = [file for file in files_below(path) if is_log_name(file.name) and not _is_binary(_head(file))]
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror}", "check the path and its permissions") from error
    if not found:
        raise UserError(
            f"{path}: no log in the directory", "pass the directory to which the job writes its logs, or files"
        )
    return found


def is_log_name(name: str) -> bool:
    """Return whether a file of a directory is taken for a log: by its ending or by a word in its name."""
    name = name.lower().removesuffix(".gz")
    plain = ROTATED.sub("", name)
    return not NO_LOG.match(name) and (PurePath(plain).suffix in LOG_ENDINGS or bool(LOG_WORD.search(name)))


def _as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks, those of a UTF-16 text (as PowerShell writes it) in UTF-8."""
    decoder: codecs.IncrementalDecoder | None = None
    for number, chunk in enumerate(chunks):
        if number == 0 and (encoding := _utf16(chunk)):
            decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        yield decoder.decode(chunk).encode("utf-8", errors="replace") if decoder else chunk


def _utf16(content: bytes) -> str:
    """Return the encoding of a UTF-16 text, by its byte order mark or its zero bytes; "" of any other."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = content[:BINARY_PROBE_BYTES]
    for encoding, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if zeros.count(0) > LATIN_SHARE * len(zeros) and others.count(0) < BINARY_SHARE * len(others):
            return encoding
    return ""


def _is_binary(content: bytes) -> bool:
    if encoding := _utf16(content):
        content = content[: 2 * BINARY_PROBE_BYTES].decode(encoding, errors="replace").encode()
    head = _fill_holes(content, b"")[:BINARY_PROBE_BYTES]
    return len(head) - len(head.translate(None, CONTROL_BYTES)) > BINARY_SHARE * len(head)


def _fill_holes(content: bytes, filler: bytes) -> bytes:
    """Replace each hole. Plain bytes are found many times faster than the pattern, and most logs have no hole."""
    return LOST_WRITE.sub(filler, content) if bytes(LOST_BYTES) in content else content


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        head = file.read(BINARY_PROBE_BYTES)
    if not head.startswith(GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, BINARY_PROBE_BYTES)
    except zlib.error:
        return b"\0"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _file(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file; a pipe is read while data arrives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "check the path and its permissions") from error
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(fd)):
            raise UserError(f"{path}: a device, not a log", "pass the text that the job printed")
        if stat.S_ISREG(mode):
            yield from iter(lambda: os.read(fd, CHUNK_BYTES), b"")
        else:
            yield from _until_silent(fd, path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "pass a text file") from error
    finally:
        os.close(fd)


def _until_silent(fd: int, path: Path) -> Iterator[bytes]:
    """Yield the data of a pipe in chunks until it is closed."""
    gathered = bytearray()
    until = time.monotonic() + SILENT_LIMIT_S
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise InspectionError(
                f"{path}: no data from the pipe for {SILENT_LIMIT_S:g} s",
                "pass a file, or pipe into: ddpwizard diagnose -",
            )
        read = os.read(fd, 1 << 20)
        if not read:
            break
        gathered += read
        until = time.monotonic() + SILENT_LIMIT_S
        if len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)
