"""DW496: lengths of loaders as they are before Accelerate shares out their batches."""

import ast
from collections.abc import Iterator, Set
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run
from ...training_script.nodes import walk
from ...training_script.syntax import dotted_name
from ..patches.names_in_code import names_read, names_set
from ..patches.prepared_values import length_after_prepare
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node

SCHEDULES = ("transformers.get_", "transformers.optimization.get_", "torch.optim.lr_scheduler.")
OF_PROCESSES = "num_processes"
OF_RANKS = {"num_processes", "world_size", "num_gpus", "n_gpus", "num_devices", "n_devices"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield what is computed of the length of a loader from before prepare: by its name, and for schedules."""
    yield from _schedules(script, run)
    yield from _by_name(script, run)


def _schedules(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the schedules as long as a loader before prepare that prepare does not get, so that each rank steps them.

    One that prepare gets makes a step for each rank in each round.
    """
    prepares = [fact for _, fact in run.of(".prepare") if fact.owner and "accelerator" in fact.owner.facts]
    given = {value.key for fact in prepares for value in fact.values}
    loaders = {value.key for fact in prepares for value in fact.values if "loader" in value.facts}
    trained = [each.loops for each in run.reached if each.name == "accelerator.backward" and each.loops]
    stepped = {fact.owner.key for reach, fact in run.of(".step") if fact.owner and reach.loops in trained}
    for reach in run.reached if loaders else ():
        fact = reach.fact
        if not isinstance(fact, Noted) or not fact.name.startswith(SCHEDULES) or fact.result.key in given:
            continue
        of_loader = any(
            part.op == "length" and any(arg in loaders for arg in part.args if isinstance(arg, Key))
            for value in (*fact.values, *fact.named.values())
            for part in parts(value.key)
        )
        if of_loader and fact.result.key in stepped and not script.mentions(OF_PROCESSES):
            yield from violation_at(
                script,
                reach,
                "this schedule is as long as the batches of all ranks, and prepare does not get it: each rank makes "
                "only its share of these steps, so that it ends before the schedule does",
                0.75,
            )


def _by_name(script: Script, run: Run) -> Iterator[Violation]:
    """Yield what is computed of the length of a loader that prepare has returned under another name."""
    for _, fact in run.of(".prepare"):
        stmt = script.source.parents.get(fact.node)
        of_accelerate = dotted_name(fact.node.func).endswith("accelerator.prepare")
        if not isinstance(stmt, ast.Assign) or not (
            of_accelerate or (fact.owner and "accelerator" in fact.owner.facts)
        ):
            continue
        target = stmt.targets[0]
        targets = [
            dotted_name(each) for each in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])
        ]
        given = [dotted_name(each) for each in fact.node.args]
        stale = {
            name: prepared
            for name, prepared in zip(given, targets, strict=False)
            if prepared and "load" in name.rpartition(".")[2] and name not in targets
        }
        for call, name in _lengths(script, stmt, stale.keys()):
            yield violation_at_node(
                call,
                f"`{name}` is the loader before prepare, and counts the batches of all ranks: each rank has as many as "
                f"`{stale[name]}`",
                0.75,
                patch=partial(length_after_prepare, script, stmt, call, stale[name]),
            )


def _lengths(script: Script, prepared: ast.Assign, names: Set[str]) -> Iterator[tuple[ast.Call, str]]:
    """Yield the lengths of some loaders that are computed with behind a statement, and nothing about the ranks."""
    around = script.names.enclosing_function(prepared) or script.source.tree
    later = [node for node in walk(around) if getattr(node, "lineno", 0) > (prepared.end_lineno or prepared.lineno)]
    bound = {name for node in later if isinstance(node, ast.Assign | ast.For | ast.With) for name in names_set(node)}
    for node in later:
        match node:
            case ast.Call(func=ast.Name(id="len"), args=[given]) if dotted_name(given) in names - bound:
                used = script.source.statement_of(node)
                about = {name.rpartition(".")[2] for name in names_read(used)}
                if isinstance(used, ast.Assign | ast.AugAssign) and not about & OF_RANKS:
                    yield node, dotted_name(given)
            case _:
                pass
