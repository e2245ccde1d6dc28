"""DW123: ranks that are started one after the other, get another number than their own, or no place to meet."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.noted_calls import INIT
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.project_imports import read_module
from ...training_script.rank_names import rank_kind
from ...training_script.syntax import FUNCTIONS, LOOPS, Function, call_argument, last_name, nodes_of_body
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at, violation_at_node
from .spawned_processes import SPAWN

SIZES = {"world_size", "nprocs", "n_procs", "num_procs", "ngpus", "n_gpus", "num_gpus", "size", "args", "cfg", "config"}
MEETS = re.compile(r"MASTER_ADDR|tcp://|file://|FileStore|TCPStore|torchrun|SLURM")
COMMUNICATES = re.compile(r"init_process_group|all_reduce|barrier|DistributedDataParallel")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the starts of ranks with which the ranks cannot meet."""
    yield from _other_parameters(script, run)
    yield from _without_address(script, run)
    if run.function is None:
        yield from _one_by_one(script)


def _other_parameters(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the functions that ``spawn`` gives the number of the process, and that take it for something else."""
    for reach, fact in run.of(*SPAWN):
        function, given = call_argument(fact.node, "fn", 0), call_argument(fact.node, "args", 1)
        if not script.is_here(reach) or not isinstance(function, ast.Name):
            continue
        made = [bound.at for bound in script.names.bindings(function)]
        target = made[0] if len(made) == 1 and isinstance(made[0], FUNCTIONS) else None
        names = [each.arg for each in (*target.args.posonlyargs, *target.args.args)] if target else []
        others = [name for name in names[1:] if _is_rank(name)]
        if not (names and names[0] in SIZES and others) or _passes_rank(given, names.index(others[0]) - 1):
            continue
        yield from violation_at(
            script,
            at_node(script, reach, function),
            f"spawn passes the number of the process first, and the first parameter of {function.id} is `{names[0]}`: "
            f"`{others[0]}` is what is in args",
            0.85,
            related=[RelatedPlace(path=script.source.path, line=target.lineno, message="the function")]
            if target
            else [],
        )


def _is_rank(name: str) -> bool:
    return bool(rank_kind(name)) or name in ("gpu", "gpu_id", "proc_id", "process_id")


def _passes_rank(given: ast.expr | None, place: int) -> bool:
    """Return whether what is passed for a parameter is named as a rank, too, or is not known."""
    if not isinstance(given, ast.Tuple | ast.List) or place >= len(given.elts):
        return True
    return any(
        isinstance(node, ast.Name | ast.Attribute) and _is_rank(last_name(node)) for node in ast.walk(given.elts[place])
    )


def _without_address(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the process groups of started ranks that meet by variables which nothing sets."""
    if not any(run.of(*SPAWN)):
        return
    for reach, fact in run.of(INIT):
        method, store = argument(fact, 1, "init_method"), argument(fact, 5, "store")
        by_variables = method is None or method.key is run.keys.none or method.key is run.keys.constant("env://")
        if not (reach.started and by_variables and store is None) or script.mentions(MEETS):
            continue
        if any(MEETS.search(read_module(path) or "") for path in script.evaluated.modules):
            continue
        yield from violation_at(
            script,
            reach,
            "the ranks that this program starts meet at MASTER_ADDR and MASTER_PORT, and nothing sets these: set both "
            "before, or pass init_method",
            0.75,
            severity="warning",
        )


def _one_by_one(script: Script) -> Iterator[Violation]:
    """Yield the waits for the end of a process in the loop that starts it, if these processes are ranks."""
    if not script.mentions("Process("):
        return
    for loop in nodes_of_kinds(script.source.tree, *LOOPS):
        started = dict(_started(script, loop))
        for node in (each for stmt in loop.body for each in nodes_of_body(stmt)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="join"), args=[], keywords=[]) if (
                    name in started
                ):
                    yield violation_at_node(
                        node,
                        f"each process is waited for before the next one starts: the first one waits in "
                        f"{started[name].name} for ranks that do not come",
                        0.85,
                        related=[
                            RelatedPlace(path=script.source.path, line=started[name].lineno, message="the function")
                        ],
                    )
                case _:
                    pass


def _started(script: Script, loop: ast.For | ast.AsyncFor | ast.While) -> Iterator[tuple[str, Function]]:
    """Yield the names of the processes that a loop makes, with their functions if these need other ranks."""
    for stmt in loop.body:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if last_name(made.func) == "Process":
                target = call_argument(made, "target")
                bound = [each.at for each in script.names.bindings(target)] if isinstance(target, ast.Name) else []
                for function in bound:
                    if isinstance(function, FUNCTIONS) and _is_of_ranks(script, function):
                        yield name, function
            case _:
                pass


def _is_of_ranks(script: Script, function: Function) -> bool:
    """Return whether a function, or one of the file that it calls, needs other ranks."""
    called = {last_name(node.func) for node in nodes_of_body(function) if isinstance(node, ast.Call)}
    bodies = [each for each in script.source.tree.body if isinstance(each, FUNCTIONS) and each.name in called]
    return any(COMMUNICATES.search(script.source.code(each)) for each in (function, *bodies))
