"""Replace the DDP wrapper by sharding: per block, then the rest, with the optimizer behind it."""

import ast

from ...text.python_source import parse_python
from ...training_script.syntax import Function, dotted_name
from ...training_script.torch_classes import DDP_CLASSES
from .rewriting import Rewriting
from .types import Refusal
from .wrap_model import place_before_optimizer


def shard_model(made: Rewriting, blocks: list[str]) -> None:
    """Shard the model where DDP wraps it, and build the optimizer after that.

    Raises:
        Refusal: The place does not show how.
    """
    wrap = made.facts.wraps[0]
    if not wrap.args:
        raise Refusal(wrap.lineno, "DDP gets its model by keyword: give it first")
    given = f"({', '.join(blocks)}{',' if len(blocks) == 1 else ''})"
    function = made.facts.names.enclosing_function(wrap)
    if function is not None and _only_wraps(made, function, wrap):
        at = _shard_in_callers(made, function, given)
    elif not _comes_before_optimizer(made, wrap):
        at = _shard_before_optimizer(made, wrap, given)
    else:
        model = made.source.code(wrap.args[0])
        device = f"next({model}.parameters()).device"
        if not dotted_name(wrap.args[0]):
            raise Refusal(wrap.lineno, "the model that DDP wraps has no name: assign it first")
        at = _put(made, wrap, f"{made.helpers.name('shard')}({model}, {given}, {device})")
    made.wrapped_at = at
    _move_optimizer(made, at)
    _remove_import(made)


def _only_wraps(made: Rewriting, function: Function, wrap: ast.Call) -> bool:
    """Return whether a function gets ``(model, device)`` and does nothing but move the model and wrap it."""
    names = [each.arg for each in function.args.args]
    last = function.body[-1]
    moves = [stmt for stmt in function.body[:-1] if not isinstance(stmt, ast.Expr)]
    return (
        len(names) == 2
        and isinstance(last, ast.Return)
        and last.value is wrap
        and all(isinstance(stmt, ast.Assign) and dotted_name(stmt.targets[0]) == names[0] for stmt in moves)
        and bool(made.facts.names.arguments.get(function))
        and made.source.parents[function] is made.source.tree
    )


def _shard_in_callers(made: Rewriting, function: Function, blocks: str) -> ast.stmt:
    calls = [call for call, _ in made.facts.names.arguments[function]]
    places: list[ast.stmt] = []
    for call in calls:
        if len(call.args) != 2:
            raise Refusal(call.lineno, f"{function.name} is called without its model or device")
        model, device = (made.source.code(each) for each in call.args)
        places.append(_put(made, call, f"{made.helpers.name('shard')}({model}, {blocks}, {device})"))
        if not _comes_before_optimizer(made, call):
            raise Refusal(call.lineno, "the optimizer is made elsewhere, before the model is wrapped: wrap it before")
    made.remove_with_blank_lines(function)
    return places[0]


def _comes_before_optimizer(made: Rewriting, wrap: ast.Call) -> bool:
    """Return whether the optimizer gets the parameters of what DDP wraps, or is made in the same function."""
    names = made.facts.names
    same = {names.enclosing_function(call) for call in made.facts.optimizers} == {names.enclosing_function(wrap)}
    if same or wrap in names.origins(made.facts.model):
        return True
    if dotted_name(made.facts.model) != "self":
        return False
    place, stmt = place_before_optimizer(made)[1], made.source.statement_of(wrap)
    return names.enclosing_function(place) is names.enclosing_function(stmt) and stmt.lineno < place.lineno


def _shard_before_optimizer(made: Rewriting, wrap: ast.Call, blocks: str) -> ast.stmt:
    """Shard the model where the optimizer is made, and leave out the wrapper that comes later."""
    model, place = place_before_optimizer(made)
    if listed := _lists_of_parameters(made, place):
        raise Refusal(listed[0].lineno, "parameters are listed here before the model is sharded, which replaces them")
    name, stmt = made.source.code(model), made.source.statement_of(wrap)
    shard, device = made.helpers.name("shard"), made.helpers.name("device_of_rank")
    made.insert_before(place, f"{name} = {shard}({name}, {blocks}, {device}())")
    is_itself = isinstance(stmt, ast.Assign) and dotted_name(stmt.targets[0]) == dotted_name(wrap.args[0])
    if is_itself and made.source.alone(stmt) and _has_others_in_block(made, stmt):
        made.remove(stmt)
    else:
        made.replace(wrap, made.source.code(wrap.args[0]))
    return place


