"""Which model a plan is for: a name, a config, a checkpoint, a function or a script of the user's own, or numbers."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import UserError
from ..system.files import expand_user
from ..text.suggestions import did_you_mean
from .model import catalog, from_code, from_script, hf_config
from .model.from_code import NONE, Arguments
from .model_locator import LocatedModel, locate_checkpoint, locate_config, model_at_path
from .types import Model

SHAPE = ("params", "layers", "hidden", "heads", "kv_heads", "intermediate", "vocab")
WAYS = "name one: --model NAME or PKG.MOD:FN, --config PATH, --checkpoint PATH, --script train.py, --params N"
SCRIPT = "train.py"  # where nothing else is said
MOST_LINES = 3  # of a script that are named


class ModelSource(NamedTuple):
    """A model and where it is from. ``factory`` (in ``directory``) and ``config`` (a path, or JSON) build the module
    itself, where they are not empty; ``frozen``: share of its weights without a gradient; ``told``: what had to be
    assumed."""

    model: Model
    told: list[str]
    factory: str = ""
    config: str = ""
    directory: Path = Path()
    frozen: float = 0.0


def resolve_model(given: Mapping[str, Any], python: Callable[[], str], tell: Callable[[str], None]) -> ModelSource:
    """The model of the options; sizes that are given too take the place of those found. ``tell`` says what is imported
    before it is.

    Raises:
        UserError: None is named, several are, or it is not what it is said to be.
        CouldNotLook: A function of the user's own did not answer.
    """
    ways = [f"--{name}" for name in ("model", "config", "checkpoint") if given.get(name) is not None]
    if len(ways) > 1:
        raise UserError(f"{' and '.join(ways)}: which model?", "name one of them")
    shape = {name: given[name] for name in SHAPE if given.get(name) is not None}
    if given.get("config") is not None:
        found = _at(locate_config(expand_user(given["config"])))
    elif given.get("checkpoint") is not None:
        found = _at(locate_checkpoint(expand_user(given["checkpoint"])))
    elif given.get("model") is not None:
        found = model_by_name(given["model"], python, tell)
    elif "params" in shape:
        return ModelSource(msgspec.convert(shape, Model), [])
    else:
        found = _of_script(given, python, tell)
    _check(shape)
    return found._replace(model=msgspec.structs.replace(found.model, **shape))


def _check(shape: Mapping[str, Any]) -> None:
    wrong = next(((name, value) for name, value in shape.items() if not 0 < value < 1e16), None)
    if wrong:
        raise UserError(f"model.{wrong[0]} is {wrong[1]:g}", "give a positive number of a sensible size")


def model_by_name(
    name: str, python: Callable[[], str], tell: Callable[[str], None], directory: Path | None = None
) -> ModelSource:
    """The model of a well-known name, of a path, or of a function of the user's own (with a colon).

    Raises:
        UserError: It is none of these.
    """
    here = directory or Path.cwd()
    if is_factory(name):
        return _of_factory(name, NONE, here, python, tell)
    return catalog_or_path(name, here)


def catalog_or_path(name: str, directory: Path = Path()) -> ModelSource:
    """The model of a well-known name, or of a path.

    Raises:
        UserError: It is neither.
    """
    try:
        path = directory / expand_user(name)
        there = bool(name.strip()) and path.exists()
    except (OSError, ValueError):
        raise UserError(f"model {name[:60]!r} is no name and no path", WAYS) from None
    if there:
        return _at(model_at_path(path))
    if found := catalog.find_known_model(name):
        of_tokens = found.kind in (None, "decoder", "encoder")
        return ModelSource(found, [], config=json.dumps(catalog.CONFIGS[found.name]) if of_tokens else "")
    raise UserError(
        f"model {name[:60] or 'is empty'}: not known, and no such path",
        f"{did_you_mean(catalog.closest_models(name))} Else a path, or pkg.mod:build_model; docs/plan.md has all names",
    )


def is_factory(name: str) -> bool:
    """Whether it is to name a function of the user's own."""
    return ":" in name and not name.startswith(("/", ".", "~", ":"))


