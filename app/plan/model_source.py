"""Find the model of a plan: by a name, a config, a checkpoint, the user's own function or script, or numbers."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import UserError
from ..system.files import expand_user
from ..text.suggestions import did_you_mean
from .model import catalog, checkpoint, from_code, from_script, hf_config
from .model.from_code import NONE, Arguments
from .model.safetensors_header import INDEX
from .types import Model

SHAPE = ("params", "layers", "hidden", "heads", "kv_heads", "intermediate", "vocab")
WAYS = "name one: --model NAME or PKG.MOD:FN, --config PATH, --checkpoint PATH, --script train.py, --params N"
SCRIPT = "train.py"  # the default of --script
MOST_LINES = 3  # of a script that are listed
MOST_LETTERS = 40  # of a name in a message


class ModelSource(NamedTuple):
    """A model and its origin.

    ``factory`` (in ``directory``) or ``config`` (a path, or JSON) builds the module itself; both are "" if nothing
    does. ``frozen`` is the share of the weights without a gradient, ``notes`` the assumptions that were made.
    ``keeps_logits``: the training loop may hold the output of the model in the backward pass.
    """

    model: Model
    notes: list[str]
    factory: str = ""
    config: str = ""
    directory: Path = Path()
    frozen: float = 0.0
    keeps_logits: bool = True


# Builds the model of a function of the user's own: its name, the directory, its arguments, and the line of the script
# that calls it, if any.
BuildModel = Callable[[str, Path, Arguments, str], ModelSource]


def resolve_model(given: Mapping[str, Any], build: BuildModel) -> ModelSource:
    """Return the model of the given values; sizes that are given too replace those that were found.

    Raises:
        UserError: No model is named, or several are, or the named one cannot be read.
        InspectionError: A function of the user's own gave no answer.
    """
    ways = [f"--{name}" for name in ("model", "config", "checkpoint") if given.get(name) is not None]
    if len(ways) > 1:
        raise UserError(f"{' and '.join(ways)}: which model?", "name one of them")
    if isinstance(given.get("model"), Model):
        return ModelSource(given["model"], [])
    shape = {name: given[name] for name in SHAPE if given.get(name) is not None}
    if given.get("config") is not None:
        path = expand_user(given["config"])
        found = ModelSource(*hf_config.read_config(path), config=str(path))
    elif given.get("checkpoint") is not None:
        found = _from_checkpoint(expand_user(given["checkpoint"]))
    elif given.get("model") is not None:
        found = model_by_name(given["model"], build)
    elif "params" in shape:
        return ModelSource(msgspec.convert(shape, Model), [])
    else:
        found = _from_script(given["script"], build)
    return found._replace(model=msgspec.structs.replace(found.model, **shape))


def model_by_name(name: str, build: BuildModel, directory: Path | None = None) -> ModelSource:
    """Return the model of a function of the user's own (with a colon), of a path, or of a well-known name.

    Raises:
        UserError: It is none of these.
    """
    here = directory or Path.cwd()
    if is_factory(name):
        return build(name, here, NONE, "")
    try:
        path = here / expand_user(name)
        exists = bool(name.strip()) and path.exists()
    except (OSError, ValueError):
        raise UserError(f"model {name[:MOST_LETTERS]!r} is no name and no path", WAYS) from None
    if exists:
        return _at_path(path)
    if found := catalog.find_known_model(name):
        of_tokens = found.kind in (None, "decoder", "encoder")
        return ModelSource(found, [], config=json.dumps(catalog.CONFIGS[found.name]) if of_tokens else "")
    shown = name if len(name) <= MOST_LETTERS else f"{name[:MOST_LETTERS]}…"
    raise UserError(
        f"model {shown or 'is empty'}: not known, and no such path",
        f"{did_you_mean(catalog.closest_models(name))} Or give a path or pkg.mod:build_model; docs/plan.md lists all",
    )


def is_factory(name: str) -> bool:
    """Return whether a name is meant as a function of the user's own."""
    return ":" in name and not name.startswith(("/", ".", "~", ":"))


def import_notice(spec: str, directory: Path, interpreter: str, where: str = "") -> str:
    """Describe what is imported to build a model; ``where`` is the line of a script that builds it."""
    as_in = f", as {where} does" if where else ""
    module = spec.partition(":")[0]
    return f"importing {module} in {directory} with {interpreter} to build the model{as_in}, without its weights"


