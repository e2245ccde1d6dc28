"""DW256: modules without DDP that only some ranks load or change, and that all ranks use."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.amounts import BATCH
from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.library_calls import RANDOM
from ...training_script.model.reach import ALL, Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at
from .own_changes import IN_PLACE

SHARES = re.compile(r"broadcast|scatter|sync_|all_?reduce\(\s*\w*param")
CHANGES = re.compile(r"load_state_dict|\.parameters\(\)")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states and changes that only some ranks give to a module with which all of them compute."""
    if not run.distributed or not script.mentions(CHANGES) or script.mentions(SHARES):
        return
    for reach, fact in run.of(".load_state_dict"):
        module = fact.node.func.value if isinstance(fact.node.func, ast.Attribute) else None
        if module is None or not script.is_here(reach):
            continue
        own = next((each for each in reach.own_conditions if _is_of_data(each.test)), None)
        if own and (use := _use_by_all(script, module)) and reach.loops:
            yield from violation_at(
                script,
                reach,
                f"data of each rank decide whether it loads this state (line {own.site.line}), and all ranks compute "
                f"with the module (line {use.lineno}): its copies drift apart",
                0.7,
                branch=own.site.line,
            )
            continue
        if reach.ranks == ALL or reach.unsure:
            continue
        if (use := _use_by_all(script, module)) and not _is_in_function_of_some(script, fact.node, use):
            yield from violation_at(
                script,
                reach,
                f"only some ranks load this state, and all of them compute with the module (line {use.lineno}): the "
                "others use what it began with",
                0.8,
            )
    yield from _averages_of_some(script)
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr=method)) if method in IN_PLACE:
                module = _owner(script, target)
            case _:
                continue
        if module is not None and _is_of_some(script, node) and (use := _use_by_all(script, module)):
            yield Violation(
                line=node.lineno,
                column=node.col_offset + 1,
                end_line=node.end_lineno or node.lineno,
                message=f"only some ranks change this module, and all of them compute with it (line {use.lineno}): the "
                "others use what it began with",
                confidence=0.75,
            )


def _averages_of_some(script: Script) -> Iterator[Violation]:
    """Yield the calls by which only some ranks change the module that an object holds, as one for averages does."""
    calls = [node for node in nodes_below(script.source.tree) if isinstance(node, ast.Call)]
    classes = {node.name: node for node in nodes_below(script.source.tree) if isinstance(node, ast.ClassDef)}
    for node in calls:
        if not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
            continue
        made = [each for each in script.names.origins(node.func.value) if isinstance(each, ast.Call)]
        cls = classes.get(dotted_name(made[0].func)) if len(made) == 1 else None
        held = _changed_module(script, cls, node.func.attr) if cls and _is_of_some(script, node) else ""
        name = f"{node.func.value.id}.{held}"
        use = next((each for each in calls if dotted_name(each.func) == name and not _is_of_some(script, each)), None)
        if held and use is not None and script.names.enclosing_function(use) is script.names.enclosing_function(node):
            yield Violation(
                line=node.lineno,
                column=node.col_offset + 1,
                end_line=node.end_lineno or node.lineno,
                message=f"only some ranks change `{name}` here, and all of them compute with it (line {use.lineno}): "
                "the others use what it began with",
                confidence=0.75,
            )


def _changed_module(script: Script, cls: ast.ClassDef, method: str) -> str:
    """Return the attribute with the module of which a method changes the parameters, "" if it changes none."""
    function = next((each for each in cls.body if isinstance(each, FUNCTIONS) and each.name == method), None)
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr=name)) if name in IN_PLACE:
                while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
                    target = target.func.value  # p.mul_(0.9).add_(q)
                module = _owner(script, target)
                held = dotted_name(module) if module is not None else ""
                if held.startswith("self."):
                    return held.removeprefix("self.")
            case _:
                pass
    return ""


def _is_of_data(test: Key) -> bool:
    """Return whether a condition is one on data of this rank, of which no collective has made one of all."""
    others = any(part.op == "local" and part.args[0] not in (BATCH, RANDOM) for part in parts(test))
    return bool(test.spread & LOCAL) and not others and not any(part.op in SAME for part in parts(test))


def _owner(script: Script, target: ast.expr) -> ast.expr | None:
    """Return the module of which a loop goes through the parameters, if the target is one of these."""
    while isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    at: ast.AST | None = target
    while at is not None and not isinstance(at, FUNCTIONS):
        match at:
            case ast.For(target=ast.Name() as name, iter=over) if dotted_name(name) == dotted_name(target):
                return _of_parameters(over)
            case ast.For(target=ast.Tuple(elts=names), iter=ast.Call(func=ast.Name(id="zip"), args=[*over])):
                for name, each in zip(names, over, strict=False):
                    if dotted_name(target) and dotted_name(name) == dotted_name(target):
                        return _of_parameters(each)
            case _:
                pass
        at = script.source.parents.get(at)
    return None


def _of_parameters(over: ast.expr) -> ast.expr | None:
    match over:
        case ast.Call(func=ast.Attribute(value=module, attr="parameters")):
            return module
        case _:
            return None


def _use_by_all(script: Script, module: ast.expr) -> ast.Call | None:
    """Return a call with which all ranks compute with a module that has no wrapper."""
    name = dotted_name(module)
    inside = {
        dotted_name(given)
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Call) and script.names.qualified(node.func) in DDP_CLASSES
        if (given := call_argument(node, "module", 0)) is not None
    }
    if not name or name in inside or name.endswith(".module"):
        return None
    for made in script.names.origins(module):
        if isinstance(made, ast.Call) and script.names.qualified(made.func) in DDP_CLASSES:
            return None
    made = script.names.bindings(module)
    calls = (node for node in nodes_below(script.source.tree) if isinstance(node, ast.Call))
    uses = (each for each in calls if dotted_name(each.func) == name and script.names.bindings(each.func) == made)
    return next((each for each in uses if made and not _is_of_some(script, each)), None)


def _is_in_function_of_some(script: Script, load: ast.Call, use: ast.Call) -> bool:
    """Return whether a module is loaded and used in one function, which as a whole is called by only some ranks."""
    function = script.names.enclosing_function(load)
    return function is not None and function is script.names.enclosing_function(use) and not _is_of_some(script, load)


def _is_of_some(script: Script, node: ast.AST) -> bool:
    """Return whether a condition on the rank is around a node, in its function."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.If | ast.IfExp) and script.depends_on_rank(at.test):
            return True
        at = script.source.parents.get(at)
    return False
