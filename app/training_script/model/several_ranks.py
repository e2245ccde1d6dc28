"""Signs that several ranks run a start of a program, or that one process does."""

import ast
import re
from collections.abc import Collection

from ..nodes import nodes_of_kinds, walk
from ..syntax import FUNCTIONS, contains_line, last_name
from ..torch_classes import DATA_PARALLEL, DDP_CLASSES
from .function_steps import Noted, Read
from .keys import BY_RANK
from .library_collectives import CALLED_ON_FIRST_RANK
from .noted_calls import INIT, OF_GROUP, REPORTERS
from .reach import FIRST_OF_NODES, NEAR, Condition, Reach, Run, argument, without_not
from .sequences import Event
from .signatures import place_of
from .values import Value

WRAPPED = ("of DDP", "of FSDP", "of DeepSpeed", "the backward pass")  # a checkpoint may be one process's own
# Calls that show that several ranks run this.
WRAPS = {
    *DDP_CLASSES,
    *("torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard"),
}
FABRIC = ("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric")
SET_UP = {
    *(INIT, "deepspeed.initialize", "deepspeed.init_distributed"),
    *("accelerate.Accelerator", "horovod.torch.init"),
    *("torch.distributed.device_mesh.init_device_mesh", "torch.distributed.init_device_mesh"),
    *FABRIC,
    *WRAPS,
}
ASKS_FOR_GROUP, MAKES_GROUP = {"is_initialized"}, {"init_process_group"}
OF_SHARDS = re.compile(r"(?:^|_)fsdp", re.IGNORECASE)  # in the name of an option
HOROVOD = "horovod.torch.init"  # also called by scripts of one process, for helpers that ask for a rank
BY_LIGHTNING = frozenset({"__init__", "prepare_data"})  # whose trainer starts the other ranks after an object is made
# The roles of objects whose methods a trainer of a library calls on every rank, with those that it does not.
NOT_ON_EVERY_RANK = {
    "trainer": frozenset(CALLED_ON_FIRST_RANK["trainer"]),
    "trainer_callback": frozenset[str](),
    "lightning_module": BY_LIGHTNING,
    "lightning_callback": BY_LIGHTNING,
}
TRAINING = "Trainer.train"


def is_set_up(run: Run) -> bool:
    """Return whether a start comes to a call by which a process becomes one of several ranks."""
    return any(isinstance(each.fact, Noted) and each.name in SET_UP for each in run.reached)


def has_no_group(run: Run, script: ast.Module) -> bool:
    """Return whether a script makes no process group, and only helpers communicate if there is one.

    These are functions of other files, and those of its own that ask for a group.
    """
    if run.function is not None or is_set_up(run):
        return False
    own = [each for each in run.evidence if not _is_of_helper(each)]
    return not own or (_ask_for_group(own, script) and not _calls(script, MAKES_GROUP))


def _is_of_helper(reach: Reach) -> bool:
    return isinstance(reach.fact, Event) and any(site.path != reach.fact.site.path for site in reach.calls[:1])


def _ask_for_group(needing: list[Reach], script: ast.Module) -> bool:
    """Return whether all functions of the script that need a group ask in a condition if there is one."""
    functions = nodes_of_kinds(script, *FUNCTIONS)
    asking = {
        each.name for each in functions if any(isinstance(stmt, ast.Return) and _asks(stmt) for stmt in each.body)
    }
    for reach in needing:
        around = [each for each in functions if contains_line(each, reach.fact.site.line)]
        if not (reach.calls and around):
            return False
        tests = (node.test for node in walk(around[-1]) if isinstance(node, ast.If | ast.IfExp))
        if not any(_asks(test) or _calls(test, asking) for test in tests):
            return False
    return True


def _asks(node: ast.AST) -> bool:
    return _calls(node, ASKS_FOR_GROUP)


def _calls(node: ast.AST, names: Collection[str]) -> bool:
    return any(isinstance(each, ast.Call) and last_name(each.func) in names for each in walk(node))


def run_by_trainer(run: Run) -> list[Reach]:
    """Return the facts of a start that come to every rank of a trainer of a library, if it has more than one.

    The trainer calls the function, which is a method of a class that it knows; or the start trains by it.
    """
    function = run.function
    owner = function.owner if function else None
    name = getattr(function.node, "name", "") if function else ""
    if owner and (roles := owner.roles & NOT_ON_EVERY_RANK.keys()):
        by_some = any(name in NOT_ON_EVERY_RANK[role] for role in roles)
        return [] if by_some else [each for each in run.reached if each.several]
    return [each for each in run.reached if each.several and each.name == TRAINING]


