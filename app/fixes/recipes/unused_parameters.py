"""``name-parameters``: the parameters without gradient by name, where the module is defined in the user's files."""

import ast
import re

from ...training_script.syntax import FUNCTIONS, call_argument, last_name
from ..facts import CaseFacts
from ..types import Place
from ..user_code import UserFile
from .types import RecipeResult

NUMBER = re.compile(r"\d+")
NAME = re.compile(r"[A-Za-z_][\w.]*\.[\w.]+")
WITH_WEIGHT_AND_BIAS = re.compile(r"Linear|Conv(?:Transpose)?[123]d|(?:Batch|Layer|Group|Instance)Norm\w*|Bilinear")
WEIGHT_ONLY = {"Embedding", "EmbeddingBag", "PReLU", "RMSNorm"}
WITHOUT = re.compile(
    r"ReLU|GELU|SiLU|Sigmoid|Tanh|Softmax|Dropout\d?d?|Flatten|Identity|\w*Pool[123]d|Upsample|\w*Loss"
)
DEPTH = 6


def name_parameters(facts: CaseFacts) -> RecipeResult:
    """Return the names of the parameters that the log lists by index, and where the model is wrapped."""
    listed = facts.values.get("parameters", "")
    indices = [int(found) for found in NUMBER.findall(listed)] if not NAME.search(listed) else []
    wraps = list(facts.calls(["DistributedDataParallel"]))
    places = [file.place(call, "wrapped here") for file, call in wraps[:1]]
    if not listed:
        return RecipeResult(places=places)
    names = NAME.findall(listed)
    for file, wrap in wraps:
        if indices and (all_names := _names_of(facts, file, wrap)):
            names = [all_names[index] for index in indices if index < len(all_names)]
    if names:
        listed = f" (parameters {', '.join(map(str, indices))} of the model)" if indices else ""
        text = f"No gradient in the step that failed: {', '.join(names)}{listed}."
        lines = [
            place for name in dict.fromkeys(name.partition(".")[0] for name in names) for place in _made(facts, name)
        ]
        return RecipeResult(text=text, places=[*lines, *places])
    model = facts.names.get("model", "model")
    code = (
        f"print([n for i, (n, p) in enumerate((n, p) for n, p in {model}.named_parameters() if p.requires_grad)\n"
        f"       if i in {tuple(indices)!r}])"
    )
    return RecipeResult(
        text="This line, after the wrap, names the parameters that the error lists:", code=code, places=places
    )


def _made(facts: CaseFacts, attribute: str) -> list[Place]:
    """Return the line on which a module assigns ``self.<attribute>``."""
    for file in facts.files:
        for node in ast.walk(file.source.tree):
            if isinstance(node, ast.Assign) and any(_is_attribute(target, attribute) for target in node.targets):
                return [file.place(node, "gets no gradient")]
    return []


def _is_attribute(target: ast.expr, name: str) -> bool:
    match target:
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            return attr == name
    return False


def _names_of(facts: CaseFacts, file: UserFile, wrap: ast.Call) -> list[str]:
    """Return the names of all parameters of the wrapped model, in order, or [] if a part of it is not known."""
    model = call_argument(wrap, "module", 0)
    made = _made_by(file, model) if model is not None else None
    owner = _class(facts, last_name(made)) if made is not None else None
    names = _parameters(facts, owner, "", DEPTH) if owner else None
    return names or []


def _made_by(file: UserFile, model: ast.expr) -> ast.expr | None:
    """Return the call of the model's class: behind ``.to(device)`` and ``.cuda()``, or where its name is assigned."""
    while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and model.func.attr in ("to", "cuda"):
        model = model.func.value
    if isinstance(model, ast.Call):
        return model
    wanted = ast.unparse(model)
    for node in ast.walk(file.source.tree):
        match node:
            case ast.Assign(targets=[target], value=ast.Call() as made) if ast.unparse(target) == wanted:
                name = last_name(made.func)
                if name in ("to", "cuda") and isinstance(made.func, ast.Attribute) and model is not made.func.value:
                    return _made_by(file, made) if isinstance(made.func.value, ast.Call) else None
                if name not in ("to", "cuda", "DistributedDataParallel", "DDP"):
                    return made
    return None


def _class(facts: CaseFacts, name: str) -> ast.ClassDef | None:
    classes = (node for file in facts.files for node in ast.walk(file.source.tree) if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == name), None)


def _parameters(facts: CaseFacts, owner: ast.ClassDef, prefix: str, depth: int) -> list[str] | None:
    """Return the names of a module's parameters in the order of registration: its own, then those of its parts."""
    init = next((node for node in owner.body if isinstance(node, FUNCTIONS) and node.name == "__init__"), None)
    if init is None or depth == 0:
        return None
    own: list[str] = []
    parts: list[str] = []
    for node in init.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            if isinstance(node, ast.Expr | ast.AnnAssign):
                continue
            return None
        target = node.targets[0]
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"):
            continue
        found = _of_value(facts, node.value, f"{prefix}{target.attr}", depth)
        if found is None:
            return None
        (own if last_name(node.value) == "Parameter" else parts).extend(found)
    return own + parts


def _of_value(facts: CaseFacts, value: ast.expr, name: str, depth: int) -> list[str] | None:
    """Return the parameters that an attribute of a module adds, or None if that is not known."""
    if not isinstance(value, ast.Call):
        return []
    made = last_name(value.func)
    if made == "Parameter":
        return [name]
    if made in ("Sequential", "ModuleList"):
        listed = value.args[0].elts if len(value.args) == 1 and isinstance(value.args[0], ast.List) else value.args
        found = [_of_value(facts, each, f"{name}.{at}", depth) for at, each in enumerate(listed)]
        return None if None in found else [each for some in found for each in some or []]
    if made in WEIGHT_ONLY:
        return [f"{name}.weight"]
    if WITH_WEIGHT_AND_BIAS.fullmatch(made):
        if any(_is_false(value, argument) for argument in ("affine", "elementwise_affine")):
            return []
        return [f"{name}.weight"] + ([] if _is_false(value, "bias") else [f"{name}.bias"])
    if WITHOUT.fullmatch(made):
        return []
    owner = _class(facts, made)
    return _parameters(facts, owner, f"{name}.", depth - 1) if owner else None


def _is_false(call: ast.Call, argument: str) -> bool:
    given = call_argument(call, argument)
    return isinstance(given, ast.Constant) and given.value is False
