"""A model's shape from the tensors of its checkpoint: exact parameters, the rest as far as names and shapes show it.

Names as in transformers, Llama's own code, GPT-NeoX, timm and torchtitan. What tensors do not show (heads, experts per
token) comes from a ``config.json`` next to the checkpoint, if any.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...errors import UserError
from ..tables import read_table
from ..types import Model
from . import hf_config, safetensors_header
from .safetensors_header import TensorInfo

PATTERNS = {part: re.compile(pattern) for part, pattern in read_table("tensor_names.jsonc", dict[str, str]).items()}
# Assumed experts per token if nothing shows them: for few experts (Mixtral, Phi-3.5-MoE; DBRX has 4), and for many
# (Qwen3, OLMoE, DeepSeek V3; Qwen1.5-MoE and gpt-oss have 4, DeepSeek V2 6).
FEW, OF_FEW, OF_MANY = 16, 2, 8
PACKED_IN_INT32, PACKED_IN_BYTE = 8, 2  # 4-bit weights per element: GPTQ and AWQ; bitsandbytes and MXFP4


def read_checkpoint(path: Path) -> tuple[Model, list[str]]:
    """Read the model of a checkpoint. Return it with the assumptions made.

    Raises:
        UserError: It cannot be read, or contains no model.
    """
    tensors = safetensors_header.read_tensors(path)
    directory = path if path.is_dir() else path.parent
    if sum(bool(PATTERNS["adapter"].search(name)) for name in tensors) * 2 > len(tensors):
        raise UserError(f"{path} contains adapters, not the model they belong to", "name the model, and --lora R")
    name = directory.absolute().name if path.is_dir() or path.name.startswith("model") else path.stem
    config = directory / "config.json"
    if not config.exists():
        return model_from_tensors(tensors, name)
    try:
        shape, notes = hf_config.read_config(config)
    except UserError as error:
        model, notes = model_from_tensors(tensors, name)
        return model, [f"config.json next to it cannot be used: {error.message}", *notes]
    # The parameters of the header, with the shape of the config.
    _, embedded = _largest(tensors, "embedding")
    of_this = embedded is not None and embedded.shape == [shape.vocab, shape.hidden]
    counted, more = _params(tensors, shape.tied and of_this)
    if abs(counted - shape.params) > 0.01 * counted:
        more.append(f"params: {counted:,} in the checkpoint, {shape.params:,.0f} by config.json; the first is used")
    active = shape.active_params * counted / shape.params if shape.active_params else None
    model = msgspec.structs.replace(shape, params=float(counted), active_params=active, name=shape.name or name)
    return model, [*more, *notes]


def model_from_tensors(tensors: Mapping[str, TensorInfo], name: str = "") -> tuple[Model, list[str]]:
    """Return the model of these tensors and the assumptions made."""
    embedding, embedded = _largest(tensors, "embedding")
    head, _ = _largest(tensors, "head")
    counted, notes = _params(tensors, False)
    blocks, layers = _blocks(tensors)
    inside = {name: tensor for name, tensor in tensors.items() if name.startswith(blocks)} if blocks else {}
    sides = (min(t.shape) for t in inside.values() if len(t.shape) == 2 and min(t.shape) > 1)
    hidden = embedded.shape[1] if embedded else min(sides, default=None)  # without one, that of the narrowest matrix
    query, key = (_rows(_largest(inside, pattern)[1], hidden) for pattern in ("query", "key"))
    _, norm = _largest(inside, "query_norm", dimensions=1)
    head_dim = norm.shape[0] if norm else _likely_head(hidden, query, key)
    if query and head_dim and not norm:
        notes.append(f"heads: {query // head_dim} of {head_dim}, assumed, as a checkpoint does not contain them")
    experts, seen_as = _experts(inside, hidden)
    used = min(experts, OF_FEW if experts <= FEW else OF_MANY)
    if experts:
        notes.append(f"experts: {experts} in a layer, {seen_as}; {used} per token, assumed")
    of_experts = {name: tensor for name, tensor in inside.items() if ".experts." in name}
    inner = _inner_of_experts(of_experts, hidden, experts) if experts else _inner(inside, hidden)
    pair = bool(blocks) and len(blocks) > 1
    shared = _rows(_largest(inside, "shared")[1], hidden) or 0
    model = Model(
        name=name,
        params=float(counted),
        layers=layers or None,
        hidden=hidden,
        heads=query // head_dim if query and head_dim and query % head_dim == 0 else None,
        kv_heads=key // head_dim if query and key and head_dim and key % head_dim == 0 else None,
        head_dim=head_dim if query and hidden and head_dim and query != hidden else None,
        intermediate=inner * max(used, 1) + shared if inner else None,
        vocab=embedded.shape[0] if embedded else None,
        tied=bool(embedding) and not head,
        mlp=("swiglu" if any(PATTERNS["gate"].search(name) for name in inside) else "gelu") if inside else None,
        kind="encoder-decoder" if pair else None,
        experts=experts or None,
        experts_per_token=used or None,
        active_params=counted - _params(of_experts, False)[0] * (1 - used / experts) if experts else None,
    )
    if missing := [field for field in ("layers", "hidden", "vocab", "intermediate") if getattr(model, field) is None]:
        where = "not found in the names of the tensors; give them, or put a config.json next to it"
        notes.append(f"{', '.join(missing)}: {where}")
    return model, notes


def _experts(inside: Mapping[str, TensorInfo], hidden: int | None) -> tuple[int, str]:
    """Return the experts of a layer and what shows them: their indices, their common tensor, or the rows of their
    router.
    """
    if numbers := {found[1] for name in inside if (found := PATTERNS["expert"].search(name))}:
        return len(numbers), "as their tensors are numbered"
    if together := _together(inside)[1]:
        return together.shape[0], "as many as their common tensor holds"
    if any(".experts." in name for name in inside):
        return _rows(_largest(inside, "router")[1], hidden) or 0, "one for each row of the router"
    return 0, ""


def _together(inside: Mapping[str, TensorInfo]) -> tuple[str, TensorInfo | None]:
    """Return the tensor that contains a matrix of all experts; 4-bit weights have an additional dimension."""
    name, tensor = _largest(inside, "together", dimensions=3)
    return (name, tensor) if tensor else _largest(inside, "together", dimensions=4)


def _inner_of_experts(of_experts: Mapping[str, TensorInfo], hidden: int | None, experts: int) -> int | None:
    """Return the width of the feed-forward part of one expert."""
    name, tensor = _together(of_experts)
    if tensor is None:
        inner = _inner(of_experts, hidden)
        return inner // experts if inner and not any(PATTERNS["expert"].search(each) for each in of_experts) else inner
    side = tensor.shape[2] if len(tensor.shape) == 3 and tensor.shape[1] == hidden else tensor.shape[1]
    return side // 2 if PATTERNS["fused_gate"].search(name) else side


def _params(tensors: Mapping[str, TensorInfo], tied: bool) -> tuple[int, list[str]]:
    """Return the parameters of a model and notes on what was left out. ``tied``: head and embedding are one."""
    counted, packed = 0, 0
    for name, tensor in tensors.items():
        if PATTERNS["no_weight"].search(name) or (name.endswith(".attn.bias") and len(tensor.shape) == 4):
            continue
        times = 1
        if name.endswith(".qweight") and tensor.dtype == "I32":
            times = PACKED_IN_INT32
        elif tensor.dtype == "U8" and (f"{name}.absmax" in tensors or name.endswith("_blocks")):
            times = PACKED_IN_BYTE
        packed += times > 1
        counted += tensor.count * times
    notes = [f"{packed} of the tensors are packed in 4 bit, counted unpacked"] if packed else []
    embedding, embedded = _largest(tensors, "embedding")
    head, of_head = _largest(tensors, "head")
    if tied and embedding and head and embedded and of_head and embedded.shape == of_head.shape:
        counted -= of_head.count
        notes.append(f"{head} is in the checkpoint, but tied to {embedding}: counted once")
    return counted, notes


def _largest(tensors: Mapping[str, TensorInfo], part: str, dimensions: int = 2) -> tuple[str, TensorInfo | None]:
    """Return the name and entry of the largest tensor that matches."""
    fitting = [(name, t) for name, t in tensors.items() if PATTERNS[part].search(name) and len(t.shape) == dimensions]
    return max(fitting, key=lambda found: found[1].count, default=("", None))


def _blocks(tensors: Mapping[str, TensorInfo]) -> tuple[tuple[str, ...], int]:
    """Return the name prefixes of the repeated blocks and their number.

    They are the blocks with most weights; an encoder-decoder has two prefixes.
    """
    sizes: dict[str, int] = {}
    numbers: dict[str, set[str]] = {}
    for name, tensor in tensors.items():
        if found := PATTERNS["numbered"].match(name):
            sizes[found[1]] = sizes.get(found[1], 0) + tensor.count
            numbers.setdefault(found[1], set()).add(found[2])
    if not sizes:
        return (), 0
    most = max(sizes, key=lambda prefix: sizes[prefix])
    other = most.replace("decoder.", "encoder.") if "decoder." in most else most.replace("encoder.", "decoder.")
    prefixes = (most, other) if other != most and other in sizes else (most,)
    return prefixes, sum(len(numbers[prefix]) for prefix in prefixes)


def _rows(tensor: TensorInfo | None, hidden: int | None) -> int | None:
    """Return the side of a matrix that is not the hidden size (the hidden size if both are)."""
    if tensor is None or not hidden or hidden not in tensor.shape:
        return None
    first, second = tensor.shape
    return first if second == hidden else second


def _likely_head(hidden: int | None, query: int | None, key: int | None) -> int | None:
    """Return the assumed size of a head: that of large models, or of small ones."""
    if not hidden or not query:
        return None
    sizes = (128, 64) if hidden >= 2048 else (64, 32)
    return next((size for size in sizes if query % size == 0 and (key or query) % size == 0), None)


def _inner(inside: Mapping[str, TensorInfo], hidden: int | None) -> int | None:
    name, tensor = _largest(inside, "up")
    if tensor is None or not hidden:
        return None
    width = _rows(tensor, hidden)
    return width // 2 if width and PATTERNS["fused_gate"].search(name) else width