def with_parent(facts: list[Reach]) -> list[Reach]:
    """Return facts, unsure where no rank is: what comes before or after the processes that are started runs in one.

    This also holds if the program can call the function of these processes instead of starting some.
    """
    of_ranks = {each.fact.site for each in facts if each.started}
    if not of_ranks or any(shows_ranks(each) for each in facts if each.fact.site not in of_ranks):
        return facts
    return [each if each.fact.site in of_ranks else each._replace(unsure=True) for each in facts]


def is_of_one(facts: list[Reach]) -> bool:
    """Return whether a start makes a process group of one rank; of several Fabrics all are for one."""
    of_fabric = [is_single(each.fact) for each in facts if each.name in FABRIC]
    return all(of_fabric) if of_fabric else any(is_single(each.fact) for each in facts) or _has_all_gpus(facts)


def _has_all_gpus(facts: list[Reach]) -> bool:
    """Return whether one process wraps its model for all GPUs, and only a helper of several scripts makes a group."""
    names = {each.name for each in facts}
    if names.isdisjoint(DATA_PARALLEL) or names & WRAPS:
        return False
    groups = [each for each in facts if each.name in SET_UP]
    return all(each.name == INIT and each.calls and each.calls[0].path != each.fact.site.path for each in groups)


def is_single(fact: Noted | Event | Read) -> bool:
    """Return whether a process group of one rank is made, or one that only pretends to have more."""
    if not isinstance(fact, Noted):
        return False
    if fact.name in FABRIC:
        devices, nodes = argument(fact, 2, "devices"), argument(fact, 3, "num_nodes")
        return _is_one(devices) and (nodes is None or _is_one(nodes))
    if fact.name != INIT:
        return False
    backend = argument(fact, 0, "backend")
    of_one = _is_one(argument(fact, place_of(INIT, "world_size"), "world_size"))
    return of_one or (backend is not None and backend.key.is_constant and backend.key.value == "fake")


def _is_one(number: Value | None) -> bool:
    return number is not None and number.key.is_constant and number.key.value == 1


def shows_ranks(reach: Reach) -> bool:
    """Return whether only several ranks reach a fact."""
    fact = reach.fact
    if any(map(_asks_for_shards, reach.own_conditions)):
        return True
    # A class of another file wraps a model where its options say so, and calls it then.
    elsewhere = any(site.path != fact.site.path for site in reach.calls[:1])
    if reach.name in OF_GROUP:
        return len(reach.calls) == 1 and not reach.attempted  # it raises without a group; a helper may ask for one
    if not isinstance(fact, Event):
        return fact.name in SET_UP and not (fact.name in WRAPS and elsewhere)
    # A helper several calls away may be for one process as well, and so may be what an option of its file allows.
    near = len(reach.calls) <= NEAR and not (elsewhere and any(map(_is_option, reach.own_conditions)))
    return near and (not fact.implied or (fact.kind.endswith(WRAPPED) and not elsewhere))


def with_guards(run: Run) -> Run:
    """Return the facts of a function that nothing shows to be for several ranks but what it does on one of them only.

    This is evidence for what the function writes, which is then meant for one rank as well.
    """
    guards = [] if run.distributed or run.function is None else [*filter(_is_for_first_rank, run.reached)]
    return run._replace(evidence=guards) if guards else run


def _is_for_first_rank(reach: Reach) -> bool:
    """Return whether a condition in its own file lets rank 0, or the first of each node, do something."""
    tests = [each.test for each in reach.own_conditions if each.test.differs_by & BY_RANK]
    owner = reach.fact.owner if isinstance(reach.fact, Noted) else None
    if owner and not owner.facts.isdisjoint(REPORTERS):
        return False  # which libraries do for one process as well
    return bool(tests) and reach.ranks in (1, FIRST_OF_NODES) and not reach.unsure and isinstance(reach.fact, Noted)


def _asks_for_shards(condition: Condition) -> bool:
    """Return whether a condition lets through where an option says that FSDP is used, which takes several ranks."""
    test, truth = without_not(condition.test, condition.truth)
    return truth and test.op == "attribute" and bool(OF_SHARDS.search(str(test.args[1])))


def _is_option(condition: Condition) -> bool:
    """Return whether a condition allows something, and neither follows from the ranks nor is about them."""
    test, truth = without_not(condition.test, condition.truth)
    return truth and not test.is_constant and not test.differs_by & BY_RANK
