"""DW509: models that are spread over all GPUs in every rank."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at_node

SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
DEVICE_MAP = "device_map"
TRAINER = "Trainer"  # in the names of classes that wrap the model they get for several ranks
LAUNCHED = re.compile(r"LOCAL_RANK|WORLD_SIZE|\b(?:deepspeed|fsdp)\s*=|get_rank\(|process_index|torchrun")
FOR_ONE = re.compile(r"\b(?:is_parallelizable|model_parallel)\b")  # one process trains a model on several GPUs
WRAPS = (*DDP_CLASSES, "torch.distributed.fsdp.FullyShardedDataParallel", "deepspeed.initialize", ".prepare")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the models that each rank spreads over the GPUs of the machine and wraps for several ranks."""
    if not run.distributed or not script.mentions(DEVICE_MAP):
        return
    wrapped = {
        part
        for _, fact in run.of(*WRAPS)
        for value in (*fact.values, *(fact.named[name] for name in ("model", "module") if name in fact.named))
        for part in parts(value.key)
    }
    trained = set(_trained(script)) if script.mentions(LAUNCHED) and not script.mentions(FOR_ONE) else set[Key]()
    for node in nodes_of_kinds(script.source.tree, ast.Call):
        given = next((each.value for each in node.keywords if each.arg == DEVICE_MAP), None)
        places = [_gpus(each) for each in script.names.origins(given)] if given is not None else []
        model = script.evaluated.value(node)
        if not places or not all(places) or (model not in wrapped and model not in trained):
            continue
        spread = any(len(each) > 1 for each in places)
        where = "spreads its copy of the model over all GPUs of the machine" if spread else "loads its copy on one GPU"
        yield violation_at_node(
            node,
            f"every rank {where}, where those of the other ranks are: each rank needs its copy on a GPU of its own",
            0.85,
            severity=None if model in wrapped else "warning",
        )


def _trained(script: Script) -> Iterator[Key]:
    """Yield the models that a trainer of transformers or trl gets."""
    for node in nodes_of_kinds(script.source.tree, ast.Call):
        if not last_name(node.func).endswith(TRAINER):
            continue
        by_name = {each.arg: each.value for each in node.keywords}
        model = by_name.get("model") or (node.args[0] if node.args else None)
        origins = script.names.origins(model) if model is not None else []
        inner = [each.args[0] for each in origins if isinstance(each, ast.Call) and each.args]  # as get_peft_model does
        for given in [model, *inner]:
            if given is not None and (key := script.evaluated.value(given)):
                yield from parts(key)


def _gpus(device_map: ast.AST) -> set[object]:
    """Return the GPUs that a map of devices names as they are written out, two of them for all; none if it asks."""
    match device_map:
        case ast.Constant(value=str() as name) if name in SPREADS:
            return {0, 1}
        case ast.Dict(values=values) if all(isinstance(each, ast.Constant) for each in values):
            named = set[object](each.value for each in values if isinstance(each, ast.Constant))
            return named if all(map(_is_gpu, named)) else set()
        case _:
            return set()


def _is_gpu(place: object) -> bool:
    return (isinstance(place, int) and not isinstance(place, bool)) or str(place).startswith("cuda:")
