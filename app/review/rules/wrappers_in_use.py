"""DW218: questions about a wrapped model that the wrapper answers, and reads where the model is unwrapped elsewhere."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import Key
from ...training_script.model.library_calls import METHODS
from ...training_script.model.module_api import DDP_API
from ...training_script.model.reach import Run, alternatives
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, Function, contains_line, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..origins import origins_at
from ..patches.names_in_code import names_set
from ..patches.use_inner_model import inner_model
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at_node
from .wrapped_attributes import FIX, is_asked_for

UNWRAPS = ("unwrap_model", "extract_model_from_parallel")
OF_ENGINE = METHODS["engine"].keys() - DDP_API  # of DeepSpeed, which hands on the attributes of its model
# Conditions by which a wrapper is there or not.
OF_WRAPPER = re.compile(r"distrib|ddp|parallel|gpus|world_size|num_processes", re.IGNORECASE)
# Functions of libraries that read what only the model has.
READS_MODEL = ("get_peft_model_state_dict", "set_peft_model_state_dict")
READS = re.compile("|".join((*READS_MODEL, "hasattr", r"unwrap_model\(")))  # one of which is in every finding


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield what the script asks of a wrapper though only the model inside has it."""
    if run.function is not None and run is not script.runs[0]:
        return
    if not script.mentions(READS):
        return
    wraps = {fact.result.key for _, fact in script.noted(*DDP_CLASSES)}
    for node in nodes_of_kinds(script.source.tree, ast.Call, ast.If, *FUNCTIONS):
        if isinstance(node, ast.Call):
            yield from _asked(script, node)
            yield from _given(script, node, wraps)
        elif isinstance(node, ast.If) and script.mentions(".module"):
            yield from _either(script, node)
        elif isinstance(node, FUNCTIONS) and script.mentions("unwrap_model("):
            yield from _read(script, node)


def _is_wrapped(script: Script, node: ast.expr, wraps: set[Key]) -> bool:
    key = script.evaluated.value(node)
    held = [each for each in alternatives(key) if each.op != "if"] if key else []
    return bool(held) and all(each in wraps for each in held)


