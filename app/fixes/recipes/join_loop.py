"""``join-loop``: ``with model.join():`` around the loop over the batches."""

import ast

from ...training_script.collectives import GROUP_PLACE
from ...training_script.edits import Edit
from ...training_script.syntax import called_function_name, dotted_name
from ..facts import CaseFacts
from ..types import FilePatch
from ..user_code import UserFile
from .types import RecipeResult

WRAPPER = "DistributedDataParallel"


def join_loop(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the loop in which a DDP model is trained."""
    for file in facts.files:
        for loop in _training_loops(file):
            model = _model_called_in(loop, _wrapped(facts))
            if not model:
                continue
            place = file.place(loop, "the loop")
            if others := _collectives_in(loop):
                names = ", ".join(sorted(others))
                return RecipeResult(
                    text=f"The loop also calls {names}, which a rank that has finished no longer calls: move it out of "
                    f"the loop first, then put the loop into `with {model}.join():`.",
                    places=[place],
                )
            return RecipeResult(patches=[_patch(file, loop, model)], places=[place])
    return RecipeResult()


def _wrapped(facts: CaseFacts) -> set[str]:
    """Return the names that hold a DDP model in any of the user's files."""
    names: set[str] = set()
    for file, call in facts.calls([WRAPPER]):
        parent = file.source.parents.get(call)
        if isinstance(parent, ast.Assign):
            names |= {dotted_name(target) for target in parent.targets}
    return names - {""}


def _training_loops(file: UserFile) -> list[ast.For]:
    """Return the innermost ``for`` loops that call ``backward``."""
    loops = [node for node in ast.walk(file.source.tree) if isinstance(node, ast.For) and _calls_backward(node)]
    return [
        loop
        for loop in loops
        if not any(inner is not loop and isinstance(inner, ast.For) and inner in loops for inner in ast.walk(loop))
    ]


def _calls_backward(loop: ast.For) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(loop))


def _model_called_in(loop: ast.For, wrapped: set[str]) -> str:
    called = (dotted_name(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call))
    return next((name for name in called if name in wrapped), "")


def _collectives_in(loop: ast.For) -> set[str]:
    called = {called_function_name(node) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    return called & set(GROUP_PLACE)


def _patch(file: UserFile, loop: ast.For, model: str) -> FilePatch:
    source = file.source
    indent = source.indent(loop.lineno)
    step = source.indent(loop.body[0].lineno).removeprefix(indent) or source.one_level(indent)
    last = loop.end_lineno or loop.lineno
    lines = [n for n in range(loop.lineno, last + 1) if source.line(n).strip() and n not in source.inside_strings]
    edits = [source.insert_line(loop.lineno, f"with {model}.join():", indent)]
    edits += [Edit(source.starts[n - 1], source.starts[n - 1], step) for n in lines]
    return file.patched(edits)
