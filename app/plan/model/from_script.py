"""Find the model of a training script. The script is read as text, never run.

In this order: ``from_pretrained("…")`` of a model or of its config, with an existing path or a known name; a config of
transformers (``LlamaConfig(hidden_size=…)``) with plain values; then what is built and called ``model`` or ``net``: a
function or class of the script, or of a module next to it, whose arguments are plain values in the script.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...errors import UserError
from ...system.files import read_regular_file
from ...training_script.imports import first_line_with_effect, import_specs, requires_arguments
from ...training_script.plain_values import PlainValues, calls_by_line
from ...training_script.source import ScriptSource, decode_source
from ...training_script.syntax import last_name
from .families import OF_CLASS_NAME

LIMIT_BYTES = 2_000_000
NEXT_STEP = "name the model with --model, --config, --checkpoint or --params"
NAMED = re.compile("name|path|model")
NOT_MODELS = ("tokenizer", "processor", "extractor", "dataset", "scheduler", "pipeline")
BUILT = ("model", "net", "network", "module", "encoder", "decoder")
JSON = str | int | float | bool  # values that a child process gets unchanged
TRAINER_LIBRARIES = ("transformers", "trl", "sentence_transformers")  # of Hugging Face, with one loop
FACTORIES = ("build_model", "make_model", "get_model", "create_model", "build_net", "make_net")


class ScriptModelName(NamedTuple):
    """A model that is loaded by a name or a path, and the line of that call."""

    name: str
    line: int


class ScriptConfig(NamedTuple):
    """A config of transformers that the script builds."""

    config: dict[str, Any]
    line: int


class ScriptFactory(NamedTuple):
    """The function or class that builds the model (``module:name``), with the values the script passes."""

    spec: str
    args: list[Any]
    keywords: dict[str, Any]
    line: int


Model = ScriptModelName | ScriptConfig | ScriptFactory
M = TypeVar("M", bound=Model)


def find_models(path: Path) -> Sequence[Model]:
    """Return the models of a script, each once; the first is most likely the one that is trained.

    Raises:
        UserError: It cannot be read, is not Python, or no model that can be built is found in it.
    """
    content = read_regular_file(path, LIMIT_BYTES, NEXT_STEP)
    try:
        source = ScriptSource(decode_source(content, path)[0], str(path))
    except UserError as error:
        raise UserError(error.message, NEXT_STEP) from error
    try:
        values = PlainValues(source)
        for named in (_loaded, _configured):
            if found := _each_once(named(source, values)):
                return found
        built = _each_once(_built(source, values, path)) or list(_offered(source, path))
        line = first_line_with_effect(source)
    except RecursionError as error:
        raise UserError(f"{path} is nested too deep to be read", NEXT_STEP) from error
    if not built:
        raise UserError(f"no model is found in {path}", NEXT_STEP)
    if built[0].spec.partition(":")[0] == path.stem and line:
        raise UserError(
            f"importing {path} to build the model of line {built[0].line} would execute line {line}",
            'put the training code under if __name__ == "__main__", or name the model with --model',
        )
    return built


def drops_output(path: Path) -> bool:
    """Return whether the output of the model is gone before the backward pass.

    The loop of the script deletes it, or that of transformers' Trainer runs, whose ``compute_loss`` returns the loss.
    """
    content = read_regular_file(path, LIMIT_BYTES, NEXT_STEP)
    nodes = list(ast.walk(ScriptSource(decode_source(content, path)[0], str(path)).tree))
    if not any(isinstance(node, ast.Call) and last_name(node.func) == "backward" for node in nodes):
        return any(_imports_trainer(node) for node in nodes)
    return any(_deletes_before_backward(node) for node in nodes if isinstance(node, ast.For | ast.While))


def _imports_trainer(node: ast.AST) -> bool:
    if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in TRAINER_LIBRARIES:
        return False
    return any(each.name.endswith("Trainer") for each in node.names)


def _deletes_before_backward(loop: ast.For | ast.While) -> bool:
    nodes = list(ast.walk(loop))
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "backward"]
    last = max((node.lineno for node in calls), default=0)
    assigned = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and last_name(node.value).lower().endswith(BUILT)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    deleted = (
        target for node in nodes if isinstance(node, ast.Delete) and node.lineno < last for target in node.targets
    )
    return any(isinstance(target, ast.Name) and target.id in assigned for target in deleted)


def _each_once(found: Iterable[M]) -> list[M]:
    """Drop models that differ in their line only."""
    once: list[M] = []
    for each in found:
        if each[:-1] not in [known[:-1] for known in once]:
            once.append(each)
    return once


def _loaded(source: ScriptSource, values: PlainValues) -> Iterator[ScriptModelName]:
    for node in calls_by_line(source.tree):
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr != "from_pretrained":
            continue
        owner = ast.unparse(function.value).lower()
        by_name = (each.value for each in node.keywords if each.arg and NAMED.search(each.arg))
        given = node.args[0] if node.args else next(by_name, None)
        if given is None or any(word in owner for word in NOT_MODELS):
            continue
        try:
            name = values.value(given)
        except (ValueError, TypeError):
            continue
        if isinstance(name, str) and name.strip():
            yield ScriptModelName(name[:300], node.lineno)


def _configured(source: ScriptSource, values: PlainValues) -> Iterator[ScriptConfig]:
    for node in calls_by_line(source.tree):
        name = last_name(node.func)
        family = OF_CLASS_NAME.get(name.removesuffix("Config").lower())
        if family is None or not name.endswith("Config") or node.args:
            continue
        if given := values.arguments(node):
            yield ScriptConfig({"model_type": family} | given[1], node.lineno)


def _built(source: ScriptSource, values: PlainValues, path: Path) -> Iterator[ScriptFactory]:
    specs = import_specs(source, path)
    assigned = [node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and _is_model(node.targets)]
    assigned.sort(key=lambda node: node.lineno)
    for call in [call for node in assigned for call in calls_by_line(node.value)]:
        if not isinstance(call.func, ast.Name) or call.func.id not in specs:
            continue
        given = values.arguments(call)
        if given and all(each is None or isinstance(each, JSON) for each in (*given[0], *given[1].values())):
            yield ScriptFactory(specs[call.func.id], *given, call.lineno)


def _offered(source: ScriptSource, path: Path) -> Iterator[ScriptFactory]:
    """Yield the functions of the script that build a model by their name."""
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in FACTORIES and not requires_arguments(node):
            yield ScriptFactory(f"{path.stem}:{node.name}", [], {}, node.lineno)


def _is_model(targets: list[ast.expr]) -> bool:
    names = [ast.unparse(target).lower().rpartition(".")[2] for target in targets if not isinstance(target, ast.Tuple)]
    return any(name.strip("_").endswith(BUILT) for name in names)
