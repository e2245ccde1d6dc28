"""DW464: types, reductions and calls that a backend, or a class, does not have."""

import re
from collections.abc import Iterator
from functools import cache

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key
from ...training_script.model.noted_calls import INIT
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.signatures import parameters_of
from ...training_script.model.tensor_kinds import type_of
from ...training_script.model.values import Library
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at
from .collective_arguments import FILLED_LISTS, PREFIX, ranks_of
from .unfit_buffers import element_of

GPU = re.compile(r"cuda|\bxpu\b|\bhpu\b|\bnpu\b")
SENT = ("tensor", "input_tensor", "input")
# Types of elements that a collective of gloo does not send.
NOT_OF_GLOO = {"int16", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"}
WHOLE = {"int8", "uint8", "int16", "int32", "int64", "bool"}
FLOATS = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}
COMPLEX = {"complex64", "complex128"}
# Reductions by the types that they do not take.
OF_BITS = dict.fromkeys(("BAND", "BOR", "BXOR"), FLOATS)
NOT_TAKEN = {**OF_BITS, **dict.fromkeys(("MAX", "MIN", "PRODUCT"), COMPLEX)}
NOT_TAKEN_BY_GLOO = {"AVG": WHOLE, "PREMUL_SUM": FLOATS | WHOLE}
# Calls that gloo does not have, or that need a GPU, and what to call.
NO_CALLS_OF_GLOO = {
    PREFIX + "split_group": "gloo has no split_group: dist.new_subgroups_by_enumeration makes such groups",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": "SyncBatchNorm works on GPUs only, and this job has gloo and none",
}
NO_CALLS_OF_NCCL = {
    PREFIX + "monitored_barrier": "monitored_barrier is for gloo: use dist.barrier, or a group with gloo"
}
COPIES = ("copy.deepcopy", "copy.copy")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW464: yield what the backend of the job, or a sharded model, does not have."""
    gloo = _backend(run, "gloo")
    for reach, fact in run.of(*(PREFIX + name for name in _reducing())):
        if reach.several and (why := _not_taken(run, reach, fact, gloo=gloo)):
            yield from violation_at(script, reach, why, 0.85)
    for reach, fact in run.of(*NO_CALLS_OF_NCCL) if _backend(run, "nccl") else ():
        if not (reach.unsure or reach.attempted) and argument(fact, 0, "group") is None:
            yield from violation_at(script, reach, NO_CALLS_OF_NCCL[fact.name], 0.85)
    on_cpu = gloo and not script.mentions(GPU, "cuda", "xpu", "hpu", "npu")
    for reach, fact in run.of(*NO_CALLS_OF_GLOO, *DDP_CLASSES) if on_cpu else ():
        if reach.unsure or reach.attempted:
            continue
        devices = argument(fact, 1, "device_ids")
        if fact.name in NO_CALLS_OF_GLOO:
            yield from violation_at(script, reach, NO_CALLS_OF_GLOO[fact.name], 0.85)
        elif fact.name in DDP_CLASSES and devices and devices.key.op == "sequence" and devices.key.args:
            why = "device_ids is for a model on one GPU, and this one is on the CPU: leave it out"
            yield from violation_at(script, reach, why, 0.85)
    sharded = {fact.values[0].key for _, fact in run.of(*_shards()) if fact.values}
    for reach, fact in run.of(*COPIES):
        if fact.values and fact.values[0].key in sharded and not reach.unsure and _is_behind(run, reach, fact):
            yield from violation_at(
                script, reach, "a model that fully_shard has sharded cannot be copied: copy it before", 0.85
            )


def _shards() -> tuple[str, ...]:
    return (PREFIX + "fsdp.fully_shard", PREFIX + "_composable.fsdp.fully_shard")


def _is_behind(run: Run, reach: Reach, fact: Noted) -> bool:
    """Return whether a copy comes after the model is sharded."""
    before = run.reached[: run.reached.index(reach)]
    return any(
        isinstance(each.fact, Noted)
        and each.name in _shards()
        and each.fact.values
        and each.fact.values[0].key is fact.values[0].key
        for each in before
    )


@cache
def _reducing() -> list[str]:
    from ...training_script.model.signatures import WHOLE as SIGNED

    names = (each.removeprefix(PREFIX) for each in SIGNED)
    return sorted(name for name in names if {each.name for each in parameters_of(PREFIX + name)} & {*SENT})


def _backend(run: Run, name: str) -> bool:
    """Return whether all process groups that the program makes have a backend, and it makes one."""
    made = [argument(fact, 0, "backend") for _, fact in run.of(INIT)]
    return bool(made) and all(each is not None and each.key.is_constant and each.key.value == name for each in made)


def _not_taken(run: Run, reach: Reach, fact: Noted, *, gloo: bool) -> str:
    """Return why a collective does not take the tensors or the reduction it is given, empty if it does."""
    name = fact.name.removeprefix(PREFIX)
    places = {each.name: place for place, each in enumerate(parameters_of(fact.name))}
    given = next((found for word in SENT if word in places and (found := argument(fact, places[word], word))), None)
    filled = argument(fact, *FILLED_LISTS[name]) if name in FILLED_LISTS else None
    known = [each for each in (given and given.key, filled and element_of(filled.key)) if each is not None]
    types = {kind for key in known for rank in ranks_of(reach) if (kind := type_of(key, run.keys, rank))}
    kind = types.pop() if len(types) == 1 else None
    if kind is None:
        return ""
    if gloo and kind in NOT_OF_GLOO:
        return f"gloo does not send tensors of type {kind}: use another type, such as int32 or bfloat16"
    op = argument(fact, places["op"], "op") if "op" in places else None
    reduction = _reduction(op.key, op.obj) if op else ""
    if kind in NOT_TAKEN.get(reduction, ()) or (gloo and kind in NOT_TAKEN_BY_GLOO.get(reduction, ())):
        return f"{name} has no {reduction} of tensors of type {kind}" + (" with gloo" if reduction == "AVG" else "")
    return ""


def _reduction(key: Key, obj: object) -> str:
    name = obj.name if isinstance(obj, Library) else str(key.args[0]) if key.op == "library" else ""
    return name.rpartition(".")[2] if "ReduceOp" in name else ""
