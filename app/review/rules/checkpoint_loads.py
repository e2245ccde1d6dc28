"""DW504: checkpoints that all ranks load onto one device."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, parts
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.users import SOURCES, users
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, contains_line, last_name
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at
from .checkpoints import FIRST_OF_NODES, LOAD

OF_NUMBERS = re.compile(
    r"sched|scaler|sampler|loader|trt", re.IGNORECASE
)  # objects whose states hold numbers or an engine, not tensors
OPTIMIZER = re.compile("optim", re.IGNORECASE)
DEVICES = re.compile(r"cuda|device|accelerat|nccl|\.to\(", re.IGNORECASE)
TO_CPU = "load-to-cpu"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW504: yield the loads of a checkpoint that put every rank's copy on the device it was saved from."""
    loads = list(run.of(LOAD))
    if not loads or _saves_from_cpu(script) or not _may_use_gpus(script):
        return
    distributed = run.distributed or any(each.distributed for each in script.runs)
    only = {reach.calls for reach, _ in loads if sum(reach.calls == each.calls for each, _ in loads) == 1}
    given = [
        (reach, fact.values[0])
        for reach, fact in run.of(".load_state_dict")
        if fact.values and not _is_of_numbers(fact.node.func)
    ]
    for reach, fact in loads:
        if not fact.values or len(fact.values) > 1 or {"map_location", "**"} & fact.named.keys():
            continue
        if not script.is_here(reach) and len(reach.calls) > 1:
            continue  # it is a finding of the file between
        where = _unused_map_location(script, reach, fact) or _other_map_location(script, reach, fact)
        own = fact.values[0].key.differs_by & BY_RANK  # a file of each rank, whose tensors return to the rank's own GPU
        if where or (
            distributed
            and not own
            and reach.several
            and reach.ranks & ~FIRST_OF_NODES
            and not _on_cpu(run)
            and any(_is_loaded(fact, state, at.calls == reach.calls and at.calls in only) for at, state in given)
        ):
            yield from violation_at(
                script,
                reach,
                "map_location is not passed on: these tensors are loaded onto the GPU that they were saved from"
                if where
                else "without map_location every rank loads these tensors onto the GPU that they were saved from",
                0.85 if where else 0.8,
                severity=None if where or _is_of_training(script, run, fact) else "info",
                patch=(lambda fact=fact, where=where: _load_to(script, fact, where)) if script.is_here(reach) else None,
            )


def _is_of_training(script: Script, run: Run, load: Noted) -> bool:
    """Return whether a file is a checkpoint of a training: a part or an optimizer is loaded, or the program saves it.

    Published weights are one state as a whole, mostly of tensors on the CPU.
    """
    path = load.values[0].key
    saved = (argument(fact, 1, "f") for _, fact in script.noted("torch.save"))
    whole = [
        fact.node.func for _, fact in run.of(".load_state_dict") if load.result.key in (v.key for v in fact.values)
    ]
    optimizers = any(isinstance(each, ast.Attribute) and OPTIMIZER.search(last_name(each.value)) for each in whole)
    return not whole or optimizers or any(to and to.key is path for to in saved)


def _may_use_gpus(script: Script) -> bool:
    """Return whether the script, or a module or script of its project that it is used with, names devices."""
    if script.mentions(DEVICES) or not Path(script.source.path).is_absolute():
        return True
    sources = [SOURCES.source(each) for each in users(Path(script.source.path))]
    return not sources or any(each is None or DEVICES.search(each.text) for each in sources)


def _is_of_numbers(method: ast.expr) -> bool:
    """Return whether the object of a method has a state without tensors, by its name."""
    return isinstance(method, ast.Attribute) and bool(OF_NUMBERS.search(last_name(method.value)))


def _saves_from_cpu(script: Script) -> bool:
    """Return whether the parts of what the script saves are moved to the CPU before, where it saves a model."""
    if not script.mentions("save") or not script.mentions(".cpu()"):
        return False
    tree = script.source.tree
    moved = [node.lineno for node in nodes_of_kinds(tree, ast.Expr, ast.DictComp, ast.Assign) if _moves_parts(node)]
    functions = nodes_of_kinds(tree, *FUNCTIONS)
    around = [node for node in functions if any(contains_line(node, at) for at in moved)]
    return any(_is_save(script, node) for function in around for node in walk(function))


def _moves_parts(node: ast.AST) -> bool:
    """Return whether each part of a mapping is moved to the CPU, or a model with all its parts."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="cpu"), args=[], keywords=[])):
            return True
        case ast.DictComp(value=value) | ast.Assign(targets=[ast.Subscript()], value=value):
            return isinstance(value, ast.Call) and last_name(value.func) == "cpu"
    return False


def _is_save(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and script.names.qualified(node.func) == "torch.save"


def _is_loaded(load: Noted, state: Value, only: bool) -> bool:
    """Return whether a state is what ``load`` returns, or made of it as the ``only`` load of a function."""
    return load.result.key in parts(state.key) or (only and "checkpoint" in state.facts)


def _unused_map_location(script: Script, reach: Reach, load: Noted) -> str:
    """Return the parameter of the function around a load that says where to load to, if nothing reads it."""
    function = script.names.enclosing_function(load.node) if script.is_here(reach) else None
    if function is None or isinstance(function, ast.Lambda):
        return ""
    given = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    read = {each.id for each in walk(function) if isinstance(each, ast.Name)}
    return "map_location" if "map_location" in given and "map_location" not in read else ""


def _other_map_location(script: Script, reach: Reach, load: Noted) -> str:
    """Return where the other loads of the function around a load put tensors, if all of them say the same."""
    function = script.names.enclosing_function(load.node) if script.is_here(reach) else None
    if function is None or not _fills(script, load.node):
        return ""
    calls = [
        node for node in walk(function) if isinstance(node, ast.Call) and script.names.qualified(node.func) == LOAD
    ]
    given = {
        script.source.code(each.value) if isinstance(each.value, ast.Name) else ""
        for call in calls
        for each in call.keywords
        if each.arg == "map_location"
    }
    return next(iter(given)) if len(given) == 1 else ""


def _fills(script: Script, load: ast.Call) -> bool:
    """Return whether a loaded state is that of an optimizer or a model, by the call that takes it in its function."""
    parent = script.source.parents.get(load)
    name = parent.targets[0].id if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name) else ""
    function = script.names.enclosing_function(load)
    return any(
        isinstance(node, ast.Call)
        and last_name(node.func) == "load_state_dict"
        and not _is_of_numbers(node.func)
        and any(each is load or (name and isinstance(each, ast.Name) and each.id == name) for each in node.args)
        for node in walk(function or load)
    )


def _on_cpu(run: Run) -> bool:
    """Return whether the backend of the process group is one for CPUs."""
    backends = [argument(fact, 0, "backend") for _, fact in run.of("torch.distributed.init_process_group")]
    return any(each and each.key.is_constant and each.key.value in ("gloo", "mpi") for each in backends)


def _load_to(script: Script, fact: Noted, where: str) -> Patch:
    edit = script.source.add_argument(fact.node, f"map_location={where}" if where else 'map_location="cpu"')
    if edit is None:
        return no_patch(TO_CPU, "pass map_location to this call")
    return Patch(
        id=TO_CPU,
        safety="safe" if where else "unsafe",
        why_unsafe="" if where else "what is used directly from the checkpoint is then on the CPU",
        edits=[edit],
    )
