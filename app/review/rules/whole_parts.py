"""DW459: streams that every worker of a loader reads, as only the rank decides about their part."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.nodes import walk
from ...training_script.syntax import last_name
from ...training_script.torch_classes import LOADER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

OF_WORKER = re.compile(r"worker")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the parts of an iterable dataset that a rank takes, if each of its several workers takes all of it."""
    for reach, fact in run.of(*LOADER_CLASSES):
        data, count = argument(fact, 0, "dataset"), argument(fact, 5, "num_workers")
        cls = data.obj.cls if data and isinstance(data.obj, Instance) else None
        if cls is None or count is None or not reach.several or "worker_init_fn" in fact.named:
            continue
        workers = number(count.key, PAIR[0])
        known = cls.module.path == script.source.path and workers is not None and workers > 1
        if not known or OF_WORKER.search(_text(script, cls)):
            continue
        part = _part(script, cls)
        if part is not None:
            yield violation_at_node(
                part,
                f"each of the {workers} workers of a loader reads the whole part of its rank: every sample "
                f"comes {workers} times",
                0.85,
                related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="the loader")],
            )


def _text(script: Script, cls: ClassRef) -> str:
    return "\n".join(script.source.code(stmt) for stmt in cls.node.body)


def _part(script: Script, cls: ClassRef) -> ast.expr | None:
    """Return what takes the part of a rank in the iterator of an iterable dataset."""
    method = cls.methods.get("__iter__")
    if method is None or not any(base.endswith("IterableDataset") for base in cls.library_bases()):
        return None
    for node in walk(method):
        match node:
            case ast.Subscript(slice=ast.Slice() as bounds):
                parts = [bounds.lower, bounds.step]
            case ast.Call(args=[_, *bounds]) if last_name(node.func) == "islice":
                parts = bounds
            case ast.Call(args=parts) if last_name(node.func) == "range":
                pass
            case ast.Compare(left=ast.BinOp(op=ast.Mod()), comparators=[rank]):
                parts = [rank]
            case _:
                continue
        keys = [script.evaluated.value(each) for each in parts if each is not None]
        if any(key is not None and key.differs_by & BY_RANK for key in keys):
            return node
    return None