def build_in_child(python: Callable[[], str], announce: Callable[[str], None]) -> BuildModel:
    """Return a builder that runs the user's code in a child of their interpreter, and announces it first."""

    def build(spec: str, directory: Path, arguments: Arguments, where: str) -> ModelSource:
        interpreter = python()
        announce(import_notice(spec, directory, interpreter, where))
        return asyncio.run(build_from_factory(spec, directory, interpreter, arguments))

    return build


async def build_from_factory(spec: str, directory: Path, interpreter: str, arguments: Arguments = NONE) -> ModelSource:
    """Return the model that a function of the user's own builds.

    Raises:
        UserError: There is no such function, or building the model failed.
        InspectionError: The child did not answer in time, or died.
    """
    shape = await from_code.inspect_factory(spec, interpreter, directory, arguments)
    if not shape.params:
        raise UserError(f"{spec} has no parameters", "name what builds the whole model")
    notes = [f"layers: the {shape.layers} {shape.block} modules"] if shape.block else []
    frozen = from_code.frozen_share(shape)
    notes += [f"frozen: {frozen:.1%} of the weights, those without requires_grad"] if frozen else []
    plain = not arguments[0] and not arguments[1]
    return ModelSource(
        from_code.model_from_shape(shape), notes, spec if plain else "", directory=directory, frozen=frozen
    )


def _at_path(path: Path) -> ModelSource:
    """Return the model at a path: a config, a checkpoint, or a directory with one of them."""
    try:
        weights = path.name.endswith((".safetensors", ".index.json"))
        if path.is_dir():
            weights = (path / INDEX).exists() or next(path.glob("*.safetensors"), None) is not None
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {str(path)!r}", "name a config.json, a checkpoint, or a directory of one"
        ) from error
    if path.suffix == ".py":
        raise UserError(
            f"{path} is Python", f"--script {path}, or what builds the model: --model {path.stem}:build_model"
        )
    return _from_checkpoint(path) if weights else ModelSource(*hf_config.read_config(path), config=str(path))


def _from_checkpoint(path: Path) -> ModelSource:
    """Return the model of a checkpoint; a config next to it can build the module."""
    config = (path if path.is_dir() else path.parent) / "config.json"
    return ModelSource(*checkpoint.read_checkpoint(path), config=str(config) if config.exists() else "")


def _from_script(script: str, build: BuildModel) -> ModelSource:
    """Return the model that a training script loads or builds; the script itself is not run."""
    path = expand_user(script)
    if not path.exists():
        raise UserError("which model?" if script == SCRIPT else f"{path}: no such script", WAYS)
    first, *others = from_script.find_models(path)
    found = _from_statement(first, path, build)
    lines = ", ".join(str(other.line) for other in others[:MOST_LINES])
    at = "lines" if len(others) > 1 else "line"
    more = [f"only this model is counted; {path} also builds models at {at} {lines}"] if others else []
    more.append("only the model is read from the script: batch, precision, optimizer and LoRA are those of the options")
    keeps_logits = not from_script.drops_output(path)
    if not keeps_logits:
        more.append(f"loss: the loop of {path} drops the output of the model before the backward pass")
    return found._replace(notes=[*found.notes[:1], *more, *found.notes[1:]], keeps_logits=keeps_logits)


def _from_statement(found: from_script.Model, path: Path, build: BuildModel) -> ModelSource:
    """Return the model of one statement of a script."""
    where = f"{path}:{found.line}"
    directory = path.absolute().parent
    if isinstance(found, from_script.ScriptModelName):
        try:
            source = model_by_name(found.name, build, directory)
        except UserError as error:
            raise UserError(f"{where} loads {found.name[:60]}: {error.message}", from_script.NEXT_STEP) from error
        return source._replace(notes=[f"model: {found.name}, as {where} loads it", *source.notes])
    if isinstance(found, from_script.ScriptConfig):
        try:
            config, class_notes = hf_config.fill_part_defaults(found.config, "the script")
            model, notes = hf_config.model_from_config(config, found.config["model_type"])
        except UserError as error:
            raise UserError(f"{where}: {error.message}", from_script.NEXT_STEP) from error
        return ModelSource(model, [f"model: the config that {where} makes", *class_notes, *notes])
    source = build(found.spec, directory, (found.args, found.keywords), where)
    return source._replace(notes=[f"model: {found.spec}, as {where} builds it", *source.notes])
