"""DW251: running means and variances that each rank keeps of what it sees, by which inputs are normalised."""

import ast
import re
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

# What makes the statistics of all ranks one, under any name.
COMBINES = re.compile(r"reduce|gather|sync|broadcast|mpi", re.IGNORECASE)
REDUCED = re.compile(r"\.(?:mean|sum)\(")
MODULES = ("Module", "BatchNorm", "Layer")  # whose buffers DDP sends


def check_running(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the running statistics of each rank that the inputs of a model in DDP are normalised with."""
    if not any(reach.several for reach, _ in run.of(*DDP_CLASSES)) or not script.mentions(REDUCED):
        return
    below = nodes_below(script.source.tree)
    shared = set(_shared(script))
    for cls in below:
        if not isinstance(cls, ast.ClassDef) or any(dotted_name(base).endswith(MODULES) for base in cls.bases):
            continue
        if COMBINES.search(ast.unparse(cls)):
            continue
        kept = {name: node for method in cls.body if isinstance(method, FUNCTIONS) for name, node in _kept(method)}
        used = next((node for name in kept if (node := _normalises(cls, name)) is not None), None)
        made = any(isinstance(node, ast.Call) and last_name(node.func) == cls.name for node in below) or any(
            script.evaluated.value(node.value) is not None for node in kept.values()
        )
        if kept and used is not None and made and shared.isdisjoint(kept):
            first = min(kept.values(), key=lambda node: node.lineno)
            yield violation_at_node(
                first,
                "each rank keeps this running mean of what it has seen itself: the copies of one model get "
                "inputs that each rank normalises differently",
                0.7,
                related=[
                    RelatedPlace(path=script.source.path, line=at, message=message)
                    for at, message in (
                        (_measured_at(cls), "of the samples of this rank"),
                        (used.lineno, "normalised here"),
                    )
                    if at
                ],
            )


def _kept(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.Assign | ast.AugAssign]]:
    """Yield the attributes that a method changes by the mean of what it is given, with the statement that does."""
    given = {each.arg for each in method.args.args[1:]}
    means: set[str] = set()
    for node in sorted(ast.walk(method), key=lambda each: getattr(each, "lineno", 0)):
        if not isinstance(node, ast.Assign | ast.AugAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {
            dotted_name(each)
            for target in targets
            for each in (target.elts if isinstance(target, ast.Tuple) else [target])
        }
        read = {dotted_name(each) for each in ast.walk(node.value) if isinstance(each, ast.Name | ast.Attribute)}
        of_mean = any(_is_mean(each, given) for each in ast.walk(node.value)) or bool(means & read)
        if not of_mean:
            continue
        means |= {name for name in names if name and "." not in name}
        for name in names:
            again = isinstance(node, ast.AugAssign) or name in read
            if name.startswith("self.") and again:
                yield name.removeprefix("self."), node


def _measured_at(cls: ast.ClassDef) -> int:
    """Return the line that takes the mean or the sum of what a method is given, 0 if there is none."""
    for method in cls.body:
        given = {each.arg for each in method.args.args[1:]} if isinstance(method, FUNCTIONS) else set[str]()
        for node in ast.walk(method) if given else ():
            if isinstance(node, ast.expr) and _is_mean(node, given):
                return node.lineno
    return 0


def _is_mean(node: ast.AST, given: set[str]) -> bool:
    """Return whether a call is the mean or the sum, over the samples, of what a method is given."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="mean" | "sum"), args=args):
            data = args[0] if args and dotted_name(owner) in ("torch", "np", "numpy") else owner
            return isinstance(data, ast.Name) and data.id in given
        case _:
            return False


def _normalises(cls: ast.ClassDef, mean: str) -> ast.BinOp | None:
    """Return where a method takes the mean off, and divides by something else that the object keeps."""
    for node in ast.walk(cls):
        match node:
            case ast.BinOp(left=ast.BinOp(op=ast.Sub(), right=taken), op=ast.Div(), right=by) as quotient:
                kept = any(dotted_name(each).startswith("self.") for each in ast.walk(by) if isinstance(each, ast.expr))
                if dotted_name(taken) == f"self.{mean}" and kept:
                    return quotient
            case _:
                pass
    return None


def _shared(script: Script) -> Iterator[str]:
    """Yield the attributes that functions with a collective read or write."""
    for function in nodes_below(script.source.tree):
        if not isinstance(function, FUNCTIONS):
            continue
        inside = list(ast.walk(function))
        if any(isinstance(each, ast.Call) and collective_name(each, script.names) for each in inside):
            called = {id(each.func) for each in inside if isinstance(each, ast.Call)}
            yield from (each.attr for each in inside if isinstance(each, ast.Attribute) and id(each) not in called)
