"""DW412: directories, deletions and experiments of every rank, and what ``repeated_files`` finds."""

import ast
from collections.abc import Iterator
from functools import partial

from ....knowledge.schema import Severity
from ...training_script.model.compared_values import EXPERIMENT
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.library_effects import DELETES, EXPERIMENTS, LINKS, MOVES, UPLOADS
from ...training_script.model.reach import ALL, Reach, Run, argument, same_on_ranks
from ...training_script.model.sequences import Event, Site
from ...training_script.model.several_ranks import with_guards
from ..patches.guard_statement import guard_statement
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at
from . import repeated_files
from .repeated_files import RACE, elsewhere, severity_of

MAKES = ("os.makedirs", "os.mkdir", ".mkdir")
EXISTENCE = {"exists", "lexists", "isfile", "isdir", "is_file", "is_dir"}
EXIST_OK, DELETE = "allow-existing-directory", "delete-on-rank-0"
OF_HUB = {"transformers", "peft", "diffusers", "datasets", "trl", "huggingface_hub", "sentence_transformers"}
OTHER_DISKS = "on disks that nodes do not share the others keep it"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the side effects of all ranks that fail or double where a second rank has them too."""
    run = with_guards(run)
    found = [*_of_all(script, run)] if run.distributed else []
    of_some = script.sites_of_some if found and run.function else frozenset[Site]()
    lines = {site.line for site in of_some if site.path == script.source.path}
    yield from (each for each in found if each.line not in lines)


def _of_all(script: Script, run: Run) -> Iterator[Violation]:
    yield from _directories(script, run)
    yield from _links(script, run)
    yield from _deletions(script, run)
    yield from _experiments(script, run)
    yield from _uploads(script, run)
    yield from repeated_files.check(script, run)


def _directories(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*MAKES):
        path = fact.owner if fact.name == ".mkdir" else argument(fact, 0, "name", "path")
        if (
            not path
            or not reach.by_all
            or not same_on_ranks(path.key)
            or {"exist_ok", "**"} & fact.named.keys()
            or _is_made(run, reach, path.key)
        ):
            continue
        if len(fact.values) < (3 if fact.name != "os.mkdir" else 9):
            yield from violation_at(
                script,
                reach,
                f"every rank makes this directory{elsewhere(script, reach)}: for all but the first it exists already, "
                "or appears in between",
                0.75,
                severity=_severity(script, run, reach, path.key),
                cause=RACE,
                patch=(lambda fact=fact: _allow_existing(script, fact)) if script.is_here(reach) else None,
            )


def _links(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*LINKS):
        place, name = LINKS[fact.name]
        path = fact.owner if place < 0 else argument(fact, place, name)
        if path and reach.by_all and same_on_ranks(path.key) and run.is_of_several(reach):
            message = f"every rank makes this link{elsewhere(script, reach)}: for all but the first it exists already"
            patch = partial(_delete_once, script, reach, fact) if script.is_here(reach) else None
            severity = _severity(script, run, reach, path.key)
            yield from violation_at(script, reach, message, 0.75, severity=severity, cause=RACE, patch=patch)


def _severity(script: Script, run: Run, reach: Reach, path: Key) -> Severity | None:
    """Return the lowest severity where a helper first asks for a path: what else makes or deletes it is not known."""
    asks = any(part is path for each in reach.conditions for part in parts(each.test))
    asks = asks or any(_asks(part) for each in reach.own_conditions for part in parts(each.test))
    return "info" if asks and not script.is_here(reach) else severity_of(script, run, reach)


def _asks(key: Key) -> bool:
    return key.op == "call" and str(key.args[0]).rpartition(".")[2] in EXISTENCE


def _is_made(run: Run, reach: Reach, path: Key) -> bool:
    """Return whether a directory that is made where it is missing is there already, itself or with one below it.

    Every rank has made it before, or one has while the others waited.
    """
    if not any(part is path for each in reach.conditions for part in parts(each.test)):
        return False
    place = run.reached.index(reach)
    for number, each in enumerate(run.reached[:place]):
        if not isinstance(each.fact, Noted) or each.fact.name not in MAKES or (each.unsure and each.ranks != ALL):
            continue
        made = each.fact.owner if each.fact.name == ".mkdir" else argument(each.fact, 0, "name", "path")
        if made is None or not (made.key is path or (made.key.op == "call" and path in made.key.args[1:2])):
            continue
        if each.ranks != ALL and not any(_waits_for_all(other) for other in run.reached[number:place]):
            continue
        others = [condition for condition in each.conditions if condition not in reach.conditions]
        if all(made.key in parts(other.test) or other.test.differs_by & BY_RANK for other in others):
            return True
    return False


def _waits_for_all(reach: Reach) -> bool:
    return isinstance(reach.fact, Event) and reach.by_all


def _deletions(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*DELETES, *MOVES):
        of_path = fact.name.startswith(".")
        path = fact.owner if of_path else argument(fact, 0, "path", "src")
        moves = fact.name in MOVES
        ignored = argument(fact, 0, "missing_ok") if of_path else argument(fact, -1 if moves else 1, "ignore_errors")
        if path and ignored is None and not _is_memory(path.key) and reach.by_all and same_on_ranks(path.key):
            does = "moves" if moves else "deletes"
            message = f"every rank {does} this{elsewhere(script, reach)}: one of them finds it gone, or deletes what "
            message += "another has just written"
            patch = partial(_delete_once, script, reach, fact) if script.is_here(reach) else None
            severity = _severity(script, run, reach, path.key)
            yield from violation_at(script, reach, message, 0.75, severity=severity, cause=RACE, patch=patch)


def _delete_once(script: Script, reach: Reach, fact: Noted) -> Patch:
    """Return the patch that lets rank 0 delete a path; the others wait where all of them surely come there."""
    waits = not reach.conditions and not reach.loops  # ranks that ask for the path find it gone
    why = OTHER_DISKS if waits else "what another rank writes there next may be deleted"
    return guard_statement(script, fact.node, DELETE, others_wait=waits, why=why)


def _is_memory(held: Key) -> bool:
    """Return whether something is shared memory, which has a method of the same name as a path."""
    return any(str(part.args[0]).endswith("SharedMemory") for part in parts(held) if part.op in ("call", "library"))


def _experiments(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*EXPERIMENTS):
        if reach.by_all and not {"group", "mode", "**", "settings"} & fact.named.keys():
            yield from violation_at(
                script, reach, f"every rank starts a run of its own in {EXPERIMENTS[fact.name]}", 0.75
            )
    started = [reach for reach, _ in script.noted("wandb.init")]
    if not started or any(reach.unsure or reach.several for reach in started):
        return
    for reach, _ in run.of("wandb.log"):
        others = reach.several and not reach.attempted and not _asks_for_experiment(reach)
        others = others and any(reach.ranks & ~each.ranks for each in started)
        if others:
            who = "every rank logs" if reach.ranks == ALL else "several ranks log"
            yield from violation_at(
                script, reach, f"{who} this; the run of Weights & Biases exists on one of them only", 0.65
            )


def _asks_for_experiment(reach: Reach) -> bool:
    """Return whether a call is only made where the process has started a run of Weights & Biases."""
    return any(
        part.op == "library" and part.args[0] == EXPERIMENT for each in reach.conditions for part in parts(each.test)
    )


def _is_of_project(script: Script, call: ast.Call) -> bool:
    """Return whether a method is one of a parameter that is declared to be of a class of the project."""
    function, owner = script.names.enclosing_function(call), getattr(call.func, "value", None)
    if function is None or not isinstance(owner, ast.Name):
        return False
    given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    declared = next((each.annotation for each in given if each.arg == owner.id), None)
    found = [
        script.names.qualified(each) for each in (ast.walk(declared) if declared else ()) if isinstance(each, ast.expr)
    ]
    packages = {name.partition(".")[0] for name in found if "." in name}
    return bool(packages) and packages.isdisjoint(OF_HUB)


def _uploads(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*UPLOADS):
        if (fact.owner and "trainer" in fact.owner.facts) or _is_of_project(script, fact.node):
            continue  # which may let one rank upload
        if reach.by_all and run.is_of_several(reach):
            message = f"every rank uploads this{elsewhere(script, reach)}"
            yield from violation_at(script, reach, message, 0.65, severity=severity_of(script, run, reach))


def _allow_existing(script: Script, fact: Noted) -> Patch:
    source, call = script.source, fact.node
    added = source.add_argument(call, "exist_ok=True")
    if added is None or (fact.name == "os.mkdir" and not isinstance(call.func, ast.Attribute)):
        return no_patch(EXIST_OK, "call os.makedirs with exist_ok=True")
    if fact.name != "os.mkdir" or not isinstance(call.func, ast.Attribute):
        return Patch(id=EXIST_OK, safety="safe", edits=[added])
    return Patch(
        id=EXIST_OK,
        safety="safe",
        edits=[source.replace(call.func, f"{source.code(call.func.value)}.makedirs"), added],
    )