def _is_wrapped_by_class(script: Script, node: ast.expr) -> bool:
    """Return whether the constructor of the class around an attribute of ``self`` in the end may put DDP there."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.ClassDef):
        at = script.source.parents.get(at)
    name, function = dotted_name(node), script.names.enclosing_function(node)
    if at is None or not name.startswith("self.") or getattr(function, "name", "__init__") == "__init__":
        return False
    sets = [
        (script.names.enclosing_function(each), each)
        for each in nodes_of_kinds(script.source.tree, ast.Assign)
        if contains_line(at, each.lineno) and name in map(dotted_name, each.targets)
    ]
    last = max(sets, key=lambda each: each[1].lineno, default=(None, None))[1]
    if last is None or any(getattr(method, "name", "") != "__init__" for method, _ in sets):
        return False
    if not isinstance(script.source.parents.get(last), ast.If):
        return False  # always wrapped, so that the question is about DDP itself
    return isinstance(last.value, ast.Call) and script.names.qualified(last.value.func) in DDP_CLASSES


def _asked(script: Script, call: ast.Call) -> Iterator[Violation]:
    """Yield the questions for an attribute of the model that DDP denies, where nothing asks its ``.module``."""
    match call:
        case ast.Call(func=ast.Name(id="hasattr"), args=[held, ast.Constant(value=str(name))]):
            pass
        case _:
            return
    parent = script.source.parents.get(call)
    if name in DDP_API or name.startswith("_"):
        return
    if not isinstance(parent, ast.If) or parent.test is not call or parent.orelse or _opens(script, call):
        return
    if not _is_wrapped_by_class(script, held):
        return
    if any(OF_WRAPPER.search(ast.unparse(each.test)) for each in _sides_around(script, parent)):
        return
    yield violation_at_node(
        parent,
        f"DDP has no attribute `{name}`, so the answer is no though the model inside may have it: with several ranks "
        "nothing of this is run",
        0.7,
        severity="warning",
        patch=lambda: _of_inner(script, held),
    )


def _either(script: Script, choice: ast.If) -> Iterator[Violation]:
    """Yield the reads from a model under a condition that also holds if only its ``.module`` has what is read."""
    if not isinstance(choice.test, ast.BoolOp) or not isinstance(choice.test.op, ast.Or):
        return
    asked = {
        f"{dotted_name(call.args[0])}.{call.args[1].value}"
        for call in walk(choice.test)
        if isinstance(call, ast.Call) and last_name(call) == "hasattr" and len(call.args) == 2
        if isinstance(call.args[1], ast.Constant) and dotted_name(call.args[0])
    }
    inner = {name for name in asked if _inside(name) in asked}
    reads = [node for stmt in choice.body for node in walk(stmt) if isinstance(node, ast.Attribute)]
    for node in reads:
        name = dotted_name(node)
        if name in inner and not any(dotted_name(each) == _inside(name) for each in reads):
            yield violation_at_node(
                node,
                f"line {choice.lineno} also goes on if only `{_inside(name)}` is there, and DDP around the model has "
                f"no attribute `{node.attr}`",
                0.8,
                severity="warning",
                patch=lambda node=node: _of_either(script, node),
            )


def _inside(name: str) -> str:
    """Return the name of an attribute as it is read from the model inside a wrapper."""
    model, _, attribute = name.rpartition(".")
    return f"{model}.module.{attribute}"


def _of_either(script: Script, read: ast.Attribute) -> Patch:
    code = script.source.code(read.value)
    return Patch(id=FIX, safety="safe", edits=[script.source.replace(read.value, f'getattr({code}, "module", {code})')])


def _opens(script: Script, call: ast.Call) -> bool:
    """Return whether the function around a call does something with the model inside a wrapper."""
    around = script.names.enclosing_function(call) or script.source.tree
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "module")
        or (isinstance(node, ast.Call) and "unwrap" in last_name(node))
        or (isinstance(node, ast.Constant) and node.value == "module")
        for node in walk(around)
    )


def _given(script: Script, call: ast.Call, wraps: set[Key]) -> Iterator[Violation]:
    """Yield the calls of functions of libraries that read the model, and get its wrapper."""
    name = last_name(call)
    if name not in READS_MODEL or not call.args or not isinstance(call.args[0], ast.Name | ast.Attribute):
        return
    model = call.args[0]
    key = script.evaluated.value(model)
    prepared = key is not None and key.op == "prepared"
    if any(_takes_inner(origin) for origin in (model, *origins_at(script, model))):
        return
    if prepared or _is_wrapped(script, model, wraps):
        wrapper = "what prepare returns, with several processes DDP" if prepared else "DDP"
        yield violation_at_node(
            call,
            f"`{name}` reads attributes of the model, and `{dotted_name(model)}` is {wrapper}: unwrap it first",
            0.8,
            severity="warning" if prepared else None,
            patch=None if prepared else lambda: _of_inner(script, model),
        )


def _takes_inner(node: ast.AST) -> bool:
    """Return whether an expression is the model inside a wrapper, by the name of what gives it."""
    name = last_name(node) if isinstance(node, ast.expr) else ""
    return name == "module" or "unwrap" in name


def _of_inner(script: Script, model: ast.expr) -> Patch:
    code = inner_model(script, model) if isinstance(model, ast.Name | ast.Attribute) else ""
    if not code:
        return no_patch(FIX, "ask `.module` of the wrapped model")
    return Patch(id=FIX, safety="safe", edits=[script.source.replace(model, code)])


def _read(script: Script, function: Function) -> Iterator[Violation]:
    """Yield the reads of attributes of a model that the same function unwraps before it uses it elsewhere."""
    nodes = [node for node in walk(function) if script.names.enclosing_function(node) is function]
    opened = {
        dotted_name(node.args[0]): node
        for node in nodes
        if isinstance(node, ast.Call) and last_name(node) in UNWRAPS and len(node.args) == 1 and not node.keywords
    }
    if not opened:
        return
    set_here = names_set(function)
    engines = {dotted_name(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr in OF_ENGINE}
    for node in nodes:
        name = dotted_name(node.value) if isinstance(node, ast.Attribute) else ""
        if not isinstance(node, ast.Attribute) or name not in opened or not isinstance(node.ctx, ast.Load):
            continue
        if node.attr in DDP_API or node.attr.startswith("_") or name in set_here or "." not in name:
            continue
        if is_asked_for(script, node) or _are_apart(script, node, opened[name]) or name in engines:
            continue
        yield violation_at_node(
            node,
            f"`{name}` is unwrapped in this function (line {opened[name].lineno}), and read here as it is: with "
            f"several ranks it is DDP, which has no attribute `{node.attr}`",
            0.75,
            severity="warning",
            patch=lambda node=node, call=opened[name]: Patch(
                id=FIX, safety="safe", edits=[script.source.replace(node.value, script.source.code(call))]
            ),
        )


def _are_apart(script: Script, node: ast.expr, other: ast.expr) -> bool:
    """Return whether two expressions are in different sides of one condition."""
    sides = _sides_around(script, other)
    return any(sides.get(choice, side) != side for choice, side in _sides_around(script, node).items())


def _sides_around(script: Script, node: ast.expr | ast.stmt) -> dict[ast.If | ast.IfExp, bool]:
    """Return the conditions around a node, with whether it is in their other side."""
    found: dict[ast.If | ast.IfExp, bool] = {}
    at: ast.AST = node
    parent = script.source.parents.get(node)
    while parent is not None and not isinstance(parent, FUNCTIONS):
        if isinstance(parent, ast.If):
            found[parent] = at in parent.orelse
        elif isinstance(parent, ast.IfExp):
            found[parent] = at is parent.orelse
        at, parent = parent, script.source.parents.get(parent)
    return found
