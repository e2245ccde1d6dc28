"""DW501 and DW502: checkpoints that several ranks write."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ....knowledge.schema import Severity
from ...training_script.model.amounts import is_of_data
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.library_calls import OF_FILE
from ...training_script.model.reach import ALL, FIRST_OF_NODES, Reach, Run, argument, same_on_ranks, together
from ...training_script.model.sequences import Event
from ...training_script.model.several_ranks import with_guards
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import call_argument
from ..one_node import is_for_one_node, shows_several_nodes
from ..patches.guard_statement import guard_statement
from ..patches.writer_of_all import write_on_global_rank
from ..rule_context import Patch, Script, Violation, no_patch
from ..side_effects import is_side_effect
from ..violations import violation_at

SAVES = {
    "torch.save": (1, "f"),
    "safetensors.torch.save_file": (1, "filename"),
    ".save_pretrained": (0, "save_directory"),
}
# Arguments of save_pretrained in transformers 5, diffusers 0.35 and peft 0.18, those of tokenizers included.
OF_SAVE_PRETRAINED = {"save_directory", "state_dict", "push_to_hub", "max_shard_size", "safe_serialization", "variant"}
OF_SAVE_PRETRAINED |= {"token", "use_auth_token", "repo_id", "commit_message", "private", "from_pt", "save_config"}
OF_SAVE_PRETRAINED |= {"save_peft_format", "save_original_format", "selected_adapters", "save_embedding_layers"}
OF_SAVE_PRETRAINED |= {"path_initial_model_for_weight_conversion", "legacy_format", "filename_prefix"}
MOVES = ("os.replace", "os.rename")
COPIES = ("shutil.copyfile", "shutil.copy", "shutil.copy2", *MOVES)
CERTAIN = ("torch.save", "safetensors.torch.save_file")
WRITES = {**SAVES, **dict.fromkeys(COPIES, (1, "dst"))}
LOAD = "torch.load"
SHARDS = re.compile(r"fsdp|fully_?shard", re.IGNORECASE)
GUARD = "guard-save"
ORDERED = {"Lt", "LtE", "Gt", "GtE"}


def check_race(script: Script, run: Run) -> Iterator[Violation]:
    """DW501: yield the writes of all ranks to one file."""
    surely = run.surely_distributed
    run = with_guards(run)
    writes = list(_shared_writes(run))
    for reach, fact in writes:
        if reach.ranks != ALL or (run.function and fact.site in script.sites_of_some):
            continue
        # A function that some call for one rank only is right: the call for all ranks is not.
        elsewhere = any(each.fact.site == fact.site and not each.several for each in run.reached)
        here = script.is_here(reach) and not elsewhere
        where = "" if here else f" ({fact.site.path.rpartition('/')[2]}:{fact.site.line})"
        yield from violation_at(
            script,
            reach._replace(fact=fact._replace(site=reach.calls[-1])) if elsewhere and reach.calls else reach,
            f"every rank {_when(fact, reach)}writes this file{where}: its path is the same on all of them",
            0.85,
            severity=_severity(script, reach, fact, surely=surely),
            patch=(lambda reach=reach, fact=fact: _guarded(script, run, reach, fact)) if here else None,
        )


def _when(fact: Noted, reach: Reach) -> str:
    return "whose own data decide so " if fact.name in MOVES and _is_of_own_value(reach) else ""


def _severity(script: Script, reach: Reach, fact: Noted, *, surely: bool) -> Severity | None:
    """Return the severity of a write of all ranks, None for that of the rule."""
    of_helpers = any(site.path != script.source.path for site in reach.calls)
    if fact.name in COPIES and of_helpers and any(each.site.path != script.source.path for each in reach.conditions):
        return "info"  # a helper of a helper that copies where its options say so, as into a cache
    return None if fact.name in CERTAIN and surely and not _if_missing(reach) else "warning"


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
                severity=None if shows_several_nodes(script) else "info",
                branch=condition.site.line if condition.site.path == script.source.path else None,
                patch=partial(write_on_global_rank, script, condition),
            )


def _later(run: Run, reach: Reach, other: Reach) -> bool:
    """Return whether a fact may be reached after another one, in the same round of each loop."""
    return together(reach, other) and run.reached.index(other) > run.reached.index(reach)


def _shared_writes(run: Run) -> Iterator[tuple[Reach, Noted]]:
    if not run.distributed:
        return
    for reach, fact in run.of(*WRITES):
        path, copied = _target(fact), argument(fact, 0, "src")
        if {"**", "is_main_process", "save_function"} & fact.named.keys() or reach.attempted:
            continue
        if fact.name == ".save_pretrained" and fact.named.keys() - OF_SAVE_PRETRAINED:
            continue  # a method of the program's own, which may need all ranks
        if fact.name in MOVES and copied and not same_on_ranks(copied.key) and not _is_of_own_value(reach):
            continue  # each rank moves a file of its own there, in one step
        if path and reach.several and same_on_ranks(path.key) and run.is_of_several(reach):
            yield reach, fact


def _is_of_own_value(reach: Reach) -> bool:
    """Return whether each rank compares numbers of its own data to decide if it writes, and nothing else decides."""
    deciding = [each.test for each in reach.conditions if not each.test.is_constant]
    return bool(deciding) and all(map(_compares_own_data, deciding)) and not _if_missing(reach)


def _compares_own_data(test: Key) -> bool:
    compared = [part for part in parts(test) if part.op == "compare" and part.args[0] in ORDERED]
    return any(is_of_data(each) and not any(map(_is_time, parts(each))) for each in compared)


def _is_time(key: Key) -> bool:
    return key.op in ("local", "call") and "time" in str(key.args[0])


def _target(fact: Noted) -> Value | None:
    """Return the path that is written."""
    return argument(fact, *WRITES[fact.name])


def _given_target(fact: Noted) -> ast.expr | None:
    """Return the argument of a call that says where it writes."""
    place, name = WRITES[fact.name]
    return call_argument(fact.node, name, place)


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
        {each.args[0] for side in part.args[1:] for each in parts(side) if each.op == "rank"}
        for part in parts(test)
        if part.op == "if"
    ]
    return any({"local", "global"} <= each for each in kinds)


def _is_of_node(path: Key) -> bool:
    """Return whether a path is made of an option that is named after the disk of a node."""
    return any(part.op == "attribute" and "local" in str(part.args[1]).lower() for part in parts(path))


def _guarded(script: Script, run: Run, reach: Reach, fact: Noted) -> Patch:
    inside = range(fact.site.line, fact.site.end_line + 1)
    waits = any(isinstance(each.fact, Event) and each.fact.site.line in inside for each in run.reached)
    if waits or any(SHARDS.search(name) for name in _used_names(script)):
        return no_patch(GUARD, "what is saved may need all ranks: build it on every rank, and save it on rank 0")
    others_wait = _is_read_next(run, reach, fact) or _is_handed_on(script, fact)
    if others_wait and (reach.unsure or not all(each.test.is_constant for each in reach.conditions)):
        return no_patch(GUARD, "save it on rank 0, and let the ranks that load it next wait for that")
    opened = _opened(script, fact)
    if opened is None:
        return no_patch(GUARD, "open the file on rank 0 only, and save it there: opening it empties it")
    return guard_statement(script, opened, GUARD, others_wait=others_wait)


def _opened(script: Script, fact: Noted) -> ast.expr | None:
    """Return the expression that opens what is written: the call itself for a path; for an open file that of the
    ``with`` statement around the call, or None.
    """
    given = _given_target(fact)
    if not isinstance(given, ast.Name):
        return fact.node
    around: ast.AST | None = fact.node
    while around := script.source.parents.get(around):
        if isinstance(around, ast.With):
            for item in around.items:
                if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == given.id:
                    return item.context_expr
    scope = script.names.enclosing_function(fact.node) or script.source.tree
    bound = (each for each in nodes_of_kinds(scope, ast.Assign) if _binds(each, given.id))
    return None if any(map(_opens, bound)) else fact.node


def _binds(stmt: ast.Assign, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in stmt.targets)


def _opens(stmt: ast.Assign) -> bool:
    match stmt.value:
        case ast.Call(func=ast.Name(id="open") | ast.Attribute(attr="open")):
            return True
        case _:
            return False


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


def _is_handed_on(script: Script, fact: Noted) -> bool:
    """Return whether the name of the path that is written is used below it: something else may read the file."""
    call, stmt = fact.node, script.source.statement_of(fact.node)
    given = _given_target(fact)
    if not isinstance(given, ast.Name):
        return False
    around = script.names.enclosing_function(call) or script.source.tree
    last = stmt.end_lineno or stmt.lineno
    uses = (each for each in nodes_of_kinds(around, ast.Name) if each.id == given.id)
    below = [each for each in uses if each.lineno > last]
    made_again = min((each.lineno for each in below if isinstance(each.ctx, ast.Store)), default=None)
    return any(
        isinstance(each.ctx, ast.Load)
        and (made_again is None or each.lineno < made_again)
        and not _is_in_side_effect(script, each)
        for each in below
    )


def _is_in_side_effect(script: Script, node: ast.AST) -> bool:
    """Return whether an expression is part of a call that prints, logs or saves."""
    while not isinstance(node, ast.stmt):
        if isinstance(node, ast.Call) and is_side_effect(node):
            return True
        node = script.source.parents[node]
    return False
