"""DW302 to DW305: what has to be done before or after FSDP wraps a model, and how its gradients are clipped."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Reach, Run, alternatives, argument, same_on_ranks, together
from ...training_script.model.values import Value
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import is_optimizer
from ..patches.move_statement import may_move_below, moved_below, statement_with
from ..patches.names_in_code import names_read, names_set
from ..patches.torch_names import is_made_by
from ..patches.whole_state import load_whole_state
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

FSDP1 = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
FSDP2 = ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard")
CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
SHARDS = ("ShardingStrategy.FULL_SHARD", "ShardingStrategy.SHARD_GRAD_OP", "ShardingStrategy.HYBRID_SHARD")
CHECKPOINTING = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing"
CLIP, ORDER, CHECKPOINT_FIRST = "clip-by-fsdp", "optimizer-after-wrap", "checkpoint-before-wrap"


def check_optimizer(script: Script, run: Run) -> Iterator[Violation]:
    """DW302: yield the optimizers that are made from parameters that FSDP replaces afterwards."""
    for at, wrapped in run.of(*FSDP1, *FSDP2):
        flag = wrapped.named.get("use_orig_params")
        model = argument(wrapped, 0, "module")
        if model is None or "**" in wrapped.named or (flag and not (flag.key.is_constant and flag.key.value is False)):
            continue
        before = run.reached[: run.reached.index(at)]
        again = any(each.fact.site == wrapped.site and isinstance(each.fact, Noted) for each in before)
        for reach in before if not again else ():  # a helper makes another model and its optimizer
            fact = reach.fact
            if not (isinstance(fact, Noted) and is_optimizer(fact.name) and together(reach, at)):
                continue
            given = argument(fact, 0, "params")
            if given and _has_parameters_of(given.key, model.key, before):
                yield from violation_at(
                    script,
                    reach,
                    f"this optimizer holds the parameters from before FSDP wraps the model (line {wrapped.site.line}): "
                    "its steps change nothing that is trained",
                    0.85,
                    patch=partial(_below_wrap, script, fact, at, wrapped) if script.is_here(reach) else None,
                )


def check_parts(script: Script, run: Run) -> Iterator[Violation]:
    """DW307: yield the models that fully_shard shards before their layers."""
    calls = [(reach, fact, model.key) for reach, fact in run.of(*FSDP2) if (model := argument(fact, 0, "module"))]
    for place, (reach, _, whole) in enumerate(calls):
        later = [
            fact
            for other, fact, part in calls[place + 1 :]
            if _is_part(part, whole) and together(reach, other) and reach.calls == other.calls
        ]
        if later and not reach.unsure:
            yield from violation_at(
                script,
                reach,
                f"the model is sharded here, and its layers afterwards (line {later[0].site.line}): their parameters "
                "are taken by the model then",
                0.85,
            )
            return


def _is_part(part: Key, whole: Key) -> bool:
    """Return whether a module is a layer of another one, by an attribute, an index or a loop over it."""
    while part.op in ("element", "item", "attribute") and part.args and isinstance(part.args[0], Key):
        part = part.args[0]
        if part is whole:
            return True
    return False


def check_whole_state(script: Script, run: Run) -> Iterator[Violation]:
    """DW305: yield the loads of a whole state into a model that fully_shard has sharded."""
    sharded = {model.key for _, fact in run.of(*FSDP2) if (model := argument(fact, 0, "module"))}
    files = {fact.result.key: path for _, fact in run.of("torch.load") if (path := argument(fact, 0, "f"))}
    if not sharded or any(fact.owner and "fsdp" in fact.owner.facts for _, fact in run.of(".state_dict")):
        return  # what it saves may be the shards themselves
    for reach, fact in run.of(".load_state_dict"):
        state = argument(fact, 0, "state_dict")
        if state is None or "assign" in fact.named or fact.owner is None or fact.owner.key not in sharded:
            continue
        if "fsdp" in fact.owner.facts and any(
            part in files and same_on_ranks(files[part].key) for part in parts(state.key)
        ):
            yield from violation_at(
                script,
                reach,
                "this state has whole tensors, and fully_shard has made DTensors of the model's parameters: "
                "load_state_dict mixes both",
                0.85,
                patch=partial(load_whole_state, script, fact.node) if script.is_here(reach) else None,
            )


def check_clip(script: Script, run: Run) -> Iterator[Violation]:
    """DW303: yield the clipping of gradients by the norm of one rank's shard."""
    wraps = {fact.result.key: (at, fact) for at, fact in _wraps(run)}
    has_method = any(run.of(".clip_grad_norm_"))  # so that the function may be for a model of another kind
    of_parameters = {fact.result.key: fact for _, fact in run.of(".parameters")}
    for reach, fact in run.of(*CLIPS):
        given = argument(fact, 0, "parameters")
        listed = of_parameters.get(given.key) if given else None
        if listed is None or listed.owner is None:
            continue
        wrapped = wraps.get(listed.owner.key, (None, None))[1]
        surely = wrapped is not None
        if wrapped is None and not has_method:
            held = (wraps[key] for key in alternatives(listed.owner.key) if key in wraps)
            wrapped = next((wrap for at, wrap in held if together(reach, at)), None)
        if wrapped and _shards(wrapped):
            yield from violation_at(
                script,
                reach,
                "clip_grad_norm_ of torch.nn.utils sees the shard of one rank only: the ranks clip by different norms",
                0.85,
                patch=partial(_clip_by_fsdp, script, fact, listed) if surely and script.is_here(reach) else None,
            )


