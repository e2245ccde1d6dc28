"""DW224, DW238 and DW239: modes, buffers and checkpointing of models in DDP that ranks do not share."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, parts
from ...training_script.model.reach import ALL, Reach, Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..side_effects import is_side_effect
from ..types import RelatedPlace
from ..violations import at_node, violation_at
from . import partial_steps

# What may give all ranks the same buffers.
BUFFERS = re.compile(r"buffers\(|state_dict\(|SyncBatchNorm|sync_batchnorm|running_mean|track_running_stats=False")

SHARED_STATISTICS = re.compile(
    r"buffers\(|[Ss]ync_?[Bb]atch_?[Nn]orm|sync_?bn|track_running_stats=False|distribute_bn"
    r"|(?:broadcast|all_reduce)\w*\([^)\n]*state|state_dict\(\)\.values",
    re.IGNORECASE,
)
STATISTICS = {"running_mean", "running_var"}


def check_ready(script: Script, run: Run) -> Iterator[Violation]:
    """DW224: yield what makes a gradient ready twice: two backward passes, or checkpointing that enters again."""
    yield from partial_steps.check_twice(script, run)
    yield from _shared_parts(script, run)
    for reach, fact in run.of(*DDP_CLASSES):
        unused = fact.named.get("find_unused_parameters")
        static = fact.named.get("static_graph")  # DDP then learns in the first step when each gradient is ready
        if unused is None or unused.key is not run.keys.true or not reach.several or static:
            continue
        model = argument(fact, 0, "module")
        trees = [(script.source.tree, script.source.path)]
        if model and isinstance(model.obj, Instance):
            trees.append((model.obj.cls.module.parsed.tree, model.obj.cls.module.path))
        places = [(path, node) for tree, path in trees for node in _repeating(tree)]
        if not places:
            continue
        path, call = places[0]
        needed = path == script.source.path and model and isinstance(model.obj, Instance) and _chooses(model.obj.cls)
        related = [(each, node.lineno, "checkpointing") for each, node in places]
        if needed:
            related = [(fact.site.path, fact.site.line, "find_unused_parameters")]
        yield from violation_at(
            script,
            at_node(script, reach, call) if needed else reach,
            f"find_unused_parameters (line {fact.site.line}) does not work with checkpoint(use_reentrant=True) (line "
            f"{call.lineno}): its gradients are ready twice",
            0.85,
            related=[RelatedPlace(path=each, line=line, message=what) for each, line, what in related],
        )


def _shared_parts(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models in DDP that go through one part several times, each in a backward pass of its own."""
    for reach, fact in run.of(*DDP_CLASSES):
        model = argument(fact, 0, "module")
        if not model or not isinstance(model.obj, Instance) or not reach.several or "static_graph" in fact.named:
            continue
        for cls in _classes(model.obj.cls):
            for call in _repeating(cls.node):
                part = _part_of_rounds(cls.node, call)
                if part is None or cls.find(part.removeprefix("self.")):
                    continue
                line, path = call.lineno, cls.module.path
                yield from violation_at(
                    script,
                    reach,
                    f"checkpoint(use_reentrant=True) runs `{part}` in each round of a loop (line {line}): its "
                    "gradients are ready once in each backward pass, and DDP raises an error at the second time",
                    0.8,
                    related=[RelatedPlace(path=path, line=line, message="checkpointing")],
                )
                return


def _part_of_rounds(cls: ast.ClassDef, call: ast.Call) -> str | None:
    """Return the part of a model that each round of a loop runs, if it is the same one in all of them."""
    part = dotted_name(call.args[0]) if call.args else ""
    loops = [node for node in ast.walk(cls) if isinstance(node, ast.For) and call in ast.walk(node)]
    return part if part.startswith("self.") and loops else None


def _chooses(cls: ClassRef) -> bool:
    """Return whether a condition in the forward pass decides which layers it uses: DDP has to look for the others."""
    forward = cls.methods.get("forward")
    choices = (node for node in ast.walk(forward) if isinstance(node, ast.If | ast.IfExp)) if forward else ()
    return any(_layers_in(node.body) != _layers_in(node.orelse) for node in choices)


def _layers_in(side: ast.expr | list[ast.stmt]) -> set[str]:
    nodes = (node for part in (side if isinstance(side, list) else [side]) for node in ast.walk(part))
    return {dotted_name(node) for node in nodes if isinstance(node, ast.Attribute)}


def _is_reduced_by_hand(run: Run, reach: Reach) -> bool:
    """Return whether all ranks reduce the gradients of a model without a wrapper in the loop around a fact."""
    return any(
        any(part.op == "attribute" and part.args[1] == "grad" for part in parts(given.key))
        for each, fact in run.of("torch.distributed.all_reduce")
        if each.ranks == ALL and reach.loops and reach.loops[0] in each.loops and (given := argument(fact, 0, "tensor"))
    )


def check_mode(script: Script, run: Run) -> Iterator[Violation]:
    """DW238: yield the changes to the evaluation mode that some ranks make and nothing takes back."""
    back = [reach for reach, fact in run.of(".train") if not fact.values or fact.values[0].key is not run.keys.false]
    for reach, fact in run.of(".eval"):
        shared = fact.owner is not None and (fact.owner.facts & {"ddp", "unwrapped"} or _is_reduced_by_hand(run, reach))
        if not shared or reach.ranks == ALL or not reach.ranks or not reach.loops:
            continue
        loop = reach.loops[0]
        trained = any("backward" in each.name and loop in each.loops for each in run.reached)
        if trained and not any(loop in each.loops for each in back):
            tests = [each.site.line for each in reach.conditions if each.test.differs_by & BY_RANK]
            yield from violation_at(
                script,
                reach,
                "some ranks put the model into evaluation mode here and train on in it: the loop calls no train()",
                0.8,
                branch=tests[-1] if tests else None,
                related=[RelatedPlace(path=site.path, line=site.line, message="called here") for site in reach.calls],
            )


