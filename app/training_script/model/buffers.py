"""Buffers of models: DDP sends them in each forward pass, and without any that pass does not communicate."""

import re
from collections.abc import Mapping

from .keys import Key, parts
from .values import ClassRef, FunctionRef, Library

MODULES = "torch.nn."
WITH_BUFFERS = re.compile(
    r"\w*BatchNorm(?:\dd)?|(?:Lazy)?InstanceNorm\dd|spectral_norm|register_buffer|Buffer|FakeQuantize"
    r"|convert_sync(?:_)?batchnorm\w*"
)
# Collections of models that normalise by batches, or keep the places of tokens in buffers.
MODELS = ("torchvision.models.", "timm.", "transformers.", "segmentation_models_pytorch.", "efficientnet_pytorch.")
WITHOUT = ("torch.", "numpy.", "math.", "einops.", "typing.", "logging.", "copy.", "collections.", "functools.")
MOST_CLASSES = 60


def has_buffers(model: Key, classes: Mapping[Key, ClassRef]) -> bool | None:
    """Return whether a model has buffers, by what it is made of; None if that is not known."""
    if cls := classes.get(model):
        return _registers(cls)
    for part in parts(model):
        name = str(part.args[0]) if part.op in ("call", "library") and part.args else ""
        if WITH_BUFFERS.fullmatch(name.rpartition(".")[2]) or name.startswith(MODELS):
            return True
        if part in classes and _registers(classes[part]):
            return True
    return None


def _registers(cls: ClassRef) -> bool | None:
    """Return whether the class of a model, or any class that it may make, registers a buffer; None if not known."""
    pending: list[ClassRef | FunctionRef] = [cls]
    seen: set[int] = set()
    known = True
    while pending:
        each = pending.pop()
        if id(each.node) in seen:
            continue
        seen.add(id(each.node))
        if len(seen) > MOST_CLASSES:
            return None
        if isinstance(each, ClassRef):
            bases = [base.obj for base in each.bases]
            known &= all(isinstance(base, ClassRef) or _is_plain(base) for base in bases)
            pending += [base for base in bases if isinstance(base, ClassRef)]
        for name, root in each.module.parsed.called_in(each.node):
            value = each.module.env.get(root)
            made = value.obj if value else None  # as far as the module of the caller knows it
            if WITH_BUFFERS.fullmatch(name):
                return True
            if isinstance(made, Library) and not _is_plain(made):
                if f"{made.name}.".startswith(MODELS):
                    return True
                known = False
            if isinstance(made, (ClassRef, FunctionRef)):
                pending.append(made)
    return False if known else None


def _is_plain(obj: object) -> bool:
    """Return whether something of a library is no module with buffers of its own."""
    return isinstance(obj, Library) and f"{obj.name}.".startswith(WITHOUT)
