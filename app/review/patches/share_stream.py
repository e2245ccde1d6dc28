"""The patch that gives each rank every n-th sample of an iterable dataset."""

import ast

from ...training_script.nodes import nodes_below
from ...training_script.rank_names import meaning
from ...training_script.syntax import FUNCTIONS, nodes_of_body
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module, import_line

FIX = "share-the-stream"
BY_HAND = "give each rank every n-th sample in `__iter__`, by its rank and the number of ranks"


def share_stream(script: Script, yielding: ast.expr) -> Patch:
    """Return the patch for the ``yield`` of a dataset's ``__iter__``: what it goes over is cut for each rank."""
    source = script.source
    method, samples = script.names.enclosing_function(yielding), _samples(script, yielding)
    imported = import_line(source, "from itertools import islice")
    part = _part(script, method) if method else ""
    if method is None or samples is None or imported is None or not part:
        return no_patch(FIX, BY_HAND)
    if len([node for node in nodes_of_body(method) if isinstance(node, ast.Yield | ast.YieldFrom)]) != 1:
        return no_patch(FIX, BY_HAND)
    name = next((each for each in ("itertools.islice", "islice") if _is_islice(script, each)), "")
    edit = source.replace(samples, f"{name or 'islice'}({source.code(samples)}, {part})")
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="each rank reads a part; where the number of ranks does not divide the samples, some get one more",
        edits=[edit] if name else [imported, edit],
    )


def _samples(script: Script, yielding: ast.expr) -> ast.expr | None:
    """Return what ``__iter__`` goes over: it yields from it, or in the one loop over it."""
    stmt = script.source.statement_of(yielding)
    parent = script.source.parents[stmt]
    if isinstance(yielding, ast.YieldFrom) and isinstance(parent, FUNCTIONS):
        return yielding.value
    alone = isinstance(parent, ast.For) and isinstance(script.source.parents[parent], FUNCTIONS)
    return parent.iter if isinstance(parent, ast.For) and alone and isinstance(parent.target, ast.Name) else None


def _part(script: Script, method: ast.AST) -> str:
    """Return the bounds of the rank's part: by what the object keeps, or by the process group."""
    cls = script.source.parents[method]
    stored = [node for node in nodes_below(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    found = {meaning(node.attr, called=False): node.attr for node in stored}
    if {("rank", "global"), ("size", "global")} <= found.keys():
        return f"self.{found['rank', 'global']}, None, self.{found['size', 'global']}"
    module = distributed_module(script, method)
    if not module:
        return ""
    ready = f"if {module}.is_initialized() else"
    return f"{module}.get_rank() {ready} 0, None, {module}.get_world_size() {ready} 1"


def _is_islice(script: Script, name: str) -> bool:
    """Return whether the script imports ``itertools``, or its ``islice``."""
    return name.partition(".")[0] in script.names.module.bindings
