"""The patches by which each rank samples its own data, takes its own part, and gets the buffers of a model."""

import ast

from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument
from ..rule_context import Patch, Script, no_patch
from .call_arguments import rank_code
from .torch_names import distributed_module, is_bound

SAMPLED, SHARE, STATE = "sampler-of-loader", "part-of-each-rank", "state-of-all-buffers"
BY_HAND = "make the sampler for the dataset of the loader"


def sampler_of_loader(script: Script, sampler: ast.Call, loader: ast.Call) -> Patch:
    """Return the patch that makes a sampler for the dataset of the only loader that gets it."""
    given, data = call_argument(sampler, "dataset", 0), call_argument(loader, "dataset", 0)
    made = script.source.statement_of(sampler)
    if not isinstance(data, ast.Name) or given is None or not is_bound(script, data.id, made):
        return no_patch(SAMPLED, BY_HAND)
    if not _is_for_one(script, made, loader) or _is_bound_between(script, data.id, made, loader):
        return no_patch(SAMPLED, BY_HAND)
    edits = [script.source.replace(given, data.id)]
    return Patch(id=SAMPLED, safety="unsafe", why_unsafe="an epoch has another number of batches", edits=edits)


def _is_for_one(script: Script, made: ast.stmt, loader: ast.Call) -> bool:
    """Return whether only one loader of a function gets the sampler that a statement makes."""
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name):
        return False
    function = script.names.enclosing_function(made)
    if script.names.enclosing_function(loader) is not function:
        return False
    name = made.targets[0].id
    nodes = [node for node in nodes_below(function or script.source.tree) if isinstance(node, ast.Name)]
    uses = [node for node in nodes if node.id == name and isinstance(node.ctx, ast.Load)]
    others = [node for node in uses if not isinstance(script.source.parents.get(node), ast.Attribute)]
    return len(others) == 1 and others[0] is call_argument(loader, "sampler", 3)


def _is_bound_between(script: Script, name: str, made: ast.stmt, loader: ast.Call) -> bool:
    """Return whether a name gets another value between two places, or in a function that is called there."""
    nodes = [node for node in nodes_below(script.source.tree) if isinstance(node, ast.Name) and node.id == name]
    bound = [node for node in nodes if not isinstance(node.ctx, ast.Load)]
    return any(made.lineno <= node.lineno <= loader.lineno for node in bound) or (
        script.names.enclosing_function(made) is None
        and any(isinstance(script.names.enclosing_function(node), FUNCTIONS) for node in bound)
    )


def part_of_each_rank(script: Script, part: ast.Subscript) -> Patch:
    """Return the patch that takes the part of the rank, as long as the first part that all ranks take."""
    module, source = distributed_module(script, part), script.source
    size = part.slice.upper if isinstance(part.slice, ast.Slice) else None
    if not module or size is None or not isinstance(size, ast.Name | ast.Attribute | ast.BinOp):
        return no_patch(SHARE, "data[rank * share : (rank + 1) * share]")
    rank, code = _rank_at(script, part) or rank_code(module), source.one_line(size)
    share = f"({code})" if isinstance(size, ast.BinOp) else code
    edits = [source.replace(part.slice, f"{rank} * {share} : ({rank} + 1) * {share}")]
    reason = "the ranks train on other data than before, each on a part of its own"
    return Patch(id=SHARE, safety="unsafe", why_unsafe=reason, edits=edits)


def _rank_at(script: Script, node: ast.expr) -> str:
    """Return a name that surely holds the rank at a place, empty if there is none."""
    stmt, function = script.source.statement_of(node), script.names.enclosing_function(node)
    for each in nodes_below(function or script.source.tree):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and is_bound(script, each.id, stmt):
            held = script.evaluated.value(each)
            if held is not None and held.op == "rank" and held.args[0] == "global" and held.args[1]:
                return each.id
    return ""


def state_of_all_buffers(script: Script, parameters: ast.Call) -> Patch:
    """Return the patch that sends the buffers of a model with its parameters."""
    why, loop = "send all of model.state_dict().values()", script.source.parents.get(parameters)
    direct = isinstance(loop, ast.For) and loop.iter is parameters and isinstance(loop.target, ast.Name)
    if not direct or parameters.args or parameters.keywords or not isinstance(parameters.func, ast.Attribute):
        return no_patch(STATE, why)
    model = script.source.one_line(parameters.func.value)
    edits = [script.source.replace(parameters, f"{model}.state_dict().values()")]
    reason = "a state that the model puts together itself may hold copies"
    return Patch(id=STATE, safety="unsafe", why_unsafe=reason, edits=edits)
