"""DW205, DW206, DW216 and DW225 to DW227: copies of a model that begin or learn differently on the ranks."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ....knowledge.schema import Severity
from ...training_script.model.amounts import NEW_TENSORS
from ...training_script.model.collective_effects import OF_ONE_RANK
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.library_calls import OF_PROCESS, RANDOM, THE_TIME
from ...training_script.model.reach import ALL, Reach, Run, alternatives, argument, same_on_ranks, together
from ...training_script.model.sequences import Event
from ...training_script.model.several_ranks import HOROVOD, SET_UP
from ...training_script.model.values import ClassRef, Instance, Library, Value
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES, LAYER, OPTIMIZERS, SAMPLER_CLASSES, is_optimizer
from ..patches.call_arguments import find_unused, one_seed, split_by_one_seed
from ..patches.shared_values import average_argument, broadcast_after_load
from ..rule_context import Script, Violation
from ..violations import in_function_of, violation_at
from . import layers_by_round, unused_outputs
from .chosen_layers import check_chosen

SEED = "torch.manual_seed"
OF_RANK = {THE_TIME, OF_PROCESS}  # of which each rank makes a seed of its own
PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
# What gives all ranks the same parameters, or makes them one model.
SYNCHRONISES = re.compile(r"broadcast|load(?!er)|init_?weights|prepare|initialize|sync_p")
TRAINER, OWN_TRAINER = re.compile(r"Trainer"), re.compile(r"^class \w*Trainer\b(?!\(\w*\.?Trainer\))", re.MULTILINE)
OF_HOROVOD = "DistributedOptimizer"
WRAPS = tuple(SET_UP - {"torch.distributed.init_process_group"})
SPLITS = ("torch.utils.data.random_split", "torch.utils.data.dataset.random_split")
GRADIENT = re.compile(r"\.grad\b")
ASKS_FOR_NAMES = re.compile(
    r"\b(?:getattr|children|modules|named_modules|_modules|__dict__|vars|parameters_to_vector)\b"
)


def check_start(script: Script, run: Run) -> Iterator[Violation]:
    """DW206: yield the seed of each rank from which models are made that nothing makes equal."""
    reduces = [reach for reach, _ in run.of("torch.distributed.all_reduce")]
    if not reduces or not script.mentions(GRADIENT) or script.mentions(SYNCHRONISES) or any(run.of(*WRAPS)):
        return
    if script.mentions(TRAINER) and not script.mentions(OWN_TRAINER):
        return
    first = next(run.of(SEED), None)
    if first is None:
        return
    reach, fact = first
    given = argument(fact, 0, "seed")
    before, after = _around(run, reach)
    made, made_before = (any(is_optimizer(each.name) for each in part) for part in (after, before))
    if given and _is_own(given.key) and reach.several and made and not made_before:
        yield from violation_at(
            script,
            where_given(script, reach, fact),
            "each rank makes its model from a seed of its own, and only the gradients are reduced: "
            "the copies of the model differ from the start",
            0.8,
        )


def check_sampler_seed(script: Script, run: Run) -> Iterator[Violation]:
    """DW205: yield the samplers that shuffle by a seed of each rank."""
    for reach, fact in run.of(*SAMPLER_CLASSES):
        seed = argument(fact, 4, "seed")
        if seed and _is_own(seed.key) and reach.several:
            yield from violation_at(
                script,
                reach,
                "each rank shuffles by a seed of its own: the parts of the ranks overlap, and some samples are in none",
                0.9,
                severity=_of_time(seed.key),
                patch=partial(one_seed, script, fact.node, "seed", 4) if script.is_here(reach) else None,
            )


def _is_own(seed: Key) -> bool:
    """Return whether a seed is made of a rank, of the time at which a rank asks for it, or of its process."""
    return bool(seed.differs_by & BY_RANK) or not OF_RANK.isdisjoint(map(_drawn, parts(seed)))


def _of_time(seed: Key) -> Severity | None:
    """Return the severity for a seed that is the time: ranks that ask in one second have the same."""
    return None if seed.differs_by & BY_RANK else "warning" if THE_TIME in map(_drawn, parts(seed)) else None


def _drawn(part: Key) -> str:
    return str(part.args[0]) if part.op == "local" else ""


def check_split(script: Script, run: Run) -> Iterator[Violation]:
    """DW227: yield the random splits of data for which each rank has a seed of its own."""
    yield from _split_by_own_generators(script, run)
    seeds: Reach | None = None
    severity: Severity | None = None
    for each in run.reached:
        if each.name == SEED and isinstance(each.fact, Noted):
            given = argument(each.fact, 0, "seed")
            seeds = each if given and _is_own(given.key) and each.several else None
            severity = _of_time(given.key) if given else None
        elif each.name in SPLITS and isinstance(each.fact, Noted) and seeds and each.several:
            if argument(each.fact, 2, "generator") or "**" in each.fact.named:
                continue
            yield from violation_at(
                script,
                each,
                f"each rank splits the data by a seed of its own (line {seeds.fact.site.line}): "
                "what one rank validates on, another trains on",
                0.85,
                severity=severity,
                patch=partial(split_by_one_seed, script, each.fact.node) if script.is_here(each) else None,
            )


def _split_by_own_generators(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the random splits by a generator that has a seed of each rank."""
    for reach, fact in run.of(*SPLITS):
        data, generator = argument(fact, 0, "dataset"), argument(fact, 2, "generator")
        own = generator is not None and generator.key.op == "local" and generator.key.args[0] == RANDOM
        if own and reach.several and data and same_on_ranks(data.key):
            yield from violation_at(
                script,
                reach,
                "each rank splits the data by a generator with a seed of its own: what one rank validates on, another "
                "trains on",
                0.85,
            )


