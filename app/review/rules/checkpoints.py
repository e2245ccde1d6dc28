"""DW501, DW502 and DW504: checkpoints that several ranks write, or load onto one device."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, RANKS, Key, parts
from ...training_script.model.library_calls import OF_FILE
from ...training_script.model.reach import ALL, Reach, Run, argument, same_on_ranks, together
from ...training_script.model.sequences import Event
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, last_name
from ..one_node import is_for_one_node
from ..patches.guard_statement import guard_statement
from ..patches.writer_of_all import write_on_global_rank
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

SAVES = {
    "torch.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
    ".save_pretrained": (0, "save_directory"),
}
MOVES = ("os.replace", "os.rename")
COPIES = ("shutil.copyfile", "shutil.copy", "shutil.copy2", *MOVES)
CERTAIN = ("torch.save", "safetensors.torch.save_file")
WRITES = {**SAVES, **dict.fromkeys(COPIES, (1, "dst"))}
LOAD = "torch.load"
FIRST_OF_NODES = sum(1 << bit for bit, rank in enumerate(RANKS) if rank.local == 0)
OF_NUMBERS = re.compile(
    r"sched|scaler|sampler|loader|trt", re.IGNORECASE
)  # objects whose states hold numbers or an engine, not tensors
SHARDS = re.compile(r"fsdp|fully_?shard", re.IGNORECASE)
GUARD = "guard-save"
TO_CPU = "load-to-cpu"


def check_race(script: Script, run: Run) -> Iterator[Violation]:
    """DW501: yield the writes of all ranks to one file."""
    writes = list(_shared_writes(run))
    for reach, fact in writes:
        if reach.ranks != ALL:
            continue
        # A function that some call for one rank only is right: the call for all ranks is not.
        elsewhere = any(each.fact.site == fact.site and not each.several for each in run.reached)
        here = script.is_here(reach) and not elsewhere
        where = "" if here else f" ({fact.site.path.rpartition('/')[2]}:{fact.site.line})"
        yield from violation_at(
            script,
            reach._replace(fact=fact._replace(site=reach.calls[-1])) if elsewhere and reach.calls else reach,
            f"every rank writes this file{where}: its path is the same on all of them",
            0.85,
            severity=None if fact.name in CERTAIN and run.surely_distributed and not _if_missing(reach) else "warning",
            patch=(lambda reach=reach, fact=fact: _guarded(script, run, reach, fact)) if here else None,
        )


def check_local_writer(script: Script, run: Run) -> Iterator[Violation]:
    """DW502: yield the saves of one rank of each node to one file."""
    writes = list(_shared_writes(run))
    if not writes or is_for_one_node(script):
        return
    saved = {path.key for _, fact in writes if fact.name not in COPIES and (path := _target(fact))}
    loads = [(reach, path.key) for reach, fact in run.of(LOAD) if (path := argument(fact, 0, "f"))]
    for reach, fact in writes:
        path = _target(fact)
        if path and (_is_of_node(path.key) or any(path.key is read and _later(run, reach, at) for at, read in loads)):
            continue  # each node writes what its ranks read then, or by its name what is on its own disk
        copied = argument(fact, 0, "src") if fact.name in COPIES else None
        if copied and copied.key not in saved:
            continue  # data are copied to the disks of all nodes on purpose
        deciding = [each for each in reach.conditions if _is_local_rank(each.test)]
        if reach.ranks == FIRST_OF_NODES and deciding and not any(_is_chosen(each.test) for each in reach.conditions):
            condition = deciding[-1]
            yield from violation_at(
                script,
                reach,
                "one rank of each node writes this file: its path is the same on all nodes",
                0.7,
                branch=condition.site.line if condition.site.path == script.source.path else None,
                patch=partial(write_on_global_rank, script, condition),
            )


def _later(run: Run, reach: Reach, other: Reach) -> bool:
    """Return whether a fact may be reached after another one, in the same round of each loop."""
    return together(reach, other) and run.reached.index(other) > run.reached.index(reach)


def check_load(script: Script, run: Run) -> Iterator[Violation]:
    """DW504: yield the loads of a checkpoint that put every rank's copy on the device it was saved from."""
    loads = list(run.of(LOAD))
    if not loads or _saves_from_cpu(script):
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
        where = _unused_map_location(script, reach, fact)
        own = fact.values[0].key.spread & BY_RANK  # a file of each rank, whose tensors return to the rank's own GPU
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
                patch=(lambda fact=fact, where=where: _load_to(script, fact, where)) if script.is_here(reach) else None,
            )


