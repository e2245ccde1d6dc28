"""DW509: models that are spread over all GPUs in every rank."""

import ast
from collections.abc import Iterator

from ...training_script.model.keys import parts
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at_node

SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")
DEVICE_MAP = "device_map"
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
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Call) or not any(_is_spread(each) for each in node.keywords):
            continue
        if script.evaluated.value(node) in wrapped:
            yield violation_at_node(
                node,
                "every rank spreads its copy of the model over all GPUs of the machine, where those of the other ranks "
                "are: each rank needs its copy on a GPU of its own",
                0.85,
            )


def _is_spread(given: ast.keyword) -> bool:
    return given.arg == DEVICE_MAP and isinstance(given.value, ast.Constant) and given.value.value in SPREADS
