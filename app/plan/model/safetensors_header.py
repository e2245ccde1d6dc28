"""Names, types and shapes of the tensors in a safetensors checkpoint, read from headers without the weights.

Format (safetensors 0.8, README and ``safetensors/src/tensor.rs``): eight bytes with the length of the header, little
endian, at most 100 MB; the header, one JSON object; then the data.
"""

import math
import os
from pathlib import Path

import msgspec

from ...errors import UserError
from ...system.files import open_regular_file, read_regular_file

INDEX = "model.safetensors.index.json"
HEADER_LIMIT_BYTES = 100_000_000
INDEX_LIMIT_BYTES = 50_000_000
MOST_FILES, MOST_TENSORS, MOST_DIMENSIONS = 2_000, 1_000_000, 12
NEXT_STEP = "name a .safetensors file, a model.safetensors.index.json, or the directory of one"
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16}
BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4}
BITS |= {"F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2FNUZ": 8, "F8_E4M3FNUZ": 8}


class TensorInfo(msgspec.Struct, frozen=True):
    """One entry of a header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]

    @property
    def count(self) -> int:
        return math.prod(self.shape)


class ShardIndex(msgspec.Struct, frozen=True):
    """An index that maps tensors to files."""

    weight_map: dict[str, str]


def read_tensors(path: Path) -> dict[str, TensorInfo]:
    """Read all tensors of a checkpoint: a file, an index, or a directory with one of them.

    Raises:
        UserError: There is none, a file is missing or damaged, or a header is invalid.
    """
    files = _files(path)
    if len(files) > MOST_FILES:
        raise UserError(f"{path} has {len(files)} files, too many", NEXT_STEP)
    found: dict[str, TensorInfo] = {}
    for file in files:
        found |= read_header(file)
        if len(found) > MOST_TENSORS:
            raise UserError(f"{path} has more than {MOST_TENSORS:,} tensors, too many", NEXT_STEP)
    if not found:
        raise UserError(f"{path} contains no tensors", NEXT_STEP)
    return found


def _files(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return _of_index(path) if path.name.endswith(".index.json") else [path]
        if (path / INDEX).exists():
            return _of_index(path / INDEX)
        there = sorted(path.glob("*.safetensors"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", NEXT_STEP) from error
    if not there:
        raise UserError(f"{path} has no .safetensors file", NEXT_STEP)
    named = [file for file in there if file.name.startswith("model")]
    return named or there  # excludes the same weights in another layout (consolidated.safetensors)


def _of_index(path: Path) -> list[Path]:
    """Return the files that an index names, all of them in its directory."""
    content = read_regular_file(path, INDEX_LIMIT_BYTES, NEXT_STEP)
    try:
        names = sorted(set(msgspec.json.decode(content, type=ShardIndex).weight_map.values()))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not an index of a checkpoint: {error}", NEXT_STEP) from error
    if outside := next((name for name in names if name in ("", ".", "..") or "/" in name or "\0" in name), None):
        raise UserError(f"{path} names {outside[:80]!r}, which is not in its directory", NEXT_STEP)
    missing = [name for name in names if not (path.parent / name).exists()]
    if missing:
        raise UserError(f"{len(missing)} of {len(names)} files are missing: {missing[0][:80]}", "complete the download")
    return [path.parent / name for name in names]


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Read the tensors of one file.

    Raises:
        UserError: It cannot be read, or is no safetensors file.
    """
    size, content = _read_header(path)
    try:
        raw = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        found = {name: msgspec.json.decode(entry, type=TensorInfo) for name, entry in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not a safetensors header: {error}", NEXT_STEP) from error
    for name, tensor in found.items():
        if why := _wrong(tensor):
            raise UserError(f"{path}: tensor {name[:80]!r} {why}", "get the file again")
    end = max((tensor.data_offsets[1] for tensor in found.values()), default=0)
    if 8 + len(content) + end > size:
        raise UserError(f"{path} ends early: it has {size:,} of {8 + len(content) + end:,} bytes", "get the file again")
    return found


def _read_header(path: Path) -> tuple[int, bytes]:
    """Return the size of a file, and its header."""
    with open_regular_file(path, NEXT_STEP) as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(8)
        length = int.from_bytes(head, "little")
        if head.startswith(b"version "):
            raise UserError(f"{path} is a Git LFS pointer, not the weights", "git lfs pull")
        if len(head) < 8 or not 2 <= length <= min(HEADER_LIMIT_BYTES, size - 8):
            raise UserError(f"{path} is not a safetensors file: its header would have {length:,} bytes", NEXT_STEP)
        return size, file.read(length)


def _wrong(tensor: TensorInfo) -> str:
    """Describe what is wrong with an entry, or return ""."""
    if tensor.dtype not in BITS:
        return f"is of type {tensor.dtype[:20]!r}, which is not known"
    if len(tensor.shape) > MOST_DIMENSIONS or any(not 0 <= size < 2**48 for size in tensor.shape):
        return f"has the shape {str(tensor.shape)[:60]}"
    begin, end = tensor.data_offsets
    if not 0 <= begin <= end < 2**62 or (end - begin) * 8 != tensor.count * BITS[tensor.dtype]:
        return f"of the shape {str(tensor.shape)[:60]} has {end - begin:,} bytes"
    return ""