def _shards(wrapped: Noted) -> bool:
    """Return whether FSDP surely shards the gradients: a strategy that is not known may leave them whole."""
    strategy = argument(wrapped, 2, "sharding_strategy")
    if strategy is None:
        return "**" not in wrapped.named
    return strategy.key.op == "library" and str(strategy.key.args[0]).endswith(SHARDS)


def check_checkpointing(script: Script, run: Run) -> Iterator[Violation]:
    """DW304: yield activation checkpointing that is turned on after the model is wrapped."""
    wraps = {fact.result.key: (at, fact) for at, fact in _wraps(run)}
    for reach, fact in run.of(CHECKPOINTING, ".set_grad_checkpointing", ".gradient_checkpointing_enable"):
        model = argument(fact, 0, "model") if fact.name == CHECKPOINTING else fact.owner
        wrapped = (wraps[key] for key in alternatives(model.key) if key in wraps) if model else iter(())
        before = next((wrap for at, wrap in wrapped if together(reach, at)), None)
        here = before and script.source.path in (reach.fact.site.path, before.site.path)
        if before and here and not _without_reentry(script, reach, fact):
            line = before.site.line
            message = f"FSDP wraps the model before (line {line}): checkpoint the activations first, then wrap"
            patch = partial(_checkpointed_first, script, fact, before) if script.is_here(reach) else None
            yield from violation_at(script, reach, message, 0.7, patch=patch)


def _checkpointed_first(script: Script, checkpointing: Noted, wrapped: Noted) -> Patch:
    """Return the patch that checkpoints the activations of a model before it is wrapped under the same name."""
    source, stmt = script.source, script.source.statement_of(checkpointing.node)
    wrap = statement_with(source.block_of(stmt), source.path, [wrapped.site])
    match wrap, stmt:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Name(id=inner), *_])), ast.Expr():
            block = source.block_of(stmt)
            between = {each for part in block[block.index(wrap) + 1 : block.index(stmt)] for each in names_set(part)}
            if name == inner and wrap.value is wrapped.node and source.alone(stmt) and not names_read(stmt) & between:
                moved = source.insert_line(wrap.lineno, source.code(stmt), source.indent(wrap.lineno))
                edits = [moved, source.remove_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)]
                why = "FSDP wraps the checkpointed modules then, and an older sharded checkpoint has other names"
                return Patch(id=CHECKPOINT_FIRST, safety="unsafe", why_unsafe=why, edits=edits)
        case _:
            pass
    return no_patch(CHECKPOINT_FIRST, "checkpoint the activations in front of the wrap")


