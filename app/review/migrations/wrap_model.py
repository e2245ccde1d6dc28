"""Wrap the model: in place of DataParallel, or before the optimizer gets its parameters."""

import ast

from ...training_script.syntax import FUNCTIONS, LOOPS, dotted_name
from .rewriting import Rewriting
from .start import device_expression
from .types import Refusal


def wrap_model(made: Rewriting) -> None:
    """Wrap the model in DDP and note the statement behind which it is wrapped.

    Raises:
        Refusal: There is no place for it.
    """
    if made.facts.data_parallel:
        _replace_data_parallel(made)
        return
    model, place = place_before_optimizer(made)
    name = made.source.code(model)
    made.insert_before(place, f"{name} = {made.helpers.name('wrap')}({name}, {device_expression(made, place)})")
    made.wrapped_at, made.wrapped_name = place, model


def _replace_data_parallel(made: Rewriting) -> None:
    call, *others = made.facts.data_parallel
    if others:
        raise Refusal(others[0].lineno, "a second DataParallel: wrap one model only")
    if not call.args:
        raise Refusal(call.lineno, "DataParallel without a model")
    stmt = made.source.statement_of(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        raise Refusal(call.lineno, "DataParallel is not assigned to a name")
    made.wrapped_name = stmt.targets[0]
    wrapped = _with_bare_side(made, call)
    condition = _outermost_condition(made, wrapped)
    made.was_conditional = condition is not None or wrapped is not call
    if condition is None:
        made.replace(wrapped, _wrap_code(made, call.args[0], stmt))
        made.wrapped_at = stmt
    else:
        _wrap_on_every_rank(made, call, stmt, condition)
    for node in made.facts.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)) and made.facts.names.qualified(node).endswith(".DataParallel"):
            parent = made.source.parents[node]
            if node is not call.func and not isinstance(parent, ast.Attribute) and node not in made.changed:
                made.replace(node, made.helpers.name("DistributedDataParallel"))


def _wrap_code(made: Rewriting, model: ast.expr, place: ast.stmt) -> str:
    return f"{made.helpers.name('wrap')}({made.source.code(model)}, {device_expression(made, place)})"


def _wrap_on_every_rank(made: Rewriting, call: ast.Call, stmt: ast.Assign, condition: ast.If | ast.Assign) -> None:
    """Wrap the model behind a condition for DataParallel: a rank that it leaves out would train for itself."""
    inside = {*ast.walk(condition)}
    if optimizer := next((each for each in made.facts.optimizers if each in inside), None):
        raise Refusal(
            optimizer.lineno, "DataParallel and the optimizer are made under one condition: wrap the model before"
        )
    (target,) = stmt.targets
    if isinstance(condition, ast.If) and condition.body == [stmt] and not condition.orelse:
        made.remove(condition)
        made.insert_before(condition, f"{made.source.code(target)} = {_wrap_code(made, call.args[0], condition)}")
        made.wrapped_at = condition
    else:
        is_alone = call is stmt.value and made.source.code(call.args[0]) == made.source.code(target)
        made.replace(stmt, "pass") if is_alone else made.surround_call(call, "", "")
        made.insert_after(condition, f"{made.source.code(target)} = {_wrap_code(made, target, condition)}")
        made.wrapped_at = _statement_behind(made, condition)
    for each in made.facts.calls:
        match each.func:
            case ast.Attribute(value=model, attr="load_state_dict") if made.facts.is_model(model):
                made.report(
                    each, "checkpoints of DataParallel have names with `module.`, the model here has them without"
                )
            case _:
                pass


def _statement_behind(made: Rewriting, stmt: ast.stmt) -> ast.stmt:
    """Return the next statement of the block of a statement; the last one itself."""
    block = made.source.block_of(stmt)
    return block[min(block.index(stmt) + 1, len(block) - 1)]


def _with_bare_side(made: Rewriting, call: ast.Call) -> ast.expr:
    """Return ``DataParallel(x) if several else x`` around a call, or the call."""
    above = made.source.parents[call]
    if isinstance(above, ast.IfExp):
        other = above.orelse if call is above.body else above.body
        return above if made.source.code(other) == made.source.code(call.args[0]) else call
    return call


def _outermost_condition(made: Rewriting, call: ast.expr) -> ast.If | ast.Assign | None:
    """Return the outermost ``if`` around a call in its function, or its statement if the expression has a condition."""
    found: ast.If | ast.Assign | None = None
    node: ast.AST = call
    while not isinstance(node := made.source.parents[node], (*FUNCTIONS, ast.Module, *LOOPS)):
        if isinstance(node, ast.IfExp | ast.BoolOp):
            stmt = made.source.statement_of(node)
            found = stmt if isinstance(stmt, ast.Assign) else None
        elif isinstance(node, ast.If) and node is not made.facts.main_block:
            found = node
    return found


def place_before_optimizer(made: Rewriting) -> tuple[ast.expr, ast.stmt]:
    """Return the model and the statement before which it is wrapped, outside of the model's own class."""
    facts = made.facts
    model, at = facts.model, made.source.statement_of(facts.optimizers[0])
    for _ in range(4):
        function = facts.names.enclosing_function(at)
        is_self = dotted_name(model) == "self"
        is_parameter = isinstance(model, ast.Name) and any(
            binding.kind == "param" for binding in facts.names.bindings(model)
        )
        if not (is_self or is_parameter) or function is None:
            break
        call, given = _caller(made, function, at)
        if is_self:
            if not isinstance(call.func, ast.Attribute):
                raise Refusal(call.lineno, "the model makes its own optimizer in a way that is not followed")
            model = call.func.value
        else:
            assert isinstance(model, ast.Name)
            if model.id not in given:
                raise Refusal(at.lineno, f"{model.id} is not known here")
            model = given[model.id]
        at = made.source.statement_of(call)
    if not dotted_name(model):
        raise Refusal(at.lineno, "the model has no name here: assign it first")
    return model, _outside_branches(made, at, model)


def _caller(made: Rewriting, function: ast.AST, at: ast.stmt) -> tuple[ast.Call, dict[str, ast.expr]]:
    assert isinstance(function, FUNCTIONS)
    callers = made.facts.names.arguments.get(function, [])
    if not callers and isinstance(made.source.parents.get(function), ast.ClassDef):
        callers = made.facts.callers_of_method(function)
    if len(callers) != 1:
        raise Refusal(at.lineno, f"{function.name} is called {len(callers) or 'nowhere'} times: wrap the model by hand")
    return callers[0]


def _outside_branches(made: Rewriting, stmt: ast.stmt, model: ast.expr) -> ast.stmt:
    """Return the outermost of the conditions around a statement in which the model is bound nowhere."""
    bound = {binding.at for binding in made.facts.names.bindings(model)}
    while isinstance(parent := made.source.parents[stmt], (ast.If, ast.Try, *LOOPS)):
        if parent is made.facts.main_block or not bound.isdisjoint(ast.walk(parent)):
            break
        stmt = parent
    return stmt
