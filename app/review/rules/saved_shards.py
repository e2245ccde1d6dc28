"""DW306: the shards of one rank, saved as if they were the model."""

from collections.abc import Iterator

from ...training_script.model.keys import Key
from ...training_script.model.reach import ALL, Run, alternatives, argument
from ...training_script.model.values import is_elements
from ..rule_context import Script, Violation
from ..violations import violation_at
from .fsdp_order import FSDP2
from .past_libraries import ENGINE

MOST_INNER = 2  # mappings in each other


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the files that some ranks write, with the shards that these ranks hold."""
    sharded = {model.key for _, fact in run.of(*FSDP2) if (model := argument(fact, 0, "module"))}
    states = {
        fact.result.key
        for _, fact in run.of(".state_dict")
        if fact.owner and fact.owner.key in sharded and "fsdp" in fact.owner.facts
    }
    yield from _of_zero(script, run)
    for reach, fact in run.of("torch.save"):
        saved = argument(fact, 0, "obj")
        if saved is None or reach.ranks == ALL or reach.unsure or not run.distributed:
            continue
        if "shard" in saved.facts or any(each in states for each in _held(saved.key, MOST_INNER)):
            yield from violation_at(
                script,
                reach,
                "only some ranks save this state, and it has the shards of these ranks: what the others hold is in no "
                "file",
                0.85,
            )


def _of_zero(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states of models that stage 3 of DeepSpeed has split, which a rank takes and saves by itself."""
    split: set[Key] = set()
    for _, fact in run.of(ENGINE):
        if is_elements(fact.result.obj) and "divided_engine" in fact.result.obj[0].facts:
            model = argument(fact, 1, "model")
            split |= {fact.result.key, *([model.key] if model else [])}
    states = {
        fact.result.key: reach
        for reach, fact in run.of(".state_dict")
        if fact.owner and not split.isdisjoint((fact.owner.key, *_within(fact.owner.key)))
    }
    for reach, fact in run.of("torch.save") if states and not script.mentions("GatheredParameters") else ():
        saved = argument(fact, 0, "obj")
        if saved and any(each in states for each in _held(saved.key, MOST_INNER)):
            yield from violation_at(
                script,
                reach,
                "stage 3 of ZeRO has split this model: outside of its layers a rank holds empty parameters, and saves "
                "these",
                0.85,
                cause="zero3-params-empty",
            )


def _within(key: Key) -> Iterator[Key]:
    """Yield the object of which a value is an attribute."""
    if key.op == "attribute":
        yield from (arg for arg in key.args[:1] if isinstance(arg, Key))


def _held(saved: Key, inner: int) -> Iterator[Key]:
    """Yield what a value may be, and the values of mappings."""
    for each in alternatives(saved):
        yield each
        for value in each.args[1::2] if each.op == "mapping" and inner else ():
            yield from _held(value, inner - 1)
