"""DW102: calls that work on the current GPU, in programs whose ranks have GPUs of their own and select none."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK
from ...training_script.model.parsed_modules import read_module
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .device_choice import SELECTS, backend_of, select_gpu
from .process_group import INIT

# Libraries that select the GPU of each rank.
SELECTING = re.compile(
    r"^\s*(?:import|from) (?:accelerate|lightning|pytorch_lightning|deepspeed|horovod|mmcv|mmengine|detectron2"
    r"|fairscale|transformers|composer|ignite|ray|torchrun|submitit|megatron|colossalai)\b",
    re.MULTILINE,
)
ON_CURRENT = {
    "torch.cuda.empty_cache": "it makes a context on GPU 0 in every process, which takes memory there",
    "torch.cuda.synchronize": "it makes a context on GPU 0 in every process, and waits for that GPU",
    **dict.fromkeys(
        (f"torch.distributed.{name}" for name in ("all_gather_object", "broadcast_object_list", "gather_object")),
        "every rank puts the object on GPU 0, where NCCL accepts one process only",
    ),
}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW102: yield the process groups of programs in which ranks choose their GPUs without selecting them."""
    ids = [given for _, fact in run.of(*DDP_CLASSES) if (given := argument(fact, 1, "device_ids"))]
    if not any(given.key.differs_by & BY_RANK for given in ids) or _selects(script):
        return
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    used = next(((node, why) for node in calls if (why := _why(script, node))), None)
    if used is None:
        return
    node, why = used
    for reach, fact in run.of(INIT):
        if reach.ranks == ALL and backend_of(fact) in ("nccl", None) and script.is_here(reach):
            yield from violation_at(
                script,
                reach,
                f"no rank selects its GPU with torch.cuda.set_device, and line {node.lineno} works on the current one: "
                f"{why}",
                0.75,
                related=[RelatedPlace(path=script.source.path, line=node.lineno, message="on the current GPU")],
                patch=lambda fact=fact: select_gpu(script, fact),
            )
            return


def _why(script: Script, node: ast.Call) -> str:
    """Return how a call without a device works on the current GPU, an empty text for others."""
    name = script.names.qualified(node.func)
    given = name.startswith("torch.cuda.") and (node.args or node.keywords)
    return "" if given or any(each.arg == "device" for each in node.keywords) else ON_CURRENT.get(name, "")


def _selects(script: Script) -> bool:
    """Return whether the script, a module of its project or a library in it may select the GPU of a rank."""
    if script.mentions(SELECTS) or script.mentions(SELECTING):
        return True
    texts = [read_module(path) or "" for path in script.evaluated.modules]
    return any(SELECTS.search(text) or SELECTING.search(text) for text in texts)