def _is_of_numbers(method: ast.expr) -> bool:
    """Return whether the object of a method has a state without tensors, by its name."""
    return isinstance(method, ast.Attribute) and bool(OF_NUMBERS.search(last_name(method.value)))


def _saves_from_cpu(script: Script) -> bool:
    """Return whether the parts of what the script saves are moved to the CPU before, where it saves a model."""
    if "save" not in script.source.text or ".cpu()" not in script.source.text:
        return False
    saving = [
        any(_moves_parts(node) for node in nodes_below(function))
        for function in script.names.scope_of
        if isinstance(function, FUNCTIONS) and any(_is_save(script, node) for node in nodes_below(function))
    ]
    return any(saving)


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
    read = {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}
    return "map_location" if "map_location" in given and "map_location" not in read else ""


def _shared_writes(run: Run) -> Iterator[tuple[Reach, Noted]]:
    if not run.distributed:
        return
    for reach, fact in run.of(*WRITES):
        path, copied = _target(fact), argument(fact, 0, "src")
        if {"**", "is_main_process", "save_function"} & fact.named.keys() or reach.attempted:
            continue
        if fact.name in MOVES and copied and not same_on_ranks(copied.key):
            continue  # each rank moves a file of its own there, in one step
        if path and reach.several and same_on_ranks(path.key) and run.is_of_several(reach):
            yield reach, fact


def _target(fact: Noted) -> Value | None:
    """Return the path that is written."""
    return argument(fact, *WRITES[fact.name])


def _if_missing(reach: Reach) -> bool:
    """Return whether a file is written only if some file is not there yet."""
    return any(
        part.op in ("call", "local") and str(part.args[0]).endswith(("exists", "is_file", "isfile", OF_FILE))
        for each in reach.conditions
        for part in parts(each.test)
    )


def _is_local_rank(test: Key) -> bool:
    return any(each.op == "rank" and each.args[0] == "local" for each in parts(test))


def _is_chosen(test: Key) -> bool:
    """Return whether an option decides if one rank of all writes, or one of each node."""
    kinds = [
        {each.args[0] for arm in part.args[1:] for each in parts(arm) if each.op == "rank"}
        for part in parts(test)
        if part.op == "if"
    ]
    return any({"local", "global"} <= each for each in kinds)


def _is_of_node(path: Key) -> bool:
    """Return whether a path is made of an option that is named after the disk of a node."""
    return any(part.op == "attribute" and "local" in str(part.args[1]).lower() for part in parts(path))


def _on_cpu(run: Run) -> bool:
    """Return whether the backend of the process group is one for CPUs."""
    backends = [argument(fact, 0, "backend") for _, fact in run.of("torch.distributed.init_process_group")]
    return any(each and each.key.is_constant and each.key.value in ("gloo", "mpi") for each in backends)


def _guarded(script: Script, run: Run, reach: Reach, fact: Noted) -> Patch:
    inside = range(fact.site.line, fact.site.end_line + 1)
    waits = any(isinstance(each.fact, Event) and each.fact.site.line in inside for each in run.reached)
    if waits or any(SHARDS.search(name) for name in _used_names(script)):
        return no_patch(GUARD, "what is saved may need all ranks: build it on every rank, and save it on rank 0")
    others_wait = _is_read_next(run, reach, fact)
    if others_wait and (reach.unsure or not all(each.test.is_constant for each in reach.conditions)):
        return no_patch(GUARD, "save it on rank 0, and let the ranks that load it next wait for that")
    return guard_statement(script, fact.node, GUARD, others_wait=others_wait)


def _used_names(script: Script) -> Iterator[str]:
    """Yield the names, attributes and texts of a script; imports alone use nothing."""
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Name():
                yield script.names.qualified(node) or node.id
            case ast.Attribute(attr=name) | ast.keyword(arg=str() as name) | ast.Constant(value=str() as name):
                yield name


def _is_read_next(run: Run, write: Reach, fact: Noted) -> bool:
    """Return whether another rank loads what is written before it waits for the others."""
    path = _target(fact)
    for reach in run.reached[run.reached.index(write) + 1 :]:
        if isinstance(reach.fact, Event):
            return False
        if reach.fact.name == LOAD and isinstance(reach.fact, Noted) and together(write, reach):
            read = argument(reach.fact, 0, "f")
            if path and read and read.key is path.key and reach.several:
                return True
    return False


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
