"""The patches that use what ``prepare`` of Accelerate returns in the way that it is meant."""

import ast
from collections.abc import Iterator

from ...training_script.edits import Edit
from ...training_script.model.module_api import DDP_API
from ...training_script.nodes import nodes_below
from ...training_script.syntax import dotted_name
from ..rule_context import Patch, Script, no_patch
from .torch_names import is_bound

LENGTH, STATE, ITERATOR = "length-after-prepare", "state-of-inner-model", "iterate-after-prepare"
MODEL, BACKWARD = "prepare-model-too", "backward-by-accelerator"
PREPARE = "model, optimizer = accelerator.prepare(model, optimizer)"
SCHEDULES = "a schedule that Accelerate steps for all processes counts the batches of all"
EARLIER_FILES = "files of earlier runs have the prefix"
READ_LATER = "what draws random numbers when the loader is read does so later"


def length_after_prepare(script: Script, prepared: ast.Assign, call: ast.Call, name: str) -> Patch:
    """Return the patch that takes the length of the loader that ``prepare`` has returned as ``name``."""
    above = script.source.parents.get(call)
    block = script.source.parents.get(prepared)
    while above is not None and above is not block:
        above = script.source.parents.get(above)
    if above is None:
        return no_patch(LENGTH, "take the length of what prepare returns")
    edits = [script.source.replace(call.args[0], name)]
    return Patch(id=LENGTH, safety="unsafe", why_unsafe=SCHEDULES, edits=edits)


def state_of_inner_model(script: Script, call: ast.Call, *, by_all: bool) -> Patch:
    """Return the patch that saves the state of the model inside the wrapper, and loads it into that model."""
    source, owner = script.source, call.func.value if isinstance(call.func, ast.Attribute) else None
    accelerator, model = _accelerator(script, call), dotted_name(owner) if owner is not None else ""
    if not accelerator or not model or owner is None:
        return no_patch(STATE, "save accelerator.get_state_dict(model), and load into accelerator.unwrap_model(model)")
    inner = f"{accelerator}.unwrap_model({model})"
    saved = source.replace(call, f"{accelerator}.get_state_dict({model})") if by_all else source.replace(owner, inner)
    edits = [saved]
    for node in nodes_below(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=held, attr="load_state_dict")) if dotted_name(held) == model:
                if _accelerator(script, node) != accelerator:
                    return no_patch(STATE, "load it into accelerator.unwrap_model(model), and save the state of that")
                edits.append(source.replace(held, inner))
            case _:
                pass
    return Patch(id=STATE, safety="unsafe", why_unsafe=EARLIER_FILES, edits=edits)


def iterate_after_prepare(script: Script, prepare: ast.Call, given: ast.expr) -> Patch:
    """Return the patch that gives ``prepare`` the loader and makes the iterator over what it returns."""
    why, source = "prepare the DataLoader, and make the iterator over what prepare returns", script.source
    stmt = source.statement_of(prepare)
    last = stmt.end_lineno or stmt.lineno
    whole = isinstance(stmt, ast.Assign) and stmt.value is prepare and source.alone(stmt) and last < len(source.starts)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    made = list(_iterators(script, stmt, given))
    if not whole or given not in prepare.args or len(targets) != len(prepare.args) or len(made) != 1:
        return no_patch(ITERATOR, why)
    got = targets[prepare.args.index(given)]
    if not isinstance(got, ast.Name | ast.Attribute):
        return no_patch(ITERATOR, why)
    name, loader = source.code(got), made[0].args[0]
    made_of_it = f"{source.code(made[0].func)}({name})"
    edits = [
        source.replace(made[0], source.code(loader)),
        source.insert_line(last + 1, f"{name} = {made_of_it}", source.indent(stmt.lineno)),
    ]
    return Patch(id=ITERATOR, safety="unsafe", why_unsafe=READ_LATER, edits=edits)


