"""DW425 and DW426: results that are too small for the ranks, and states with whole numbers that are averaged."""

import ast
from collections.abc import Iterator

from ...training_script.model.keys import RANKS
from ...training_script.model.reach import Run, argument
from ...training_script.model.tensor_kinds import type_of
from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name, last_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..value_kinds import NUMBER, Kinds
from ..violations import at_node, violation_at, violation_at_node

WHOLE = {"torch.distributed.all_gather_into_tensor": "the parts of all ranks do not fit into it"}
WHOLE["torch.distributed.reduce_scatter_tensor"] = "it takes the part of one rank only"
WHOLE_TYPES = {"int64", "int32", "int16", "int8", "uint8"}
LIKE = {"empty_like", "zeros_like", "ones_like", "clone"}
SHAPED = {f"{prefix}{name}" for prefix in ("", "new_") for name in ("empty", "zeros", "ones")}
TYPED = ("is_floating_point", "dtype", "float(", "named_parameters", "is_complex")


def check_size(script: Script, run: Run) -> Iterator[Violation]:
    """DW425: yield the tensors for all parts that are as large as one."""
    for reach, fact in run.of(*WHOLE):
        places = dict(zip(("output", "input"), fact.node.args, strict=False))
        places |= {
            (each.arg or "").replace("output_tensor", "output").replace("input_tensor", "input"): each.value
            for each in fact.node.keywords
        }
        out, given = places.get("output"), places.get("input")
        if not script.is_here(reach) or out is None or given is None:
            continue
        made = [each for each in script.names.origins(out) if isinstance(each, ast.Call)]
        of = [like for each in made if (like := _like(each))]
        if of and len(of) == len(made) and all(ast.dump(each) == ast.dump(given) for each in of):
            name = fact.name.rpartition(".")[2]
            yield from violation_at(
                script,
                reach,
                f"the result of {name} has the size of the part that this rank passes: {WHOLE[fact.name]}",
                0.85,
            )


def _like(made: ast.Call) -> ast.expr | None:
    """Return the tensor whose shape a call gives a new one."""
    name = last_name(made.func)
    if name in LIKE:
        return made.args[0] if made.args else getattr(made.func, "value", None)
    match made.args:
        case [ast.Starred(value=shape)] | [shape] if name in SHAPED:
            pass
        case _:
            return None
    match shape:
        case ast.Attribute(value=of, attr="shape") | ast.Call(func=ast.Attribute(value=of, attr="size"), args=[]):
            return of
        case _:
            return None


def check_state(script: Script, run: Run) -> Iterator[Violation]:
    """DW426: yield the averages over all entries of a state, where counters of batches are whole numbers."""
    if not run.distributed or run.function is not None or not script.evaluated.normalises:
        return
    for loop in nodes_below(script.source.tree):
        if not isinstance(loop, ast.For) or not _is_state(loop.iter):
            continue
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        body = [node for stmt in loop.body for node in ast.walk(stmt)]
        reduced = [
            node
            for node in body
            if isinstance(node, ast.Call) and last_name(node.func) == "all_reduce" and _reads(node, names)
        ]
        divided = any(
            (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and _reads(node.target, names))
            or (isinstance(node, ast.Call) and last_name(node.func) == "div_" and _reads(node, names))
            for node in body
        )
        text = "\n".join(script.source.code(stmt) for stmt in loop.body)
        if reduced and divided and not any(word in text for word in TYPED):
            yield violation_at_node(
                reduced[0],
                "the state holds whole numbers too (num_batches_tracked of BatchNorm): they cannot be divided in place",
                0.8,
            )


def check_whole(script: Script, run: Run) -> Iterator[Violation]:
    """DW426: yield the divisions in place of a sum of whole numbers over the ranks."""
    for reach, fact in run.of("torch.distributed.all_reduce"):
        given, name = argument(fact, 0, "tensor"), dotted_name(fact.node.args[0]) if fact.node.args else ""
        if given is None or not name or not script.is_here(reach) or not reach.several:
            continue
        if type_of(given.key, run.keys, RANKS[0]) not in WHOLE_TYPES and not _is_of_whole_numbers(script, fact.node):
            continue
        stmt = script.source.statement_of(fact.node)
        block = script.source.block_of(stmt)
        behind = block[block.index(stmt) + 1 :] if stmt in block else []
        for each in behind:
            match each:
                case ast.AugAssign(target=target, op=ast.Div()) if dotted_name(target) == name:
                    why = "this holds whole numbers, which cannot be divided in place: divide them into a new tensor"
                    yield from violation_at(script, at_node(script, reach, target), why, 0.85)
                    break
                case ast.Assign(targets=targets) if any(dotted_name(held) == name for held in targets):
                    break
                case _:
                    pass


def _is_of_whole_numbers(script: Script, call: ast.Call) -> bool:
    """Return whether a tensor is made of whole numbers, without another type."""
    kinds, made = Kinds(script), origins_at(script, call.args[0])
    for each in made:
        match each:
            case ast.Call(args=[ast.List(elts=[*held])], keywords=keywords) if last_name(each) == "tensor":
                if any(word.arg == "dtype" for word in keywords) or any(kinds.of(part) != {NUMBER} for part in held):
                    return False
            case _:
                return False
    return bool(made)


def _is_state(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=held), attr="values" | "items")):
            return last_name(held) == "state_dict"
        case ast.Call(func=held):
            return last_name(held) in ("buffers", "named_buffers")
        case _:
            return False


def _reads(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))
