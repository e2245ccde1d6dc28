"""DW228: models that change after DDP has wrapped them."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import parts
from ...training_script.model.noted_calls import NEW_PART
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.model.values import Instance, Value
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.change_before_wrap import change_before_wrap
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node
from .chosen_layers import ALLOWS_UNUSED
from .replicas import LAYER
from .unshared_parts import is_layer, learns

RANDOM_INIT = re.compile(
    r"init\.(?:xavier|kaiming|normal|trunc_normal|uniform|orthogonal|sparse)\w*|reset_parameters|\.(?:normal|uniform)_\("
)

TRAINED_AGAIN = re.compile(r"requires_grad\s*=\s*(?!False)\S|requires_grad_\(")

LATE = (
    "made all copies equal (line {}): each rank has random numbers of its own there, or gradients that are not reduced"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield what gives a model in DDP other parameters, or gradients that DDP does not reduce."""
    yield from _new_parameters(script, run)
    yield from _new_gradients(script, run)
    yield from _frozen_late(script, run)


def _new_gradients(script: Script, run: Run) -> Iterator[Violation]:
    """Yield where parameters that were frozen when DDP wrapped a model are trained later."""
    frozen = wrapped = False
    found = list(run.of(*DDP_CLASSES, ".requires_grad_"))
    last_wrap = max((at for at, (_, fact) in enumerate(found) if fact.name in DDP_CLASSES), default=0)
    if any(_is_off(run, fact) for _, fact in found[last_wrap + 1 :]):
        return  # parts of the model take turns, each with its own optimizer
    for at, (reach, fact) in enumerate(found):
        if fact.name in DDP_CLASSES:
            wrapped = wrapped or (frozen and reach.several)
            continue
        on = argument(fact, 0, "requires_grad")
        if _is_off(run, fact):
            frozen = frozen or not wrapped
        elif wrapped and (on is None or on.key is run.keys.true) and not _is_wrapped_again(reach, found[at + 1 :]):
            yield from violation_at(
                script,
                _where_asked(script, reach),
                "these parameters get gradients after DDP wrapped the model without them: DDP does not reduce them, "
                "and each rank trains its own",
                0.75,
                severity=None if script.is_here(reach) else "warning",
            )
            return


