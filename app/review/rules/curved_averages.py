"""DW444: roots, exponentials and deviations of one rank's data that are averaged, and largest values that are added."""

import ast
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, LOCAL, parts
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.values import reduces_by
from ...training_script.nodes import node_at
from ...training_script.syntax import last_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .unequal_parts import PREFIX, divides_by_ranks, sent

CURVED = {"exp", "sqrt", "rsqrt", "std", "var", "median", "quantile"}  # the mean of these is not that of all data
SQUARES = {"pow", "pow_", "square", "square_"}
JOINS = {"stack", "cat", "concat"}
LARGEST = {"max", "amax", "min", "amin"}
AS_TENSOR = {"tensor", "as_tensor", "FloatTensor"}
KEEPING = {"detach", "clone", "to", "float", "double", "cpu", "cuda", "item", "reshape", "view", "unsqueeze", "squeeze"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions of what was computed of one rank's data by a function that is no sum."""
    for reach, fact, _ in sent(run, "all_reduce", "reduce"):
        node = fact.node.args[0] if fact.node.args else None
        op = argument(fact, 2 if fact.name == f"{PREFIX}reduce" else 1, "op")
        summed = reduces_by(op, "SUM", "AVG")
        if node is None or not summed or not script.is_here(reach):
            continue
        made = list(_made(script, reach, node))
        divided = divides_by_ranks(script, fact)
        curved = next((each for each in made if divided and _is_curved(script, each)), None)
        largest = next((each for each in made if not divided and _is_largest(each)), None)
        found = curved or largest
        if found is not None and _is_of_own_data(script, found):
            name = last_name(found.func)
            why = (
                f"the ranks average `{name}` of their parts, which is not that of all data: reduce what goes into it"
                if curved
                else f"`{name}` of each rank is added up: pass op=dist.ReduceOp.{name.removeprefix('a').upper()}"
            )
            yield from violation_at(
                script,
                reach,
                why,
                0.75,
                related=[RelatedPlace(path=script.source.path, line=found.lineno, message="computed here")],
            )


def _is_curved(script: Script, call: ast.Call) -> bool:
    """Return whether the mean of what a call gives is not that of all data.

    To the mean of variances, that of the squared differences of the means is to be added.
    """
    name = last_name(call.func)
    return name in CURVED and not (name == "var" and _squares_difference(script, call))


def _squares_difference(script: Script, call: ast.Call) -> bool:
    around: ast.AST = call
    while (outer := script.source.parents.get(around)) is not None and not isinstance(outer, ast.Module):
        around = outer
    for node in ast.walk(around):
        match node:
            case ast.BinOp(left=squared, op=ast.Pow()):
                pass
            case ast.Call(func=ast.Attribute(value=squared, attr=name)) if name in SQUARES:
                pass
            case _:
                continue
        if any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) for each in ast.walk(squared)):
            return True
    return False


def _given(script: Script, reach: Reach, node: ast.expr) -> list[ast.AST]:
    """Return what a tensor comes from; what the call of the function passes for it, if it is a parameter of that."""
    found = [node, *origins_at(script, node)]
    function = script.names.enclosing_function(node) if reach.calls else None
    if not isinstance(function, ast.FunctionDef):
        return found
    names = [each.arg for each in function.args.args]
    call = node_at(script.source.tree, reach.calls[-1].line, reach.calls[-1].column, ast.Call)
    read = {each.id for made in found for each in ast.walk(made) if isinstance(each, ast.Name)}
    places = [names.index(name) for name in read if name in names]
    if call is not None and reach.calls[-1].path == script.source.path and len(places) == 1:
        method = bool(names) and names[0] in ("self", "cls")
        place = places[0] - int(method)
        passed = call.args[place] if 0 <= place < len(call.args) else None
        found += [passed, *origins_at(script, passed)] if passed is not None else []
    return found


def _made(script: Script, reach: Reach, node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls that a tensor finally comes from, conversions left out."""
    pending = _given(script, reach, node)
    seen: set[ast.AST] = set()
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match each:
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in KEEPING:
                pending += [inner, *origins_at(script, inner)]
            case ast.Call(args=[ast.List(elts=[inner]) | inner, *_]) if last_name(each.func) in AS_TENSOR:
                pending += [inner, *origins_at(script, inner)]
            case ast.Call(args=[ast.List(elts=joined) | ast.Tuple(elts=joined), *_]) if last_name(each.func) in JOINS:
                pending += [made for inner in joined for made in (inner, *origins_at(script, inner))]
            case ast.Call():
                yield each
            case _:
                pass


def _is_largest(call: ast.Call) -> bool:
    """Return whether a call gives the largest or the smallest of all elements of a tensor."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in LARGEST and not call.args and not call.keywords


def _is_of_own_data(script: Script, call: ast.Call) -> bool:
    """Return whether a call computes with data of this rank, and with nothing that all ranks have reduced."""
    held = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
    owner = call.func.value if isinstance(call.func, ast.Attribute) and last_name(call.func) not in ("exp",) else held
    keys = [script.evaluated.value(each) for each in (held, owner, call) if each is not None]
    known = [key for key in keys if key is not None]
    differs = any(key.differs_by & (BY_RANK | LOCAL) for key in known)
    return differs and not any(part.op in SAME for key in known for part in parts(key))
