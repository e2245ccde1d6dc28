"""DW102 and DW104: GPUs that are not chosen by the rank."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK
from ...training_script.model.library_functions import KNOWN_MODULES
from ...training_script.model.noted_calls import CURRENT_GPU, FIRST_GPU
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.nodes import nodes_below
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.torch_names import imports_os, torch_module
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at, violation_at_node
from .process_group import INIT

SET = "torch.cuda.set_device"
CHOSEN = re.compile(r"set_device|device_ids?\b|CUDA_VISIBLE_DEVICES|cuda\.device\(|[\"']cuda:|cuda\(\w|device\([^)]*,")
WITHOUT_DEVICE = KNOWN_MODULES | {"torchvision", "torchaudio", "PIL", "sklearn", "scipy", "pandas", "matplotlib"}
ON_GPU = re.compile(r"\.cuda\(\)|\.to\([\"']cuda[\"']\)|device ?= ?(?:torch\.device\()?[\"']cuda[\"']")
# What selects the GPU of a rank, or hides those of the others.
SELECTS = re.compile(r"set_device|cuda\.device\(|CUDA_VISIBLE_DEVICES|device_id\b|init_device|cuda\.current_device")
CHOOSE = ("accelerate.Accelerator", "lightning.Fabric", "lightning.fabric.Fabric")  # each rank a GPU of its own
SELECT, OF_RANK = "select-gpu", "gpu-of-rank"
DEVICE = "f\"cuda:{os.environ.get('LOCAL_RANK', 0)}\""


def check_selection(script: Script, run: Run) -> Iterator[Violation]:
    """DW102: yield the process groups of NCCL in scripts that use GPUs and never select one."""
    yield from _on_first(script, run)
    made = list(run.of(INIT))
    if (
        not made
        or not run.distributed
        or script.mentions(CHOSEN)
        or not script.mentions(ON_GPU)
        or not _imports_only(script, WITHOUT_DEVICE)
    ):
        return
    for reach, fact in made:
        if reach.several and reach.ranks == ALL and backend_of(fact) == "nccl":
            message = "no rank selects its GPU: all of them use GPU 0, where NCCL accepts one process only"
            patch = (lambda fact=fact: select_gpu(script, fact)) if script.is_here(reach) else None
            yield from violation_at(script, reach, message, 0.7, patch=patch)


def _on_first(script: Script, run: Run) -> Iterator[Violation]:
    """Yield what ranks put on the current GPU, which none of them selects, where the model is on that of the rank."""
    ids = [
        given for reach, fact in run.of(*DDP_CLASSES) if reach.several and (given := argument(fact, 1, "device_ids"))
    ]
    if not any(given.key.differs_by & BY_RANK for given in ids) or script.mentions(SELECTS) or any(run.of(SET)):
        return
    if not _imports_only(script, WITHOUT_DEVICE) or not any(run.of(INIT)):
        return  # a module of the project may select it, or what calls this one
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="cuda"), args=[], keywords=[]):
                pass
            case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Constant(value="cuda"), *_]):
                pass
            case _:
                continue
        yield violation_at_node(
            node,
            "every rank puts this on GPU 0, as none selects its GPU with torch.cuda.set_device: the model is "
            "on the GPU of the rank",
            0.75,
        )
        return


def check_first_gpu(script: Script, run: Run) -> Iterator[Violation]:
    """DW104: yield what every rank puts on GPU 0, and what it makes on the current GPU before it selects one."""
    groups = list(run.of(INIT))
    if script.mentions("CUDA_VISIBLE_DEVICES") or not run.distributed:
        return
    by_library = any(run.of(*CHOOSE))
    if not by_library and not any(backend_of(fact) in ("nccl", None) for _, fact in groups):
        return
    own_gpus = by_library or script.mentions("device_ids") or any(run.of(SET))
    for reach, fact in run.of(FIRST_GPU):
        if reach.by_all and run.is_of_several(reach):
            message = "every rank puts this on GPU 0: the other GPUs stay empty, and NCCL accepts one process for each"
            if own_gpus:
                message = (
                    "every rank puts this on GPU 0, where the model of one of them is: it takes memory from that one"
                )
            patch = (lambda fact=fact: _of_rank(script, fact)) if script.is_here(reach) else None
            severity = "warning" if own_gpus else None
            yield from violation_at(script, reach, message, 0.8, severity=severity, patch=patch)
    selected = next((run.reached.index(reach) for reach, _ in run.of(SET)), None)
    for reach, fact in run.of(CURRENT_GPU):
        if selected is not None and reach.by_all and run.reached.index(reach) < selected:
            message = "this is made before torch.cuda.set_device: every rank makes it on GPU 0, and keeps memory there"
            patch = (lambda fact=fact: _of_rank(script, fact)) if script.is_here(reach) else None
            yield from violation_at(script, reach, message, 0.7, severity="warning", patch=patch)


def backend_of(fact: Noted) -> object:
    """Return the backend of a process group, None if its name is not in the text."""
    given = argument(fact, 0, "backend")
    return given.key.value if given and given.key.is_constant else None


def select_gpu(script: Script, fact: Noted) -> Patch:
    source, torch = script.source, torch_module(script, fact.node)
    stmt = source.statement_of(fact.node)
    given = {each.arg for each in fact.node.keywords}
    if not torch or not imports_os(script) or {"rank", "world_size"} & given or not source.alone(stmt):
        return no_patch(SELECT, "call torch.cuda.set_device with the local rank before the process group is made")
    code = f'{torch}.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))'
    return Patch(
        id=SELECT,
        safety="unsafe",
        why_unsafe="a launcher that does not set LOCAL_RANK leaves every rank on GPU 0, as before",
        edits=[source.insert_line(stmt.lineno, code, source.indent(stmt.lineno))],
    )


def _of_rank(script: Script, fact: Noted) -> Patch:
    call = fact.node
    literal = next(
        (
            node
            for node in (*call.args, *(each.value for each in call.keywords))
            if isinstance(node, ast.Constant) and node.value in ("cuda:0", "cuda")
        ),
        None,
    )
    if literal is None or not imports_os(script):
        return no_patch(OF_RANK, "make the device from the local rank where it is chosen")
    return Patch(
        id=OF_RANK,
        safety="unsafe",
        why_unsafe="what is used together with it has to be on the same device",
        edits=[script.source.replace(literal, DEVICE)],
    )


def _imports_only(script: Script, modules: set[str]) -> bool:
    """Return whether everything that a script imports is one of these modules."""
    imported: set[str] = set()
    for node in nodes_below(script.source.tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add("" if node.level else (node.module or "").partition(".")[0])
    return imported <= modules