def import_notice(spec: str, directory: Path, interpreter: str, where: str = "") -> str:
    """What is imported of whose to build a model, in words; ``where``: the line of a script that builds it."""
    as_in = f", as {where} does" if where else ""
    module = spec.partition(":")[0]
    return f"importing {module} in {directory} with {interpreter} to build the model{as_in}, without its weights"


async def build_from_factory(spec: str, directory: Path, interpreter: str, arguments: Arguments = NONE) -> ModelSource:
    """The model that a function of the user's own builds.

    Raises:
        UserError: There is no such function, or building the model failed.
        CouldNotLook: The child did not answer in time, or died.
    """
    shape = await from_code.inspect_factory(spec, interpreter, directory, arguments)
    if not shape.params:
        raise UserError(f"{spec} has no parameters", "name what builds the whole model")
    told = [f"layers: the {shape.layers} {shape.block} modules"] if shape.block else []
    frozen = from_code.frozen_share(shape)
    told += [f"frozen: {frozen:.1%} of the weights, those without requires_grad"] if frozen else []
    plain = not arguments[0] and not arguments[1]
    return ModelSource(
        from_code.model_from_shape(shape), told, spec if plain else "", directory=directory, frozen=frozen
    )


def _at(found: LocatedModel) -> ModelSource:
    return ModelSource(found.model, found.told, config=str(found.config) if found.config else "")


def _of_script(given: Mapping[str, Any], python: Callable[[], str], tell: Callable[[str], None]) -> ModelSource:
    """The model that a training script loads or builds; the script itself is not run."""
    path = expand_user(given["script"])
    if not path.exists():
        raise UserError("which model?" if given["script"] == SCRIPT else f"{path}: no such script", WAYS)
    first, *others = from_script.find_models(path)
    found = _of_found(first, path, python, tell)
    lines = ", ".join(str(other.line) for other in others[:MOST_LINES])
    more = [f"that it is this model alone: {path} has others in line {lines}, not counted here"] if others else []
    more.append("of the script only its model: batch, precision, optimizer, LoRA are what the options say")
    return found._replace(told=[*found.told[:1], *more, *found.told[1:]])


def _of_found(
    found: from_script.Model, path: Path, python: Callable[[], str], tell: Callable[[str], None]
) -> ModelSource:
    where = f"{path}:{found.line}"
    directory = path.absolute().parent
    if isinstance(found, from_script.ScriptModelName):
        try:
            of_name = model_by_name(found.name, python, tell, directory)
        except UserError as error:
            raise UserError(f"{where} loads {found.name[:60]}: {error.message}", from_script.NEXT_STEP) from error
        return of_name._replace(told=[f"model: {found.name}, as {where} loads it", *of_name.told])
    if isinstance(found, from_script.ScriptConfig):
        try:
            config, of_class = hf_config.fill_part_defaults(found.config, "the script")
            model, told = hf_config.model_from_config(config, found.config["model_type"])
        except UserError as error:
            raise UserError(f"{where}: {error.message}", from_script.NEXT_STEP) from error
        return ModelSource(model, [f"model: the config that {where} makes", *of_class, *told])
    of_factory = _of_factory(found.spec, (found.args, found.keywords), directory, python, tell, where)
    return of_factory._replace(told=[f"model: {found.spec}, as {where} builds it", *of_factory.told])


def _of_factory(
    spec: str,
    arguments: Arguments,
    directory: Path,
    python: Callable[[], str],
    tell: Callable[[str], None],
    where: str = "",
) -> ModelSource:
    interpreter = python()
    tell(import_notice(spec, directory, interpreter, where))
    return asyncio.run(build_from_factory(spec, directory, interpreter, arguments))
