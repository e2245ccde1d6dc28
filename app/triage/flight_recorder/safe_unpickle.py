"""Decode a dump safely: JSON, or a pickle restricted to plain data."""

import io
import pickle
import re

NAMES_CODE = set(b"cRibo\x81\x82\x83\x84\x92\x93PQ\x97\x98")  # opcodes that import, call or build an object
PLAIN = re.compile(rb"(?s:[}\](ueast012\x85-\x89N\x8f\x90\x91\x94]+|[hKq].|M..|[Jj].{4}|r..[\x00-\x3f]\x00|G.{8})*")
# Opcodes followed by a length field -> its width in bytes; that many bytes of data follow.
AFTER_LENGTH = {0x58: 4, 0x54: 4, 0x42: 4, 0x8B: 4, 0x8C: 1, 0x55: 1, 0x43: 1, 0x8A: 1, 0x8D: 8, 0x8E: 8, 0x96: 8}
STOP, FRAME, LONGS = 0x2E, 0x95, (0x8A, 0x8B)
NUMBER_BYTES = 32


class DumpError(ValueError):
    """A dump that cannot be read. The text is the reason, to be shown after the file name and a colon."""


class _Plain(pickle.Unpickler):
    """Accepts containers and scalars only."""

    def find_class(self, module: str, name: str, /) -> object:
        raise DumpError(f"refused: it names {module[:80]}.{name[:80]}, which a dump never does")


def unpickle(data: bytes) -> object:
    """Return the content of a pickle without executing anything in it.

    A hostile pickle may claim any amount of memory: call this in a process with a memory limit, or after
    ``check_pickle``.

    Raises:
        DumpError: The data is not a pickle, is truncated, or names code.
    """
    try:
        return _Plain(io.BufferedReader(io.BytesIO(data), 1 << 20)).load()
    except DumpError:
        raise
    except MemoryError:
        raise DumpError("refused: it claims more memory than a dump needs") from None
    except (EOFError, pickle.UnpicklingError) as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error)
        raise DumpError("the file is cut off" if cut else f"not a pickle of plain data ({error})") from None
    except Exception as error:
        raise DumpError(f"not a pickle of plain data ({type(error).__name__})") from None


def check_pickle(data: bytes) -> bytes:
    """Return the pickle unchanged if it holds only plain data and claims no more memory than it has bytes.

    Raises:
        DumpError: It holds anything else.
    """
    at, end = 2, len(data)
    while at < end:
        at = match.end() if (match := PLAIN.match(data, at)) else at
        code = data[at] if at < end else None
        if code == STOP:
            return data
        if code == FRAME:
            at += 9
        elif code is not None and (width := AFTER_LENGTH.get(code)):
            length = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if code in LONGS and length > NUMBER_BYTES:
                raise DumpError("refused: a number in it is larger than a dump's can be")
            at += 1 + width + length
        elif code in NAMES_CODE:
            raise DumpError("refused: it would run code when loaded, which a dump never does")
        elif code is not None:
            raise DumpError(f"not a pickle of plain data (byte {at})")
    raise DumpError("the file is cut off")


def is_pickle(data: bytes) -> bool:
    """Return whether the bytes begin like a pickle; False if like a JSON object.

    Raises:
        DumpError: They begin like neither.
    """
    if not data:
        raise DumpError("the file is empty")
    if data[:1] == b"\x80":
        return True
    if data[:64].lstrip()[:1] != b"{":
        raise DumpError("neither a pickle nor JSON: not a Flight Recorder dump")
    return False
