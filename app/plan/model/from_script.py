"""Where a training script has its model from: read as text, never run.

Looked for, in this order: ``from_pretrained("…")`` of a model or of its config, with a path that is here or a known
name; a config of transformers (``LlamaConfig(hidden_size=…)``) with plain values; then what is built and called
``model`` or ``net``: a function or class of the script, or of a module beside it, whose arguments stand in the script
as plain values.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...errors import UserError
from ...system.files import read_regular_file
from .hf_counts import OF_CLASS_NAME

LIMIT_BYTES = 2_000_000
NEXT_STEP = "name the model with --model, --config, --checkpoint or --params"
NAMED = re.compile("name|path|model")
NOT_MODELS = ("tokenizer", "processor", "extractor", "dataset", "scheduler", "pipeline")
BUILT = ("model", "net", "network", "module", "encoder", "decoder")
FACTORIES = ("build_model", "make_model", "get_model", "create_model", "build_net", "make_net")
# Calls that do nothing but make a value.
HARMLESS = {"getLogger", "ArgumentParser", "namedtuple", "TypeVar", "partial", "Path", "resolve", "compile", "get"}
HARMLESS |= {"getenv", "int", "float", "str", "bool", "tuple", "list", "dict", "set", "range", "len", "device", "field"}
QUIET = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass, ast.AnnAssign)


class ScriptModelName(NamedTuple):
    """A model that is loaded by a name or a path, and the line that says so."""

    name: str
    line: int


class ScriptConfig(NamedTuple):
    """A config of transformers that the script makes itself."""

    config: dict[str, Any]
    line: int


class ScriptFactory(NamedTuple):
    """What builds the model: ``module:function``, with the values the script gives it."""

    spec: str
    args: list[Any]
    keywords: dict[str, Any]
    line: int


Model = ScriptModelName | ScriptConfig | ScriptFactory
M = TypeVar("M", bound=Model)


def find_models(path: Path) -> Sequence[Model]:
    """Where the script has its models from, each once; the first is most likely the one that is trained.

    Raises:
        UserError: It cannot be read, is no Python, or no model is found in it that can be built.
    """
    content = read_regular_file(path, LIMIT_BYTES, NEXT_STEP)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path} is no Python: {str(error)[:120]}", NEXT_STEP) from error
    try:
        values = _constants(tree)
        for named in (_loaded, _configured):
            if found := _each_once(named(tree, values)):
                return found
        built = _each_once(_built(tree, values, path)) or list(_offered(tree, path))
        line = _runs(tree)
    except RecursionError as error:
        raise UserError(f"{path} is nested too deep to be read", NEXT_STEP) from error
    if not built:
        raise UserError(f"no model is found in {path}", NEXT_STEP)
    if built[0].spec.partition(":")[0] == path.stem and line:
        raise UserError(
            f"{path}:{built[0].line} builds the model, but line {line} would run with an import",
            'put what trains under if __name__ == "__main__", or name the model with --model',
        )
    return built


def _each_once(found: Iterable[M]) -> list[M]:
    """Those that are not the same but for the line."""
    once: list[M] = []
    for each in found:
        if each[:-1] not in [known[:-1] for known in once]:
            once.append(each)
    return once


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Plain values by name: of assignments in the script, and defaults of its options as ``args.name``."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            _keep(found, node.targets[0].id, node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            _keep(found, node.target.id, node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            flags = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            default = next((each.value for each in node.keywords if each.arg == "default"), None)
            if flags and default is not None:
                _keep(found, "." + max(flags, key=len).lstrip("-").replace("-", "_"), default)
    return found


def _keep(found: dict[str, Any], name: str, node: ast.expr) -> None:
    try:
        found[name] = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        found.pop(name, None)  # it is something else by now


def _value(node: ast.expr, values: dict[str, Any]) -> Any:
    """The plain value of an expression.

    Raises:
        ValueError: It is none.
    """
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.Attribute) and f".{node.attr}" in values:
        return values[f".{node.attr}"]
    return ast.literal_eval(node)


def _loaded(tree: ast.Module, values: dict[str, Any]) -> Iterator[ScriptModelName]:
    for node in _calls(tree):
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr != "from_pretrained":
            continue
        owner = ast.unparse(function.value).lower()
        by_name = (each.value for each in node.keywords if each.arg and NAMED.search(each.arg))
        given = node.args[0] if node.args else next(by_name, None)
        if given is None or any(word in owner for word in NOT_MODELS):
            continue
        try:
            name = _value(given, values)
        except (ValueError, TypeError):
            continue
        if isinstance(name, str) and name.strip():
            yield ScriptModelName(name[:300], node.lineno)


def _configured(tree: ast.Module, values: dict[str, Any]) -> Iterator[ScriptConfig]:
    for node in _calls(tree):
        name = ast.unparse(node.func).rpartition(".")[2]
        family = OF_CLASS_NAME.get(name.removesuffix("Config").lower())
        if family is None or not name.endswith("Config") or node.args:
            continue
        try:
            plain = {each.arg: _value(each.value, values) for each in node.keywords if each.arg}
        except (ValueError, TypeError):
            continue
        if len(plain) == len(node.keywords):
            yield ScriptConfig({"model_type": family} | plain, node.lineno)


def _calls(tree: ast.AST) -> list[ast.Call]:
    return sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)


def _built(tree: ast.Module, values: dict[str, Any], path: Path) -> Iterator[ScriptFactory]:
    homes = _homes(tree, path)
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_model(node.targets)]
    for call in [call for node in sorted(assigned, key=lambda node: node.lineno) for call in _calls(node.value)]:
        if not isinstance(call.func, ast.Name) or call.func.id not in homes:
            continue
        try:
            args = [_value(each, values) for each in call.args]
            keywords = {each.arg: _value(each.value, values) for each in call.keywords if each.arg}
        except (ValueError, TypeError):
            continue
        if all(_is_plain(each) for each in (*args, *keywords.values())) and len(keywords) == len(call.keywords):
            yield ScriptFactory(homes[call.func.id], args, keywords, call.lineno)


def _offered(tree: ast.Module, path: Path) -> Iterator[ScriptFactory]:
    """Functions of the script by whose name one may know that they build it."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in FACTORIES and not _needs_arguments(node):
            yield ScriptFactory(f"{path.stem}:{node.name}", [], {}, node.lineno)