def check_unused(script: Script, run: Run) -> Iterator[Violation]:
    """DW216: yield the models in DDP with a layer that nothing in the program reads."""
    yield from check_chosen(script, run)
    yield from unused_outputs.check(script, run)
    yield from layers_by_round.check(script, run)
    for reach, fact in run.of(*DDP_CLASSES):
        model = argument(fact, 0, "module")
        unused = "find_unused_parameters" in fact.named or "static_graph" in fact.named or "**" in fact.named
        if unused or model is None or not isinstance(model.obj, Instance) or not reach.several:
            continue
        layer = _unread_layer(model.obj.cls, script)
        if layer:
            name, line = layer
            yield from violation_at(
                script,
                reach,
                f"no forward pass uses the layer `{name}` of this model ({line}): DDP waits for its gradients",
                0.8,
                patch=partial(find_unused, script, fact.node) if script.is_here(reach) else None,
            )


def check_late_load(script: Script, run: Run) -> Iterator[Violation]:
    """DW225: yield the states that some ranks load into a model after DDP has made all copies equal."""
    wraps = list(run.of(*DDP_CLASSES))
    inner = {(_text(fact.node.args[0]), fact.values[0].key) for _, fact in wraps if fact.node.args and fact.values}
    for reach, fact in run.of(".load_state_dict"):
        if fact.owner is None or reach.ranks == ALL or reach.unsure or not run.distributed:
            continue
        before, after = _around(run, reach)
        if _is_copy(script, fact.node.func):
            continue  # of the model in DDP, which the other rule is about
        inside = bool(fact.owner.facts & {"ddp", "unwrapped"}) or (_text(fact.node.func), fact.owner.key) in inner
        wrapped = any(each in before and together(each, reach) for each, _ in wraps)
        trained = [each for each in before if _trains(each)]
        again = any(map(_trains, after)) or any(
            loop is own for each in trained for loop in each.loops for own in reach.loops
        )
        ended = bool(trained) and not again
        if inside and wrapped and not ended and not any(_shares(each) for each in after):
            yield from violation_at(
                script,
                in_function_of(reach, [each for each, _ in wraps]),
                "some ranks load this state after DDP made all copies of the model equal: the others go on without it",
                0.85,
                patch=partial(broadcast_after_load, script, reach, fact),
            )

    yield from _late_optimizers(script, run)


def _is_copy(script: Script, method: ast.expr) -> bool:
    """Return whether a method is one of a copy: of what a name or an attribute holds that is assigned once."""
    held = dotted_name(method.value) if isinstance(method, ast.Attribute) else ""
    made = [
        node.value
        for node in nodes_of_kinds(script.source.tree, ast.Assign)
        if held and any(dotted_name(target) == held for target in node.targets)
    ]
    return len(made) == 1 and isinstance(made[0], ast.Call) and last_name(made[0].func) == "deepcopy"


def _is_one_model(script: Script, run: Run) -> bool:
    """Return whether something makes the ranks train one model: by a wrapper, Horovod, or by hand."""
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    wraps = any(each.name in WRAPS and each.name != HOROVOD for each in run.reached)
    return wraps or script.mentions(GRADIENT) or any(last_name(each.func) == OF_HOROVOD for each in calls)


