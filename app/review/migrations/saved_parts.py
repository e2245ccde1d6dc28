"""The objects with a state that a training run has: models, optimizers, schedulers, the scaler of gradients."""

import ast
import re
from collections.abc import Iterator

from ...training_script.reaching_values import may_be_unbound
from ...training_script.syntax import FUNCTIONS, dotted_name, last_name
from .facts import Loop, TrainingFacts
from .origins import roots
from .types import Refusal

SCHEDULER = re.compile(r"(?:.*(?:LR|Scheduler|Restarts|Plateau)|get_\w*schedul\w*)")
CONDITIONAL = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Lambda, *FUNCTIONS)
AVERAGES = {"AveragedModel", "ExponentialMovingAverage", "EMA", "ModelEma", "ModelEmaV2", "ModelEmaV3", "deepcopy"}


def saved_parts(facts: TrainingFacts, outermost: Loop) -> list[tuple[str, str]]:
    """Return the name and the code of each object with a state, as they are known before the outermost loop.

    Raises:
        Refusal: One of them is not known there.
    """
    found: list[tuple[str, str]] = []
    inside = {*ast.walk(outermost)}
    for kind, line, made in _objects(facts):
        known = _known_as(facts, outermost, made)
        if known is None or all(each.at in inside for each in facts.names.bindings(known)):
            raise Refusal(line, f"this {kind} is not known where the training loop begins (line {outermost.lineno})")
        code = dotted_name(known)
        if isinstance(known, ast.Name) and _is_made_by_condition(facts, outermost, known):
            raise Refusal(
                line,
                f"`{code}` may have no value where the training loop begins (line {outermost.lineno}): set it to None "
                "before, if it is not made",
            )
        if code not in [each for _, each in found]:
            found.append((_free_name(code, [name for name, _ in found]), code))
    return found


def is_saved(facts: TrainingFacts, expr: ast.expr) -> bool:
    """Return whether an expression is one of the objects with a state that are saved."""
    made = roots(facts.names, expr)
    return any(not made.isdisjoint(each) for _, _, each in _objects(facts))


def _objects(facts: TrainingFacts) -> Iterator[tuple[str, int, set[ast.AST]]]:
    for model in facts.models:
        yield "model", model.lineno, facts.roots_of(model)
    if not facts.models:
        _ = facts.model
    for call in facts.calls:
        name = last_name(call.func)
        if name in AVERAGES and any(_is_any_model(facts, each) for each in call.args[:1]):
            yield "copy of the model", call.lineno, {call}
    for call in facts.optimizers:
        yield "optimizer", call.lineno, {call}
    for call in facts.calls:
        name = last_name(call.func)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if SCHEDULER.fullmatch(name) and any(_is_optimizer(facts, each) for each in given):
            if not _is_inside_another(facts, call):
                yield "scheduler", call.lineno, {call}
        elif name == "GradScaler":
            yield "scaler", call.lineno, {call}


def _is_any_model(facts: TrainingFacts, expr: ast.expr) -> bool:
    made = roots(facts.names, expr)
    return any(not made.isdisjoint(facts.roots_of(model)) for model in facts.models)


def _is_optimizer(facts: TrainingFacts, expr: ast.expr) -> bool:
    return any(leaf in facts.optimizers for leaf in roots(facts.names, expr))


def _is_inside_another(facts: TrainingFacts, call: ast.Call) -> bool:
    """Return whether a scheduler has no name of its own: it is a part of another one."""
    return not isinstance(facts.source.parents[call], (ast.Assign, ast.AnnAssign, ast.IfExp, ast.NamedExpr))


def _known_as(facts: TrainingFacts, outermost: Loop, made: set[ast.AST]) -> ast.Name | ast.Attribute | None:
    """Return a name or an attribute of ``self`` for an object, as it is known before the outermost loop."""
    names = facts.names
    here = names.scope_of[outermost]
    owner = names.enclosing_class(here)
    candidates: dict[str, ast.Name | ast.Attribute] = {}
    for node, scope in names.scope_of.items():
        if not isinstance(node, (ast.Name, ast.Attribute)) or not (code := dotted_name(node)) or code in candidates:
            continue
        if isinstance(node, ast.Name):
            known = names.lookup(code, here)
            if known is None or known != names.lookup(code, scope):
                continue
        elif not (
            code.startswith("self.") and code.count(".") == 1 and owner and names.enclosing_class(scope) is owner
        ):
            continue
        candidates[code] = node
    fitting = {code: node for code, node in candidates.items() if not made.isdisjoint(roots(names, node))}
    wanted = [dotted_name(model) for model in facts.models]
    first = next((code for code in fitting if code in wanted), next(iter(fitting), ""))
    return fitting.get(first)


def _is_made_by_condition(facts: TrainingFacts, loop: Loop, known: ast.Name) -> bool:
    """Return whether a name may have no value before a loop that reads it, if at all, under conditions."""
    above = facts.source.parents
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and node.id == known.id:
            while (parent := above[node]) is not loop and not isinstance(parent, CONDITIONAL):
                node = parent
            if parent is loop:
                return False  # without it the script fails itself
    return may_be_unbound(facts.names, known, loop)


def _free_name(code: str, taken: list[str]) -> str:
    name = code.rpartition(".")[2]
    return name if name not in taken and name not in ("path", "every", "self") else f"{name}_{len(taken)}"
