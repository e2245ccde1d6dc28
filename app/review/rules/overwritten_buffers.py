"""DW264: buffers with samples of each rank, which DDP replaces by those of rank 0 in each forward pass."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.reach import Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

# What makes the samples, or the buffer, those of all ranks, under any name.
SHARED = re.compile(r"gather|reduce|broadcast|sync|all_to_all", re.IGNORECASE)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the places of buffers that a method fills with what it is given, in a model in DDP."""
    for reach, fact in run.of(*DDP_CLASSES):
        sent, model = fact.named.get("broadcast_buffers"), argument(fact, 0, "module")
        stays = sent is not None and sent.key is not run.keys.true
        if stays or "**" in fact.named or model is None or not isinstance(model.obj, Instance) or not reach.by_all:
            continue
        for cls in model.obj.cls.ancestry():
            filled = _filled(cls) if cls.module.path == script.source.path else None
            if filled is not None:
                yield violation_at_node(
                    filled,
                    f"each rank puts its own samples into the buffer `{_name(filled.targets[0])}`, and DDP "
                    f"(line {fact.site.line}) replaces it by that of rank 0 in each forward pass: the others are lost",
                    0.8,
                    related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="the model in DDP")],
                )
                return


def _filled(cls: ClassRef) -> ast.Assign | None:
    """Return the assignment of samples to places of a buffer, in a class that exchanges nothing between ranks."""
    buffers = {
        f"self.{node.args[0].value}"
        for node in ast.walk(cls.node)
        if isinstance(node, ast.Call) and last_name(node.func) == "register_buffer" and node.args
        if isinstance(node.args[0], ast.Constant)
    }
    methods = [each for name, each in cls.methods.items() if name != "__init__" and isinstance(each, FUNCTIONS)]
    called = (node.func for each in methods for node in ast.walk(each) if isinstance(node, ast.Call))
    if not buffers or any(SHARED.search(last_name(each)) for each in called):
        return None
    for method in methods:
        given = {each.arg for each in method.args.args[1:]}
        for node in ast.walk(method):
            match node:
                case ast.Assign(targets=[ast.Subscript(value=held, slice=place)], value=value):
                    chosen = any(isinstance(each, ast.Name) for each in ast.walk(place))
                    if chosen and dotted_name(held) in buffers and given & _tensors(value):
                        return node
                case _:
                    pass
    return None


def _name(target: ast.expr) -> str:
    return dotted_name(target.value).removeprefix("self.") if isinstance(target, ast.Subscript) else ""


def _tensors(value: ast.expr) -> set[str]:
    """Return the names of what is stored, other than by its size."""
    sized = {id(each) for node in ast.walk(value) if _asks_for_size(node) for each in ast.walk(node)}
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and id(node) not in sized}


def _asks_for_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("shape", "device", "dtype")
    return isinstance(node, ast.Call) and last_name(node.func) in ("len", "size", "numel")