def _late_optimizers(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states that some ranks load into an optimizer of all ranks: DDP sends parameters, and no momentum."""
    sent = [
        argument(fact, 0, "tensor") for _, fact in run.of("torch.distributed.broadcast", "torch.distributed.all_reduce")
    ]
    if not all(given and _is_new(given.key) for given in sent):
        return
    made = {
        each.fact.result.key
        for each in run.reached
        if isinstance(each.fact, Noted) and each.name.startswith(OPTIMIZERS) and each.ranks == ALL
    }
    loads = [(reach, owner) for reach, fact in run.of(".load_state_dict") if (owner := _one_of(fact.owner, made))]
    if not loads or not _is_one_model(script, run):
        return
    stepped = {_one_of(fact.owner, made) for reach, fact in run.of(".step") if reach.ranks == ALL and reach.several}
    for reach, owner in loads:
        reached = 0
        for each, other in loads:
            reached |= (ALL if each.unsure else each.ranks) if other is owner else 0
        after = run.reached[run.reached.index(reach) + 1 :]
        again = any(each.name == ".step" and each.ranks == ALL and each.several for each in after)
        if reached != ALL and (owner in stepped or (again and stepped & made)) and run.distributed:
            yield from violation_at(
                script,
                reach,
                "only some ranks load the state of this optimizer, and nothing sends it to the others: its momentum "
                "differs, and so does each step",
                0.8,
            )


def _is_new(key: Key) -> bool:
    """Return whether a tensor is made of numbers, rather than the state of something."""
    while key.op in ("changed", "if"):
        key = key.args[-1] if key.op == "if" else key.args[0]
    return key.op == "call" and key.args[0] in NEW_TENSORS


def _one_of(owner: Value | None, made: set[Key]) -> Key | None:
    """Return which of the objects that were made an object is."""
    return next((key for key in alternatives(owner.key) if key in made), None) if owner else None


def _trains(reach: Reach) -> bool:
    return "backward" in reach.name


def check_schedule(script: Script, run: Run) -> Iterator[Violation]:
    """DW226: yield the steps of a scheduler by a value of one rank: the ranks get different learning rates."""
    made = {fact.result.key for _, fact in run.of(PLATEAU)}
    for reach, fact in run.of(".step") if made and run.distributed else ():
        given = argument(fact, 0, "metrics")
        owned = fact.owner and any(key in made for key in alternatives(fact.owner.key))
        if owned and given and given.key.differs_by & LOCAL and reach.several:
            if sums := _sums_of_one(run, given.key):
                yield from violation_at(
                    script,
                    sums,
                    "reduce gives the sum to one rank, and the scheduler of every rank steps by it "
                    f"(line {reach.fact.site.line}): the others go by what is left in their tensor",
                    0.85,
                )
                continue
            yield from violation_at(
                script,
                where_given(script, reach, fact),
                "the scheduler steps by a value of this rank alone: the ranks lower their learning rates at "
                "different times",
                0.75,
                patch=partial(average_argument, script, fact.node, "metrics", 0) if script.is_here(reach) else None,
            )


def _sums_of_one(run: Run, value: Key) -> Reach | None:
    """Return the reduction to one rank that a value is made of."""
    places = [part.args[1:3] for part in parts(value) if part.op == "local" and part.args[0] == OF_ONE_RANK]
    return next((at for at, fact in run.of("torch.distributed.reduce") if fact.site[:2] in places), None)


def where_given(script: Script, reach: Reach, fact: Noted) -> Reach:
    """Return a call as the one that passes its argument, where the function around it only hands that on."""
    function = script.names.enclosing_function(fact.node) if script.is_here(reach) and reach.calls else None
    seed = fact.node.args[0] if fact.node.args else None
    if not isinstance(function, ast.FunctionDef) or not isinstance(seed, ast.Name):
        return reach
    handed_on = seed.id in (each.arg for each in function.args.args)
    return reach._replace(fact=fact._replace(site=reach.calls[-1]), calls=reach.calls[:-1]) if handed_on else reach


def _around(run: Run, reach: Reach) -> tuple[list[Reach], list[Reach]]:
    """Return the facts before and after one."""
    at = next(n for n, each in enumerate(run.reached) if each is reach)
    return run.reached[:at], run.reached[at + 1 :]


def _text(node: ast.expr) -> str:
    """Return the name of an object, or of that of a method."""
    return dotted_name(node).removesuffix(".load_state_dict")


def _shares(reach: Reach) -> bool:
    """Return whether parameters may be sent from one rank to the others there."""
    kind = reach.fact.kind if isinstance(reach.fact, Event) else ""
    return "broadcast" in kind or kind.startswith("the constructor of")


def _unread_layer(cls: ClassRef, script: Script) -> tuple[str, str] | None:
    """Return a layer with parameters that the class of a model makes and nothing reads, and where it is made."""
    found = cls.methods.get("__init__")
    plain = all(isinstance(base.obj, Library) and base.obj.name.endswith("nn.Module") for base in cls.bases)
    if found is None or "forward" not in cls.methods or not plain or cls.node.decorator_list:
        return None
    trees = [cls.module.parsed.tree, script.source.tree]
    if ASKS_FOR_NAMES.search(ast.unparse(cls.node)):
        return None
    for stmt in found.body:
        match stmt:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Call() as made):
                if LAYER.fullmatch(last_name(made)) and not any(_mentions(tree, name, stmt) for tree in trees):
                    return name, f"{cls.module.path.rpartition('/')[2]}:{stmt.lineno}"
            case _:
                pass
    return None


def _mentions(tree: ast.AST, name: str, but: ast.stmt) -> bool:
    """Return whether anything but a statement names an attribute, as such or in a text."""
    own = {id(node) for node in ast.walk(but)}
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and name in node.value)
        for node in ast.walk(tree)
        if id(node) not in own
    )
