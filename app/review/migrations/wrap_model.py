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
    made.wrapped_at = place


def _replace_data_parallel(made: Rewriting) -> None:
    call, *others = made.facts.data_parallel
    if others:
        raise Refusal(others[0].lineno, "a second DataParallel: wrap one model only")
    if not call.args:
        raise Refusal(call.lineno, "DataParallel without a model")
    stmt = made.source.statement_of(call)
    if not isinstance(stmt, ast.Assign):
        raise Refusal(call.lineno, "DataParallel is not assigned to a name")
    wrap = f"{made.helpers.name('wrap')}({made.source.code(call.args[0])}, {device_expression(made, stmt)})"
    parent = made.source.parents[stmt]
    if isinstance(parent, ast.If) and "device_count" in ast.unparse(parent.test):
        target = made.source.code(stmt.targets[0])
        if parent.orelse or stmt not in parent.body:
            raise Refusal(parent.lineno, "DataParallel in one of several branches: keep the one for several GPUs")
        made.remove(parent)
        made.insert_before(parent, f"{target} = {wrap}")
        made.was_conditional = True
        made.wrapped_at = parent
    else:
        made.replace(call, wrap)
        made.wrapped_at = stmt
    for node in made.facts.nodes:
        if isinstance(node, (ast.Name, ast.Attribute)) and made.facts.names.qualified(node).endswith(".DataParallel"):
            parent = made.source.parents[node]
            if node is not call.func and not isinstance(parent, ast.Attribute) and node not in made.changed:
                made.replace(node, made.helpers.name("DistributedDataParallel"))


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
