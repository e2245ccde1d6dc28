"""DW246: models in DDP of which no parameter learns."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument
from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at

# Modules of torch.nn that have no parameters.
WITHOUT = re.compile(
    r"\w*Loss|(?:Leaky)?ReLU6?|GELU|SiLU|ELU|Mish|Tanh|Sigmoid|(?:Log)?Softmax|Identity|(?:Un)?[Ff]latten|Dropout\dd|Dropout"
    r"|(?:Adaptive)?(?:Max|Avg)Pool\dd|CosineSimilarity|PairwiseDistance|Upsample|PixelShuffle"
)
KEEPING = {"eval", "train", "to", "cuda", "cpu", "float", "half", "bfloat16", "double"}  # methods that return the model
UNFREEZES = re.compile(
    r"requires_grad_\(\s*(?:True\s*)?\)|requires_grad\s*=\s*(?!False)\S|requires_grad_\(\s*(?!False)\w"
)
CHANGES = re.compile(r"lora|peft|adapter|Parameter\(", re.IGNORECASE)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW246: yield the models that DDP refuses, as none of their parameters requires a gradient."""
    for reach, fact in run.of(*DDP_CLASSES):
        model = argument(fact, 0, "module")
        if model is None or not reach.several or reach.attempted or not script.is_here(reach):
            continue
        given = call_argument(fact.node, "module", 0)
        if given is None:
            continue
        frozen = _is_frozen(script, given, fact.node)
        if frozen or _has_none(model.key) or _is_without(script, given):
            why = "is frozen before" if frozen else "has none"
            yield from violation_at(
                script,
                reach,
                f"DDP needs a parameter that requires a gradient, and this model {why}: it raises an error",
                0.85,
            )


def _is_without(script: Script, model: ast.expr) -> bool:
    """Return whether an expression is, or names, a new module of torch that has no parameters."""
    made = [model] if isinstance(model, ast.Call) else script.names.origins(model)
    return bool(made) and all(isinstance(each, ast.Call) and _is_name_without(script, each.func) for each in made)


def _is_name_without(script: Script, function: ast.expr) -> bool:
    module, _, name = script.names.qualified(function).rpartition(".")
    return module == "torch.nn" and bool(WITHOUT.fullmatch(name))


def _has_none(model: Key) -> bool:
    """Return whether a module of torch has no parameters."""
    if model.op != "call" or not str(model.args[0]).startswith("torch.nn."):
        return False
    name = str(model.args[0]).rpartition(".")[2]
    if name == "Sequential":
        return len(model.args) > 1 and all(isinstance(each, Key) and _has_none(each) for each in model.args[1:])
    return bool(WITHOUT.fullmatch(name))


def _is_frozen(script: Script, model: ast.expr, wrap: ast.Call) -> bool:
    """Return whether statements before the wrap freeze all parameters of a model, and none trains any again."""
    if script.mentions(UNFREEZES) or script.mentions(CHANGES):
        return False
    if _freezes(script, model):
        return True
    while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and model.func.attr in KEEPING:
        model = model.func.value
    name, block = dotted_name(model), _statements_before(script, wrap)
    frozen = False
    for stmt in block if name else ():
        match stmt:
            case ast.Assign(targets=targets, value=value) if name in map(dotted_name, targets):
                frozen = _freezes(script, value)
            case ast.Assign(targets=targets) if any(dotted_name(each).startswith(f"{name}.") for each in targets):
                frozen = False  # a new part
            case ast.Expr(value=ast.Call() as call):
                handed = call.args[:1] if _is_freezer(script, call) else []
                frozen = frozen or name in map(dotted_name, handed) or _freezes(script, call, name)
            case ast.For():
                frozen = frozen or _freezes_all(stmt, name)
            case _:
                pass
    return frozen


def _statements_before(script: Script, wrap: ast.Call) -> list[ast.stmt]:
    """Return the statements before that of a call which surely run before it, those of outer blocks first."""
    found: list[ast.stmt] = []
    at: ast.AST | None = script.source.statement_of(wrap)
    while isinstance(at, ast.stmt | ast.ExceptHandler) and not isinstance(at, FUNCTIONS):
        found = [*(stmt for stmt in script.source.block_of(at) if stmt.lineno < at.lineno), *found]
        at = script.source.parents.get(at)
    return found


def _freezes(script: Script, value: ast.expr, name: str = "") -> bool:
    """Return whether an expression returns a model that it has frozen; if a name is given, the model of that name."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute):
            off = value.args[:1] or [each.value for each in value.keywords]
            if value.func.attr == "requires_grad_" and any(_is_false(each) for each in off):
                return not name or dotted_name(value.func.value) == name
            if value.func.attr in KEEPING:
                value = value.func.value
                continue
        return not name and _is_freezer(script, value)
    return False


def _is_freezer(script: Script, call: ast.Call) -> bool:
    """Return whether a function of the script freezes all parameters of its first argument, or a class its own."""
    name = last_name(call.func) if isinstance(call.func, ast.Name) else ""
    for node in script.source.tree.body if name else ():
        if isinstance(node, ast.FunctionDef) and node.name == name and node.args.args:
            return any(isinstance(stmt, ast.For) and _freezes_all(stmt, node.args.args[0].arg) for stmt in node.body)
        if isinstance(node, ast.ClassDef) and node.name == name:
            made = next((each for each in node.body if getattr(each, "name", "") == "__init__"), None)
            last = made.body[-1] if isinstance(made, ast.FunctionDef) else None
            return isinstance(last, ast.For) and _freezes_all(last, "self")
    return False


def _freezes_all(loop: ast.For, model: str) -> bool:
    """Return whether a loop over the parameters of a model freezes each of them."""
    match loop:
        case ast.For(target=ast.Name(id=each), iter=ast.Call(func=ast.Attribute(value=owner, attr="parameters"))):
            pass
        case ast.For(
            target=ast.Tuple(elts=[_, ast.Name(id=each)]),
            iter=ast.Call(func=ast.Attribute(value=owner, attr="named_parameters")),
        ):
            pass
        case _:
            return False
    return dotted_name(owner) == model and any(_freezes_one(stmt, each) for stmt in loop.body)


def _freezes_one(stmt: ast.stmt, name: str) -> bool:
    match stmt:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=held), attr="requires_grad")], value=value):
            return held == name and _is_false(value)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="requires_grad_"), args=[value])):
            return held == name and _is_false(value)
        case _:
            return False


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