def prepare_model_too(script: Script, prepare: ast.Call, model: ast.expr) -> Patch:
    """Return the patch that passes ``prepare`` the model of an optimizer, and takes what it returns under its name."""
    source, stmt = script.source, script.source.statement_of(prepare)
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    named = isinstance(model, ast.Name) and is_bound(script, model.id, stmt)
    if not isinstance(model, ast.Name) or not named or target is None or not prepare.args:
        return no_patch(MODEL, PREPARE)
    whole = isinstance(stmt, ast.Assign) and stmt.value is prepare and source.code(target)[:1] not in "(["
    if not whole or not _is_plain(script, model.id, stmt):
        return no_patch(MODEL, PREPARE)
    places = source.start(target), source.start(prepare.args[0])
    edits = [Edit(at, at, f"{model.id}, ") for at in places]
    reason = "the model is in DDP from there on: its forward pass needs every rank, and its own attributes are inside"
    return Patch(id=MODEL, safety="unsafe", why_unsafe=reason, edits=edits)


def _is_plain(script: Script, name: str, prepare: ast.stmt) -> bool:
    """Return whether a function uses a model behind ``prepare`` only as DDP allows it too."""
    function = script.names.enclosing_function(prepare)
    for node in nodes_below(function or script.source.tree):
        if isinstance(node, ast.Name) and node.id == name and node.lineno > prepare.lineno:
            used = script.source.parents.get(node)
            if isinstance(node.ctx, ast.Store) or (isinstance(used, ast.Attribute) and used.attr not in DDP_API):
                return False
    return True


def backward_by_accelerator(script: Script, backward: ast.Call) -> Patch:
    """Return the patch by which Accelerate makes a backward pass."""
    accelerator, source = _accelerator(script, backward), script.source
    loss = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    key = script.evaluated.value(loss) if loss is not None else None
    if not accelerator or loss is None or backward.args or key is None or key.args[:1] == ("Div",):
        return no_patch(BACKWARD, "call accelerator.backward(loss), with a loss that the script does not divide")
    given = [source.one_line(loss), *(f"{each.arg}={source.one_line(each.value)}" for each in backward.keywords)]
    edits = [source.replace(backward, f"{accelerator}.backward({', '.join(given)})")]
    return Patch(
        id=BACKWARD, safety="unsafe", why_unsafe="a loss that is divided by hand is divided twice", edits=edits
    )


def _iterators(script: Script, prepare: ast.stmt, given: ast.expr) -> Iterator[ast.Call]:
    """Yield the call that makes an iterator, where nothing else reads it before ``prepare``."""
    if isinstance(given, ast.Call):
        if _reads_one(given):
            yield given
        return
    block, name = script.source.block_of(prepare), dotted_name(given)
    for number, stmt in enumerate(block[: block.index(prepare)] if prepare in block else ()):
        match stmt:
            case ast.Assign(targets=[target], value=ast.Call() as made) if (
                name and dotted_name(target) == name and _reads_one(made)
            ):
                between = (node for each in block[number + 1 : block.index(prepare)] for node in ast.walk(each))
                if not any(isinstance(node, ast.expr) and dotted_name(node) == name for node in between):
                    yield made
            case _:
                pass


def _reads_one(made: ast.Call) -> bool:
    """Return whether a call gets one value, on one line: the loader."""
    name = dotted_name(made.func)
    return bool(name) and len(made.args) == 1 and not made.keywords and made.lineno == made.end_lineno


def _accelerator(script: Script, at: ast.AST) -> str:
    """Return the name by which the function around a place, or its object, has the accelerator; "" if it may not."""
    around = script.names.enclosing_function(at) or script.source.tree
    names = {
        dotted_name(node)
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Name | ast.Attribute) and dotted_name(node).rpartition(".")[2] == "accelerator"
    }
    own = {dotted_name(node) for node in ast.walk(around) if isinstance(node, ast.Name | ast.Attribute)}
    fitting = names & own or {name for name in names if name.startswith("self.") and "self" in own}
    if not fitting and all("." not in name for name in names) and _is_global(script, names):
        fitting = names
    return fitting.pop() if len(fitting) == 1 else ""


def _is_global(script: Script, names: set[str]) -> bool:
    """Return whether the statements of the module itself set one of some names."""
    return any(
        isinstance(stmt, ast.Assign) and names & {dotted_name(each) for each in stmt.targets}
        for stmt in script.source.tree.body
    )
