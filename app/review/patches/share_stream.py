"""The patch that gives each rank one sample of every n of an iterable dataset, and all ranks as many."""

import ast
from typing import NamedTuple

from ...training_script.nodes import nodes_of_kinds
from ...training_script.rank_names import meaning
from ...training_script.syntax import FUNCTIONS, nodes_of_body
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module, free_name

FIX = "share-the-stream"
BY_HAND = "give each rank every n-th sample in `__iter__`, by its rank and the number of ranks"
RANKS = ("rank", "own_rank", "rank_of_process")
SIZES = ("world_size", "count_ranks", "size_of_world")
ROUNDS = ("rounds", "rounds_of_ranks")
ROUND = ("one_each", "one_for_each_rank")


class _Part(NamedTuple):
    """The rank and the number of ranks, and the statements that find them."""

    rank: str
    size: str
    found: list[str]


def share_stream(script: Script, yielding: ast.expr) -> Patch:
    """Return the patch for the ``yield`` of a dataset's ``__iter__``: what it goes over is cut for each rank."""
    source = script.source
    method, samples = script.names.enclosing_function(yielding), _samples(script, yielding)
    part = _part(script, method) if method else None
    if method is None or samples is None or part is None:
        return no_patch(FIX, BY_HAND)
    if len([node for node in nodes_of_body(method) if isinstance(node, ast.Yield | ast.YieldFrom)]) != 1:
        return no_patch(FIX, BY_HAND)
    stmt, rounds, one_each = source.statement_of(samples), free_name(script, ROUNDS), free_name(script, ROUND)
    indent = source.indent(stmt.lineno)
    if source.line(stmt.lineno)[: stmt.col_offset] != indent or not (rounds and one_each):
        return no_patch(FIX, BY_HAND)
    lines = [*part.found, f"{rounds} = zip(*[iter({source.code(samples)})] * {part.size})"]
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="each rank reads a part; the last samples are left out if they are fewer than the ranks",
        edits=[
            source.insert_line(stmt.lineno, f"{source.newline}{indent}".join(lines), indent),
            source.replace(samples, f"({one_each}[{part.rank}] for {one_each} in {rounds})"),
        ],
    )


def _samples(script: Script, yielding: ast.expr) -> ast.expr | None:
    """Return what ``__iter__`` goes over: it yields from it, or in the one loop over it."""
    stmt = script.source.statement_of(yielding)
    parent = script.source.parents[stmt]
    if isinstance(yielding, ast.YieldFrom) and isinstance(parent, FUNCTIONS):
        return yielding.value
    alone = isinstance(parent, ast.For) and isinstance(script.source.parents[parent], FUNCTIONS)
    return parent.iter if isinstance(parent, ast.For) and alone and isinstance(parent.target, ast.Name) else None


def _part(script: Script, method: ast.AST) -> _Part | None:
    """Return the rank and the number of ranks: as the object keeps them, or of the process group."""
    cls = script.source.parents[method]
    stored = [node for node in nodes_of_kinds(cls, ast.Attribute) if isinstance(node.ctx, ast.Store)]
    kept = {meaning(node.attr, called=False): node.attr for node in stored}
    if {("rank", "global"), ("size", "global")} <= kept.keys():
        return _Part(f"self.{kept['rank', 'global']}", f"self.{kept['size', 'global']}", [])
    module, rank, size = distributed_module(script, method), free_name(script, RANKS), free_name(script, SIZES)
    if not (module and rank and size):
        return None
    ready = f"if {module}.is_initialized() else"
    found = [f"{rank} = {module}.get_rank() {ready} 0", f"{size} = {module}.get_world_size() {ready} 1"]
    return _Part(rank, size, found)
