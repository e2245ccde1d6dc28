"""DW104: collectives of tensors on the current GPU, before any rank has selected its own."""

import ast
import re
from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.reach import Run
from ...training_script.syntax import called_function_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .device_choice import SET, backend_of
from .process_group import INIT

COLLECTIVES = tuple(f"torch.distributed.{name}" for name in GROUP_PLACE if name not in ("barrier", "new_group"))
SELECTS = re.compile(r"set_(?:\w+_)?device(?:_(?:index|id))?")  # also helpers and other libraries
BEFORE = re.compile(r"CUDA_VISIBLE_DEVICES|device_id\s*=|cuda\.device\(")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives that every rank begins on GPU 0, as it selects its GPU behind them."""
    made = [(reach, fact) for reach, fact in run.of(INIT) if backend_of(fact) in ("nccl", None)]
    if not made or script.mentions(BEFORE, "CUDA_VISIBLE_DEVICES", "device_id", "cuda.device("):
        return
    selected = next((place for place, each in enumerate(run.reached) if each.name == SET), len(run.reached))
    early = {id(each) for each in run.reached[:selected]}
    for reach, fact in run.of(*COLLECTIVES):
        if id(reach) not in early or not reach.by_all or not script.is_here(reach) or not fact.node.args:
            continue
        around = script.names.enclosing_function(fact.node) or script.source.tree
        selections = [
            node
            for node in ast.walk(around)
            if isinstance(node, ast.Call) and SELECTS.fullmatch(called_function_name(node))
        ]
        later = [node for node in selections if node.lineno > fact.node.lineno]
        if len(later) == len(selections) > 0 and _is_on_current(script, fact.node.args[0]):
            yield from violation_at(
                script,
                reach,
                f"every rank has this tensor on GPU 0, as it selects its GPU only in line {later[0].lineno}: NCCL "
                "refuses two processes on one GPU, or each of them keeps memory there",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=later[0].lineno, message="selected here")],
            )


def _is_on_current(script: Script, tensor: ast.expr) -> bool:
    """Return whether a tensor is put on the GPU that is selected, without a number."""
    for made in (tensor, *origins_at(script, tensor)):
        match made:
            case ast.Call(func=ast.Attribute(attr="cuda"), args=[], keywords=[]):
                return True
            case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Constant(value="cuda")]):
                return True
            case ast.Call(keywords=given) if any(
                each.arg == "device" and isinstance(each.value, ast.Constant) and each.value.value == "cuda"
                for each in given
            ):
                return True
            case _:
                pass
    return False
