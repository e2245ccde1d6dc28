"""Decode a dump safely: JSON, or a pickle restricted to plain data."""

import io
import pickle


class DumpError(ValueError):
    """A dump that cannot be read. The text is the reason, to be shown after the file name and a colon."""


class _Plain(pickle.Unpickler):
    """Accepts containers and scalars only."""

    def find_class(self, module: str, name: str, /) -> object:
        raise DumpError("refused: it would run code when loaded, which a dump never does")


def unpickle(data: bytes) -> object:
    """Return the content of a pickle without executing anything in it.

    A hostile pickle may claim any amount of memory: call this in a process with a memory limit. What it returns may
    hold shared values, whose copies would take more: see ``unfolded_size``.

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
