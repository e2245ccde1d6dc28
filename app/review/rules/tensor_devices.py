"""DW435: tensors on the CPU in collectives of NCCL."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.reach import Run, argument
from ...training_script.syntax import call_argument
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at
from .process_group import INIT

# Collectives, with the place and the name of a tensor that is sent.
SENT = {
    "all_reduce": (0, "tensor"),
    "broadcast": (0, "tensor"),
    "reduce": (0, "tensor"),
    "all_gather": (1, "tensor"),
    "all_gather_into_tensor": (1, "input_tensor"),
}
# Functions that make a tensor on the CPU where they are given no device, and those that do so for numbers only.
ON_CPU = {f"torch.{name}" for name in ("zeros", "ones", "empty", "full", "rand", "randn", "arange")}
ON_CPU |= {f"torch.{name}Tensor" for name in ("Float", "Double", "Long", "Int")}
OF_NUMBERS = {"torch.tensor"}
ELSEWHERE = re.compile(r"set_default_device|set_default_tensor_type|with torch\.device")
FIX = "tensor-on-gpu"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW435: yield the collectives of NCCL that are given a tensor on the CPU."""
    backends = [_backend(fact) for _, fact in run.of(INIT)]
    if not backends or any(each != "nccl" for each in backends) or script.mentions(ELSEWHERE):
        return
    for reach, fact in run.of(*(f"torch.distributed.{name}" for name in SENT)):
        name = fact.name.rpartition(".")[2]
        if not (script.is_here(reach) and reach.several) or {"group", "**"} & fact.named.keys():
            continue
        place, named = SENT[name]
        given = call_argument(fact.node, named, place)
        made = script.names.origins(given) if given is not None else []
        if made and all(_is_on_cpu(script, each) for each in made):
            yield from violation_at(
                script,
                reach,
                f"{name} is given a tensor on the CPU, and NCCL communicates only between GPUs",
                0.85,
                patch=_by_hand,
            )


def _backend(fact: Noted) -> object:
    """Return the backend of a process group, or the default of the option for it; None if neither is in the text."""
    given = argument(fact, 0, "backend")
    if given is None:
        return None
    key = given.key
    default = key.args[2] if key.op == "attribute" and len(key.args) > 2 else key
    return default.value if default.is_constant else None


def _is_on_cpu(script: Script, node: ast.AST) -> bool:
    """Return whether an expression surely makes a tensor on the CPU."""
    if not isinstance(node, ast.Call) or any(each.arg in ("device", "out", None) for each in node.keywords):
        return False
    name = script.names.qualified(node.func)
    if name in OF_NUMBERS:
        return bool(node.args) and isinstance(node.args[0], ast.List | ast.Tuple | ast.Constant)
    return name in ON_CPU


def _by_hand() -> Patch:
    return no_patch(FIX, "make the tensor on the GPU of the rank, or use a process group of gloo for it")