def _frozen_late(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loops that freeze parameters of a model which DDP has wrapped to learn all of them."""
    wraps = [(reach, fact) for reach, fact in run.of(*DDP_CLASSES) if reach.several and script.is_here(reach)]
    if len(wraps) != 1 or script.mentions(TRAINED_AGAIN) or ALLOWS_UNUSED & wraps[0][1].named.keys():
        return
    reach, wrap = wraps[0]
    stmt = script.source.statement_of(wrap.node)
    names = [dotted_name(each) for each in stmt.targets] if isinstance(stmt, ast.Assign) else []
    given = dotted_name(wrap.node.args[0]) if wrap.node.args else ""
    for each in _following(script, stmt) if len(names) == 1 and names[0] else ():
        if names[0] in _assigned(each):
            return
        for loop in ast.walk(each):
            if (
                isinstance(loop, ast.For)
                and (frozen := _frozen(loop))
                and (
                    dotted_name(frozen).startswith(f"{names[0]}.")
                    or (given and dotted_name(frozen) != names[0] and f"{dotted_name(frozen)}.".startswith(f"{given}."))
                )
            ):
                yield Violation(
                    line=loop.lineno,
                    column_bytes=loop.col_offset + 1,
                    end_line=loop.body[-1].end_lineno or loop.lineno,
                    message="these parameters are frozen after DDP wrapped the model (line "
                    f"{reach.fact.site.line}): it waits for their gradients as before, and raises an error in the next "
                    "step",
                    confidence=0.8,
                )


def _frozen(loop: ast.For) -> ast.expr | None:
    """Return the part of a model of which a loop freezes each parameter."""
    match loop:
        case ast.For(
            target=ast.Name(id=each),
            iter=ast.Call(func=ast.Attribute(value=part, attr="parameters")),
            body=[ast.Assign(targets=[ast.Attribute(value=ast.Name(id=held), attr="requires_grad")], value=off)],
        ) if each == held and isinstance(off, ast.Constant) and off.value is False:
            while isinstance(part, ast.Subscript):
                part = part.value
            return part
        case _:
            return None


def _is_off(run: Run, fact: Noted) -> bool:
    """Return whether a call freezes parameters."""
    on = argument(fact, 0, "requires_grad")
    return fact.name == ".requires_grad_" and on is not None and on.key is run.keys.false


def _is_wrapped_again(reach: Reach, later: list[tuple[Reach, Noted]]) -> bool:
    """Return whether DDP wraps a model after a change of its parameters, before it trains on."""
    return any(fact.name in DDP_CLASSES and together(reach, again) for again, fact in later)


def _where_asked(script: Script, reach: Reach) -> Reach:
    """Return a call as the one that asks for it, where a helper makes it for parameters that it is given."""
    here = [site for site in reach.calls if site.path == script.source.path]
    if not here or not reach.calls or reach.fact.site.path != script.source.path:
        return reach
    return reach._replace(fact=reach.fact._replace(site=reach.calls[-1]), calls=reach.calls[:-1])


def _new_parameters(script: Script, run: Run) -> Iterator[Violation]:
    """Yield parts and parameters that a model gets after DDP has made all copies equal."""
    yield from _new_parts(script, run)
    for reach, fact in run.of(*DDP_CLASSES):
        wrap = script.source.statement_of(fact.node) if script.is_here(reach) and reach.several else None
        targets = [dotted_name(each) for each in wrap.targets] if isinstance(wrap, ast.Assign) else []
        for stmt in _following(script, wrap) if wrap and len(targets) == 1 and targets[0] else ():
            if targets[0] in _assigned(stmt):
                break  # it is made, or wrapped, again
            if _replaces_part(script, stmt, targets[0]) or _replaces_by_method(script, stmt, targets[0]):
                yield violation_at_node(
                    stmt, f"a part of `{targets[0]}` is replaced after DDP {LATE.format(fact.site.line)}", 0.8
                )
            if drawing := _draws(script, stmt, targets[0]):
                yield violation_at_node(
                    stmt,
                    f"`{drawing}` draws new parameters after DDP {LATE.format(fact.site.line)}",
                    0.8,
                )


def _new_parts(script: Script, run: Run) -> Iterator[Violation]:
    """Yield parts with parameters that replace those of a model in DDP."""
    found = list(run.of(*DDP_CLASSES, f".{NEW_PART}"))
    for at, (reach, fact) in enumerate(found):
        if fact.name in DDP_CLASSES or not _has_parameters(fact.values[0]) or not reach.several:
            continue
        wraps = [each.site for before, each in found[:at] if each.name in DDP_CLASSES and together(before, reach)]
        if wraps and not _is_wrapped_again(reach, found[at + 1 :]):
            name = dotted_name(fact.node.func).rpartition(".")[0]
            message = f"a part of `{name}` is replaced after DDP {LATE.format(wraps[-1].line)}"
            patch = partial(change_before_wrap, script, fact.site, wraps[-1])
            yield from violation_at(script, reach, message, 0.8, patch=patch)


def _has_parameters(part: Value) -> bool:
    """Return whether a part of a model surely has parameters."""
    if isinstance(part.obj, Instance):
        return learns(part.obj)
    return any(
        each.op == "call" and LAYER.fullmatch(str(each.args[0]).removeprefix("torch.nn.")) for each in parts(part.key)
    )


def _following(script: Script, wrap: ast.stmt) -> list[ast.stmt]:
    """Return the statements behind one in its block."""
    block = script.source.block_of(wrap)
    return block[block.index(wrap) + 1 :] if block else []


def _assigned(stmt: ast.stmt) -> list[str]:
    return [dotted_name(each) for each in stmt.targets] if isinstance(stmt, ast.Assign) else []


def _replaces_part(script: Script, stmt: ast.stmt, model: str) -> bool:
    """Return whether a statement puts a new layer at a place of the model inside of DDP: ``model.module[2] = …``."""
    match stmt:
        case ast.Assign(targets=[ast.Subscript(value=held)], value=ast.Call() as made):
            key = script.evaluated.value(made)
            return dotted_name(held).startswith(f"{model}.module") and key is not None and is_layer(key)
        case _:
            return False


def _replaces_by_method(script: Script, stmt: ast.stmt, model: str) -> bool:
    """Return whether a statement calls a method of the model inside of DDP that puts a new layer into it."""
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr=name))) if (
            dotted_name(owner) == f"{model}.module"
        ):
            methods = [each for each in nodes_of_kinds(script.source.tree, ast.FunctionDef) if each.name == name]
            stores = [node for each in methods for node in walk(each) if isinstance(node, ast.Assign)]
            layers = [node for node in stores if any(dotted_name(each).startswith("self.") for each in node.targets)]
            keys = [script.evaluated.value(node.value) for node in layers if isinstance(node.value, ast.Call)]
            return len(methods) == 1 and any(key is not None and is_layer(key) for key in keys)
        case _:
            return False


def _draws(script: Script, stmt: ast.stmt, model: str) -> str:
    """Return the function by which a statement gives the model in DDP new parameters, or an empty string."""
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="apply"), args=[function])):
            name = dotted_name(function)
            defined = (each for each in ast.walk(script.source.tree) if isinstance(each, ast.FunctionDef))
            body = next((each for each in defined if each.name == name), None)
            if dotted_name(owner) in (model, f"{model}.module") and body and RANDOM_INIT.search(ast.unparse(body)):
                return name
        case _:
            pass
    return ""