def _has_others_in_block(made: Rewriting, stmt: ast.stmt) -> bool:
    return len(made.source.block_of(stmt)) > 1


def _put(made: Rewriting, call: ast.Call, code: str) -> ast.stmt:
    """Shard the model instead of a call that wraps it, before the statements that list its parameters.

    Sharding replaces every parameter: an optimizer that has those of before would train none of the model.
    """
    at = made.source.statement_of(call)
    listed = _lists_of_parameters(made, at)
    if not listed:
        made.replace(call, code)
        return at
    first, block = listed[0], made.source.parents[at]
    while made.source.parents[first] is not block:
        above = made.source.parents[first]
        if not isinstance(above, ast.stmt):
            break
        first = above
    model = call.args[0]
    between = [
        each for each in made.facts.nodes if isinstance(each, ast.stmt) and first.lineno <= each.lineno < at.lineno
    ]
    bound = {dotted_name(node) for stmt in between for node in ast.walk(stmt) if _is_stored(node)}
    is_plain = isinstance(at, ast.Assign) and at.value is call and dotted_name(at.targets[0]) == dotted_name(model)
    names = {dotted_name(node) for node in ast.walk(parse_python(code)) if isinstance(node, (ast.Name, ast.Attribute))}
    if made.source.parents[first] is not block or not is_plain or bound & names or not made.source.alone(at):
        raise Refusal(listed[0].lineno, "parameters are listed here before the model is sharded, which replaces them")
    made.remove(at)
    made.insert_before(first, f"{made.source.code(model)} = {code}")
    return first


def _lists_of_parameters(made: Rewriting, at: ast.stmt) -> list[ast.stmt]:
    """Return the statements before another that list parameters for the optimizer."""
    names = made.facts.names
    found = [made.source.statement_of(read) for read in made.facts.parameter_reads]
    optimizer_statements = {made.source.statement_of(call) for call in made.facts.optimizers}
    same = (stmt for stmt in found if names.enclosing_function(stmt) is names.enclosing_function(at))
    return sorted(
        {stmt for stmt in same if stmt not in optimizer_statements and stmt.lineno < at.lineno},
        key=lambda each: each.lineno,
    )


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)


def _move_optimizer(made: Rewriting, at: ast.stmt) -> None:
    """Move the optimizer behind the statement that shards the model, if it comes before it in the same block."""
    for call in made.facts.optimizers:
        stmt = made.source.statement_of(call)
        same = made.facts.names.enclosing_function(stmt) is made.facts.names.enclosing_function(at)
        if not same or stmt.lineno >= at.lineno:
            continue
        is_simple = isinstance(stmt, ast.Assign) and made.source.parents[stmt] is made.source.parents[at]
        between = [
            node
            for node in made.facts.nodes
            if isinstance(node, (ast.Name, ast.Attribute))
            and stmt.lineno < node.lineno <= at.lineno
            and isinstance(stmt, ast.Assign)
            and dotted_name(node) == dotted_name(stmt.targets[0])
        ]
        if not is_simple or between or not made.source.alone(stmt):
            raise Refusal(stmt.lineno, "the optimizer is made before the model is sharded: make it afterwards")
        made.remove(stmt)
        made.insert_after(at, *(line.removeprefix(made.source.indent(stmt.lineno)) for line in _lines(made, stmt)))


def _lines(made: Rewriting, stmt: ast.stmt) -> list[str]:
    return [made.source.line(number) for number in range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)]


def _remove_import(made: Rewriting) -> None:
    """Remove the import of DDP where nothing else uses it."""
    removed = {node for each in made.changed for node in ast.walk(each)}
    for stmt in made.source.tree.body:
        if not (isinstance(stmt, ast.ImportFrom) and len(stmt.names) == 1 and made.source.alone(stmt)):
            continue
        name = stmt.names[0].asname or stmt.names[0].name
        if f"{stmt.module}.{stmt.names[0].name}" not in DDP_CLASSES:
            continue
        used = [n for n in made.facts.nodes if isinstance(n, ast.Name) and n.id == name and n not in removed]
        if not used:
            made.remove(stmt)