def _is_model(targets: list[ast.expr]) -> bool:
    names = [ast.unparse(target).lower().rpartition(".")[2] for target in targets if not isinstance(target, ast.Tuple)]
    return any(name.strip("_").endswith(BUILT) for name in names)


def _homes(tree: ast.Module, path: Path) -> dict[str, str]:
    """What each name in the script is, as ``module:name``: of the script itself, and of modules beside it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            beside = path.parent.joinpath(*parts)
            if beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file():
                found |= {each.asname or each.name: f"{node.module}:{each.name}" for each in node.names}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = f"{path.stem}:{node.name}"
    return found if path.stem.isidentifier() else {name: spec for name, spec in found.items() if path.stem not in spec}


def _needs_arguments(node: ast.FunctionDef) -> bool:
    given = node.args
    return len(given.posonlyargs) + len(given.args) > len(given.defaults) or None in given.kw_defaults


def _is_harmless(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in HARMLESS


def _is_plain(value: Any) -> bool:
    """Whether it survives JSON as it is."""
    return value is None or isinstance(value, str | int | float | bool)


def _runs(tree: ast.Module) -> int:
    """The first line that does something when the script is imported; 0 where none does."""
    for node in tree.body:
        guarded = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        plain = isinstance(node, ast.Assign) and all(_is_harmless(each) for each in _calls(node.value))
        guessing = isinstance(node, ast.If | ast.Try) and all(isinstance(each, QUIET) for each in node.body)
        if not (isinstance(node, QUIET) or guarded or words or plain or guessing):
            return node.lineno
    return 0