def _without_reentry(script: Script, reach: Reach, fact: Noted) -> bool:
    """Return whether the checkpointing may be the kind that works on wrapped modules as well."""
    around = script.names.enclosing_function(fact.node) if script.is_here(reach) else None
    return any(
        "REENTRANT" in (each.id if isinstance(each, ast.Name) else each.attr).upper()
        for each in ast.walk(around or fact.node)
        if isinstance(each, ast.Name | ast.Attribute)
    )


def _wraps(run: Run) -> Iterator[tuple[Reach, Noted]]:
    yield from run.of(*FSDP1)


def _has_parameters_of(given: Key, model: Key, before: list[Reach]) -> bool:
    inside = list(parts(given))
    return any(
        isinstance(each.fact, Noted)
        and each.fact.name in (".parameters", ".named_parameters")
        and each.fact.result.key in inside
        and _is(each.fact.owner, model)
        for each in before
    )


def _is(owner: Value | None, model: Key) -> bool:
    return owner is not None and owner.key is model


def _below_wrap(script: Script, optimizer: Noted, at: Reach, wrapped: Noted) -> Patch:
    source = script.source
    stmt = source.statement_of(optimizer.node)
    wrap = statement_with(source.block_of(stmt), source.path, (wrapped.site, *at.calls))
    may_move = isinstance(stmt, ast.Assign) and wrap is not None and may_move_below(source, stmt, wrap)
    if wrap is None or not may_move or not _keeps_name(script, wrap, optimizer, wrapped):
        return no_patch(ORDER, "make the optimizer behind the wrap, from the parameters of the wrapped model")
    return Patch(
        id=ORDER,
        safety="unsafe",
        why_unsafe="the optimizer then has other parameters, so that an older checkpoint of it does not fit",
        edits=moved_below(source, stmt, wrap),
    )


def _keeps_name(script: Script, wrap: ast.stmt, optimizer: Noted, wrapped: Noted) -> bool:
    """Return whether the model has the name behind a statement that wraps it by which the optimizer gets it.

    A statement that calls another function must be one that nobody else sees the optimizer in.
    """
    given = {dotted_name(node) for node in ast.walk(optimizer.node) if isinstance(node, ast.Name | ast.Attribute)}
    call = getattr(wrap, "value", None)
    if isinstance(call, ast.Call) and call is not wrapped.node and not _ignores(script, call, optimizer):
        return False
    match wrap:
        case ast.Assign(targets=targets):
            return any(dotted_name(target) in given for target in targets)
        case ast.Expr():  # fully_shard changes the model that it is given
            return isinstance(call, ast.Call) and wrapped.name in FSDP2
        case ast.For():
            return wrapped.name in FSDP2
        case _:
            return False


def _ignores(script: Script, call: ast.Call, optimizer: Noted) -> bool:
    """Return whether a function of this script does not name what an optimizer is assigned to."""
    function = script.names.function(call)
    stmt = script.source.statement_of(optimizer.node)
    names = {dotted_name(target) for target in stmt.targets} if isinstance(stmt, ast.Assign) else set[str]()
    return function is not None and not any(dotted_name(node) in names for node in ast.walk(function))


def _clip_by_fsdp(script: Script, fact: Noted, listed: Noted) -> Patch:
    call, inner = fact.node, listed.node
    if len(call.args) != 2 or call.keywords or inner is not call.args[0] or not hasattr(inner.func, "value"):
        return no_patch(CLIP, "call clip_grad_norm_ of the wrapped model instead")
    if not is_made_by(script, inner.func.value, FSDP1):  # type: ignore[attr-defined]
        return no_patch(CLIP, "call clip_grad_norm_ of the model where FSDP is around it: it is not always there")
    model = script.source.code(inner.func.value)  # type: ignore[attr-defined]
    code = f"{model}.clip_grad_norm_({script.source.code(call.args[1])})"
    return Patch(id=CLIP, safety="safe", edits=[script.source.replace(call, code)])
