"""DW462: arguments that have to be the same on all ranks, and those that exactly one rank may set."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, OF_BRANCHES, Key, is_read, parts
from ...training_script.model.lengths import length
from ...training_script.model.library_calls import LOCAL_RESULTS
from ...training_script.model.members import Member
from ...training_script.model.reach import ALL, Reach, Run, alternatives, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import call_argument, last_name
from ...training_script.torch_classes import DDP_CLASSES, SAMPLER_CLASSES
from ..patches.one_value import opened_by_first, value_of_first
from ..rule_context import Script, Violation
from ..violations import violation_at
from .collective_arguments import ranks_of

PREFIX = "torch.distributed."
NEW_GROUP = PREFIX + "new_group"
_OPERATION = {"all_reduce": 1, "reduce": 2, "reduce_scatter": 2, "reduce_scatter_tensor": 2, "reduce_scatter_single": 2}
_CHECKPOINT = ((-1, "checkpoint_id"),)
_AVERAGER = "algorithms.model_averaging.averagers.PeriodicModelAverager"
_FOR_ALL = "ranks that do not agree on it wait in different calls, or for different data"
# Call: the places and names of arguments that need one value on all ranks, and what happens otherwise.
AGREED: dict[str, tuple[tuple[tuple[int, str], ...], str]] = {
    **{
        PREFIX + name: (((place, "op"),), "what they get is neither the one nor the other")
        for name, place in _OPERATION.items()
    },
    **dict.fromkeys(
        DDP_CLASSES,
        (((4, "broadcast_buffers"), (5, "init_sync"), (8, "find_unused_parameters"), (11, "static_graph")), _FOR_ALL),
    ),
    **dict.fromkeys(SAMPLER_CLASSES, (((3, "shuffle"),), "their parts of the data overlap")),
    **{
        f"{PREFIX}checkpoint.{name}": (_CHECKPOINT, "each has a checkpoint that lacks what the others save")
        for name in ("save", "load", "async_save")
    },
    **{
        f"{PREFIX}checkpoint.{name}": (((0, "path"),), "each has a checkpoint that lacks what the others save")
        for name in ("FileSystemWriter", "FileSystemReader")
    },
    PREFIX + _AVERAGER: (((0, "period"), (1, "warmup_steps")), _FOR_ALL),
    PREFIX + "FileStore": (((0, "file_name"),), "they wait for each other at different places"),
    PREFIX + "TCPStore": (
        ((0, "host_name"), (1, "port"), (2, "world_size")),
        "they wait for each other at different places",
    ),
    NEW_GROUP: (((0, "ranks"),), "groups of other members have one name, and their ranks reach each other"),
    PREFIX + "init_device_mesh": (((1, "mesh_shape"),), _FOR_ALL),
    PREFIX + "device_mesh.init_device_mesh": (((1, "mesh_shape"),), _FOR_ALL),
    PREFIX + "optim.ZeroRedundancyOptimizer": (
        ((-1, "lr"), (-1, "weight_decay"), (-1, "momentum")),
        "their models drift apart",
    ),
}
# By which ranks find each other, so that they cannot agree on it before.
BEFORE_GROUP = {PREFIX + "FileStore", PREFIX + "TCPStore"}
# Arguments that are true on one rank.
OF_ONE = {PREFIX + "TCPStore": (3, "is_master")}
# The call is not one of all ranks with these.
APART = {"no_dist", "process_group", "group", "device_mesh", "use_local_synchronization"}
OWN = frozenset(LOCAL_RESULTS.values())  # values that each process has of its own
CHECKPOINTS = f"{PREFIX}checkpoint."
# In the name of what brings the parts to one place that each rank has saved in a directory of its own.
BRINGS = re.compile(r"upload|copy|sync|push|move|transfer|put", re.IGNORECASE)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW462: yield the calls to which ranks pass different values of an argument that needs one."""
    for reach, fact in run.of(*AGREED):
        if reach.unsure or APART & fact.named.keys():
            continue
        places, why = AGREED[fact.name]
        name = fact.name.rpartition(".")[2]
        for place, word in places:
            given = argument(fact, place, word)
            if fact.name == NEW_GROUP and given and not _has_others(run, reach, given.key):
                continue
            if given and _differs(run, reach, given.key) and not _is_brought_together(script, fact, place, word):
                message = f"the ranks pass different values of `{word}` to {name}: {why}"
                sent = script.is_here(reach) and word not in ("op", "ranks") and fact.name not in BEFORE_GROUP
                written = call_argument(fact.node, word, place)
                patch = partial(value_of_first, script, reach, fact.node, written) if sent else None
                # With two ranks the groups of most choices are one, or of one rank each.
                severity = "warning" if fact.name == NEW_GROUP else None
                yield from violation_at(script, reach, message, 0.85, severity=severity, patch=patch)
                break
        else:
            yield from _of_one(script, run, reach, fact)