def check_buffers(script: Script, run: Run) -> Iterator[Violation]:
    """DW239: yield the buffers that each rank computes from its own batches, where DDP does not send them."""
    yield from _of_own_loop(script, run)
    yield from _kept_by_ranks(script, run)
    for reach, fact in run.of(*DDP_CLASSES):
        sent, model = fact.named.get("broadcast_buffers"), argument(fact, 0, "module")
        if sent is None or sent.key is not run.keys.false or model is None or not isinstance(model.obj, Instance):
            continue
        for cls in _classes(model.obj.cls):
            line = _updated_buffer(cls)
            if line and reach.several:
                yield from violation_at(
                    script,
                    reach,
                    f"broadcast_buffers=False, and a buffer of `{cls.node.name}` is computed from the batches of one "
                    f"rank (line {line}): it differs between ranks",
                    0.75,
                    related=[RelatedPlace(path=cls.module.path, line=line, message="the buffer is changed here")],
                )
                return


def _of_own_loop(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the evaluation of a model with BatchNorm of which a program averages the gradients and not the buffers."""
    by_hand = [reach for reach, fact in run.of("torch.distributed.all_reduce") if _is_gradient(fact) and reach.several]
    if not by_hand or not script.evaluated.normalises or script.mentions(BUFFERS) or any(run.of(*DDP_CLASSES)):
        return
    for reach, _ in run.of(".eval"):
        if reach.ranks == ALL and reach.several:
            yield from violation_at(
                script,
                reach,
                f"the gradients of the ranks are averaged (line {by_hand[0].fact.site.line}), the statistics of "
                "BatchNorm are not: each rank evaluates with those of its own batches",
                0.7,
                severity="warning",
            )
            return


def _kept_by_ranks(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models with BatchNorm of which DDP sends no statistics, and with which all ranks evaluate."""
    wraps = [(reach, fact) for reach, fact in run.of(*DDP_CLASSES) if reach.several]
    if not wraps or not script.evaluated.normalises or _may_share_statistics(script):
        return
    evaluated = next((reach for reach, _ in run.of(".eval") if reach.ranks == ALL and reach.several), None)
    for reach, fact in wraps if evaluated else ():
        sent = fact.named.get("broadcast_buffers")
        if evaluated and sent and sent.key is run.keys.false:
            site = evaluated.fact.site
            yield from violation_at(
                script,
                reach,
                "broadcast_buffers=False: each rank keeps the statistics of BatchNorm of its own batches, and "
                f"evaluates with them (line {site.line})",
                0.7,
                severity="warning",
                related=[RelatedPlace(path=site.path, line=site.line, message="evaluated here")],
            )


def _may_share_statistics(script: Script) -> bool:
    """Return whether a script may make the statistics of BatchNorm those of all ranks: it does more than show them."""
    if script.mentions(SHARED_STATISTICS):
        return True
    read = [each for each in nodes_of_kinds(script.source.tree, ast.Attribute) if each.attr in STATISTICS]
    return not all(_is_shown(script, each) for each in read)


def _is_shown(script: Script, node: ast.expr) -> bool:
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.Call) and is_side_effect(at):
            return True
        at = script.source.parents.get(at)
    return False


def _is_gradient(fact: Noted) -> bool:
    given = argument(fact, 0, "tensor")
    return given is not None and "gradient" in given.facts


def _repeating(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of checkpointing that run a part again within its backward pass."""
    for node in nodes_below(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ("checkpoint", "checkpoint_sequential"):
            flag = next((each.value for each in node.keywords if each.arg == "use_reentrant"), None)
            if isinstance(flag, ast.Constant) and flag.value is True:
                yield node


def _classes(cls: ClassRef) -> Iterator[ClassRef]:
    """Yield the class of a model and those of its module that it makes."""
    pending, seen = [cls], set[int]()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        calls = (node.func for node in ast.walk(each.node) if isinstance(node, ast.Call))
        values = (each.module.env.get(func.id) for func in calls if isinstance(func, ast.Name))
        pending += [value.obj for value in values if value and isinstance(value.obj, ClassRef)]


def _updated_buffer(cls: ClassRef) -> int:
    """Return the line that changes a buffer outside of the constructor, 0 if none does or ranks communicate there."""
    names = {
        node.args[0].value
        for node in ast.walk(cls.node)
        if isinstance(node, ast.Call) and last_name(node.func) == "register_buffer" and node.args
        if isinstance(node.args[0], ast.Constant)
    }
    held = {f"self.{name}" for name in names}
    nodes = [node for name, method in cls.methods.items() if name != "__init__" for node in ast.walk(method)]
    if any("reduce" in last_name(node.func) for node in nodes if isinstance(node, ast.Call)):
        return 0
    given = {node.arg for node in nodes if isinstance(node, ast.arg)} - {"self"}
    given |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name.endswith("_") and not name.startswith(
                "_"
            ):
                while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
                    owner = owner.func.value
                if dotted_name(owner) in held:
                    return node.lineno
            case ast.Assign(targets=[target]) if dotted_name(target) in held:
                return node.lineno
            case ast.AugAssign(target=target, value=value) if dotted_name(target) in held and not given.isdisjoint(
                _names(value)
            ):
                return node.lineno
            case _:
                pass
    return 0


def _names(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
