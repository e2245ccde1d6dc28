"""DW508: values of one rank's part of the data that a LightningModule logs as those of all."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import parts
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name, nodes_of_body
from ...training_script.torch_classes import LOADER_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at_node

MODULE = "LightningModule"
LOGS = ("log", "log_dict")
OF_EVALUATION = re.compile(
    r"(?:on_)?(?:validation|test)_(?:step|epoch_end|step_end)|(?:shared|common|eval|_shared)_step"
)
# A trainer of several processes: its devices, its nodes, or what brings them together.
SEVERAL = re.compile(
    r"\b(?:devices|gpus|num_nodes)\s*=\s*(?:[\"']?-1|[\"']?(?!1\b)\d+|\[\s*\d+\s*,)"
    r"|strategy\s*=\s*[\"'](?:ddp|fsdp|deepspeed)|strategy\s*=\s*\w*(?:DDP|FSDP|DeepSpeed)\w*\("
)
# What else evaluates, or gives the data for it.
EVALUATES = re.compile(r"def (?:val|test)_dataloader|\.(?:validate|test)\(|val_dataloaders|datamodule")
TRAINING_ARGUMENTS = 2  # of ``fit``: the model and the loader for training
REDUCED = {"sync_dist", "rank_zero_only"}
REDUCTIONS = {"compute", "all_gather", "reduce", "all_reduce", "broadcast"}


def check(script: Script) -> list[Violation]:
    """DW508: return the logs of an evaluation of several processes without ``sync_dist``."""
    if not script.mentions(MODULE) or not script.mentions(SEVERAL) or _never_evaluates(script):
        return []
    return [*_violations(script)]


def _never_evaluates(script: Script) -> bool:
    """Return whether each call of ``fit`` gets a loader for training alone, and nothing else has one to evaluate."""
    fits = [each for each in nodes_of_kinds(script.source.tree, ast.Call) if last_name(each.func) == "fit"]
    if not fits or script.mentions(EVALUATES):
        return False
    words = ({keyword.arg for keyword in each.keywords} for each in fits)
    return all(
        len(each.args) == TRAINING_ARGUMENTS and given <= {"ckpt_path"} and _is_loader(script, each.args[1])
        for each, given in zip(fits, words, strict=True)
    )


def _is_loader(script: Script, given: ast.expr) -> bool:
    """Return whether an argument is a loader rather than a module of data."""
    name = dotted_name(given).rpartition(".")[2]
    return "load" in name.lower() or any(
        isinstance(each, ast.Call) and script.names.qualified(each.func) in LOADER_CLASSES
        for each in script.names.origins(given)
    )


def _violations(script: Script) -> Iterator[Violation]:
    for cls in nodes_below(script.source.tree):
        if not isinstance(cls, ast.ClassDef) or not any(last_name(base) == MODULE for base in cls.bases):
            continue
        for method in cls.body:
            if isinstance(method, FUNCTIONS) and OF_EVALUATION.fullmatch(method.name):
                yield from _of_method(script, method)


def _of_method(script: Script, method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Violation]:
    if _reduces(script, method):
        return
    for call in (each for stmt in method.body for each in nodes_of_body(stmt) if isinstance(each, ast.Call)):
        match call.func:
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in LOGS:
                given = {each.arg for each in call.keywords}
                logged = call_argument(call, "value" if name == "log" else "dictionary", 1 if name == "log" else 0)
                if given & REDUCED or None in given or logged is None or _is_of_all(script, logged):
                    continue
                yield violation_at_node(
                    call,
                    "each rank evaluates its part of the data, and this logs what one of them has computed: "
                    "sync_dist=True takes the mean over the ranks",
                    0.7,
                )
            case _:
                pass


def _reduces(script: Script, method: ast.AST) -> bool:
    """Return whether a method, or a function of the file that it calls, takes values of all ranks together."""
    defined = {each.name: each for each in nodes_below(script.source.tree) if isinstance(each, FUNCTIONS)}
    pending, seen = [method], set[str]()
    while pending:
        calls = {last_name(each.func) for each in ast.walk(pending.pop()) if isinstance(each, ast.Call)}
        if calls & REDUCTIONS:
            return True
        pending += [defined[name] for name in calls & defined.keys() - seen]
        seen |= calls
    return False


def _is_of_all(script: Script, logged: ast.expr) -> bool:
    """Return whether a value may be a metric, which Lightning reduces itself, or is the same on every rank."""
    values = logged.values if isinstance(logged, ast.Dict) else [logged]
    if any(isinstance(each, ast.Attribute | ast.Subscript | ast.Constant) for each in values):
        return True
    if not isinstance(logged, ast.Dict) and not isinstance(logged, ast.Name | ast.Call | ast.BinOp):
        return True
    keys = [key for each in values if (key := script.evaluated.value(each))]
    return not keys or any(part.op in SAME for key in keys for part in parts(key))