def _differs(run: Run, reach: Reach, key: Key) -> bool:
    """Return whether a value surely differs between ranks that pass it."""
    chosen = [each for each in alternatives(key) if each.op not in OF_BRANCHES]
    if all(any(part.op == "local" and part.args[0] in OWN for part in parts(each)) for each in chosen):
        return True
    if not key.differs_by & BY_RANK or not is_read(key):
        return False
    seen = {run.keys.specialise(key, rank) for rank in ranks_of(reach)}
    return len(seen) > 1 and not any(each.differs_by & BY_RANK for each in seen)


def _has_others(run: Run, reach: Reach, members: Key) -> bool:
    """Return whether a list of ranks surely has several: a group of one rank reaches no other."""
    seen = [length(run.keys.specialise(members, rank), Member(rank.rank, rank.world_size)) for rank in ranks_of(reach)]
    return all(count is not None and count > 1 for count in seen)


def _is_brought_together(script: Script, fact: Noted, place: int, word: str) -> bool:
    """Return whether each rank brings its own directory of a checkpoint to another place in the same function."""
    path = call_argument(fact.node, word, place)
    if not fact.name.startswith(CHECKPOINTS) or not isinstance(path, ast.Name):
        return False
    for call in nodes_of_kinds(script.names.enclosing_function(fact.node) or script.source.tree, ast.Call):
        given = [inner for each in (*call.args, *(word.value for word in call.keywords)) for inner in ast.walk(each)]
        names = [each.id for each in given if isinstance(each, ast.Name)]
        if path.id in names and any(BRINGS.search(name) for name in (last_name(call.func), *names)):
            return True
    return False


def _of_one(script: Script, run: Run, reach: Reach, fact: Noted) -> Iterator[Violation]:
    """Yield what every rank sets although only one may."""
    if fact.name not in OF_ONE or reach.unsure:
        return
    place, word = OF_ONE[fact.name]
    given, ranks = argument(fact, place, word), argument(fact, 2, "world_size")
    if given is None or ranks is None or ranks.key is run.keys.none:
        return
    seen = [run.keys.specialise(given.key, rank) for rank in ranks_of(reach)]
    if reach.ranks != ALL:
        port = argument(fact, 1, "port")
        at_port = [(each, held) for each, other in run.of(fact.name) if (held := argument(other, 1, "port"))]
        others = [each for each, held in at_port if each is not reach and port and held.key is port.key]
        waits = argument(fact, 5, "wait_for_workers")
        if seen[0] is run.keys.true and not others and not (waits and waits.key is run.keys.false):
            why = "the store waits here until world_size ranks have made theirs, and only some ranks come to it"
            yield from violation_at(script, reach, why, 0.85)
    elif all(each is run.keys.true for each in seen):
        yield from violation_at(
            script,
            reach,
            f"every rank passes `{word}=True`: one rank opens the port, and the others find it in use",
            0.85,
            patch=partial(opened_by_first, script, call_argument(fact.node, word, place))
            if script.is_here(reach)
            else None,
        )
