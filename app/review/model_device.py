"""Device of a model when it is wrapped: still the CPU, moved already, or unknown."""

import ast
import re
from collections.abc import Iterator, Set
from typing import Literal, NamedTuple

from ..training_script.syntax import FUNCTIONS, call_argument, dotted_name, nodes_of_body
from .rule_context import Script

Placement = Literal["cpu", "moved", "unknown"]
Position = tuple[int, int]
END: Position = (10**9, 0)
DEVICE_LIKE = re.compile(r"device|cuda|gpu|rank", re.IGNORECASE)
MADE_ON_CPU = re.compile(r"torchvision\.models\.\w+|torch\.nn\.(?!parallel)\w+|timm\.(?:models\.)?create_model")
# Functions and methods that do not move a model.
HARMLESS = re.compile(r"print|len|sum|isinstance|hasattr|getattr|type|repr|str|id|list|iter|deepcopy")
MODEL_METHODS = re.compile(
    r"train|eval|requires_grad_|float|half|bfloat16|apply|load_state_dict|(?:named_)?parameters|state_dict|zero_grad"
    r"|(?:named_)?modules|(?:named_)?children|buffers|share_memory"
)
SAME_MODEL = {"torch.compile", "torch.nn.SyncBatchNorm.convert_sync_batchnorm"}
WRAPPERS = {"DDP", "DistributedDataParallel", "DataParallel", "DistributedDataParallelCPU"}


class _Search(NamedTuple):
    """The values that are being followed, and the placements found so far: each value is followed once."""

    active: set[ast.AST]
    known: dict[tuple[ast.AST, Position], Placement]


def model_placement(script: Script, model: ast.expr, before: Position) -> Placement:
    """Return the placement of ``model`` at a position of the text; "moved" also if it may have been moved."""
    return _placement(script, model, before, _Search(set(), {}))


def _placement(script: Script, model: ast.expr, before: Position, search: _Search) -> Placement:
    if isinstance(model, ast.Call):
        return _place_of_made(script, model, before, search)
    if not isinstance(model, (ast.Name, ast.Attribute)):
        return "unknown"
    places = set(_touches(script, model, before))
    for value in _values(script, model, before):
        places |= _follow(script, value, before, search) if value else {"unknown"}
    return _worst(places)


def _follow(script: Script, value: ast.expr | ast.arg, before: Position, search: _Search) -> set[Placement]:
    """Return the placement of a value, or nothing if it is defined by itself."""
    if value in search.active:
        return set()
    key = (value, before)
    if key not in search.known:
        search.active.add(value)
        search.known[key] = _place_of_value(script, value, before, search)
        search.active.remove(value)
    return {search.known[key]}


def is_device_move(expr: ast.AST) -> bool:
    """Return whether ``expr`` is ``X.cuda(…)``, or ``X.to(…)`` with an argument that looks like a device."""
    if not isinstance(expr, ast.Call) or not isinstance(expr.func, ast.Attribute):
        return False
    if expr.func.attr == "cuda":
        return True
    target = call_argument(expr, "device", 0)
    if expr.func.attr != "to" or target is None:
        return False
    text = ast.unparse(target)
    return bool(DEVICE_LIKE.search(text)) and "dtype" not in text and text.strip("'\"") != "cpu"


def node_position(node: ast.expr | ast.stmt) -> Position:
    """Return the position where a node begins."""
    return node.lineno, node.col_offset


def _worst(places: Set[Placement]) -> Placement:
    if "moved" in places:
        return "moved"
    return "cpu" if places == {"cpu"} else "unknown"


def _values(script: Script, model: ast.Name | ast.Attribute, before: Position) -> Iterator[ast.expr | ast.arg | None]:
    """Yield the values bound to the model before, without wraps and later moves; None if one cannot be followed."""
    for binding in script.names.bindings(model):
        if isinstance(binding.at, ast.arg):
            yield binding.at
        elif binding.value is None or binding.place is not None:
            yield None
        elif not (_wraps(binding.value) or (is_device_move(binding.value) and node_position(binding.value) > before)):
            yield binding.value


def _place_of_value(script: Script, value: ast.expr | ast.arg, before: Position, search: _Search) -> Placement:
    if not isinstance(value, ast.arg):
        return _placement(script, value, before, search)
    function = script.source.parents[script.source.parents[value]]
    calls = script.names.arguments.get(function, []) if isinstance(function, FUNCTIONS) else []
    given = [(call, values[value.arg]) for call, values in calls if value.arg in values]
    places: set[Placement] = {_placement(script, expr, node_position(call), search) for call, expr in given}
    return _worst(places) if places else "moved"


def _place_of_made(script: Script, call: ast.Call, before: Position, search: _Search) -> Placement:
    """Return the placement of the model that ``call`` returns."""
    names = script.names
    full = names.qualified(call.func)
    if is_device_move(call) or _on_a_device(script, call):
        return "moved"
    if isinstance(call.func, ast.Attribute) and MODEL_METHODS.fullmatch(call.func.attr) and not full:
        return _placement(script, call.func.value, before, search)
    if full in SAME_MODEL and call.args:
        return _placement(script, call.args[0], before, search)
    if any(DEVICE_LIKE.search(ast.unparse(part)) for part in (*call.args, *call.keywords)):
        return "moved"  # created with a device
    if any(keyword.arg is None for keyword in call.keywords):
        return "unknown"
    if owner := names.class_of(call):
        return "unknown" if DEVICE_LIKE.search(script.source.code(owner)) else "cpu"
    if function := names.function(call):
        if any(is_device_move(node) for node in nodes_of_body(function)):
            return "moved"
        returned = [node.value for node in nodes_of_body(function) if isinstance(node, ast.Return) and node.value]
        return _worst({place for value in returned for place in _follow(script, value, END, search)})
    return "cpu" if MADE_ON_CPU.fullmatch(full) else "unknown"


def _on_a_device(script: Script, call: ast.AST) -> bool:
    """Return whether ``call`` runs under ``with torch.device(…):`` or in a script that sets a default device."""
    node: ast.AST | None = call
    while node is not None:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                if DEVICE_LIKE.search(ast.unparse(item.context_expr)):
                    return True
        node = script.source.parents.get(node)
    return script.mentions("set_default_device") or script.mentions("set_default_tensor_type")


def _touches(script: Script, model: ast.Name | ast.Attribute, before: Position) -> Iterator[Placement]:
    """Yield the effects of other calls with the model in its function, before the position."""
    path = dotted_name(model)
    for node in nodes_of_body(script.names.enclosing_function(model) or script.source.tree):
        if not isinstance(node, ast.Call) or node_position(node) >= before:
            continue
        if isinstance(node.func, ast.Attribute) and dotted_name(node.func.value) == path:
            if is_device_move(node) or node.func.attr == "to_empty":
                yield "moved"
            elif not MODEL_METHODS.fullmatch(node.func.attr) and node.func.attr != "to":
                yield "unknown"
        elif any(dotted_name(value) == path for value in [*node.args, *(keyword.value for keyword in node.keywords)]):
            name = dotted_name(node.func).rpartition(".")[2]
            if not (HARMLESS.fullmatch(name) or script.names.qualified(node.func) in SAME_MODEL or _wraps(node)):
                yield "moved"  # the called function may move it


def _wraps(expr: ast.expr) -> bool:
    """Return whether ``expr`` contains a DDP wrap of any kind."""
    return any(
        isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] in WRAPPERS for node in ast.walk(expr)
    )
