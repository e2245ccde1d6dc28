"""A model as a person names it in one line."""

from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..system.files import expand_user
from . import spec
from .model import catalog, checkpoint, hf_config
from .model.safetensors_header import INDEX
from .types import Model

LONGEST_SAID = 30  # letters of a name that is not known, in the message


class LocatedModel(NamedTuple):
    """The model at a path, what had to be assumed of it, and the config it is from or has beside it, if any."""

    model: Model
    told: list[str]
    config: Path | None


def find_model(value: str) -> Model:
    """A known name, a path, or numbers: parameters, layers, hidden size, vocabulary.

    Raises:
        UserError: It is none of these.
    """
    if found := catalog.find_known_model(value):
        return found
    if "/" in value or value.endswith((".json", ".safetensors")):
        return model_at_path(expand_user(value)).model
    try:
        numbers = [spec.parse_count(word) for word in value.split()]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 4 or not all(0 < number < 1e14 for number in numbers):
        near = f"perhaps {', '.join(catalog.closest_models(value))}; or " if value.strip() else "a name, "
        said = value if len(value) <= LONGEST_SAID else f"{value[:LONGEST_SAID]}…"
        raise UserError(f"model {said or 'is empty'}: not known", f"{near}a config.json, or 7b 32 4096 32000")
    layers, hidden, vocab = (int(number) or None for number in (*numbers[1:], 0, 0, 0)[:3])
    return Model(name=value, params=numbers[0], layers=layers, hidden=hidden, vocab=vocab)


def model_at_path(path: Path) -> LocatedModel:
    """The model at a path: a config, a checkpoint, or a directory with them.

    Raises:
        UserError: There is none, or it is not what its name says.
    """
    try:
        is_directory = path.is_dir()
        weights = path.name.endswith((".safetensors", ".index.json"))
        if is_directory:
            weights = (path / INDEX).exists() or next(path.glob("*.safetensors"), None) is not None
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {str(path)!r}", "name a config.json, a checkpoint, or a directory of one"
        ) from error
    if path.suffix == ".py":
        raise UserError(
            f"{path} is Python", f"--script {path}, or what builds the model: --model {path.stem}:build_model"
        )
    return locate_checkpoint(path) if weights else locate_config(path)


def locate_config(path: Path) -> LocatedModel:
    """The model of a config, or of a directory with one.

    Raises:
        UserError: It cannot be read, or is none.
    """
    found, told = hf_config.read_config(path)
    return LocatedModel(found, told, path)


def locate_checkpoint(path: Path) -> LocatedModel:
    """The model of a checkpoint, and the config beside it.

    Raises:
        UserError: It cannot be read, or holds no model.
    """
    found, told = checkpoint.read_checkpoint(path)
    config = (path if path.is_dir() else path.parent) / "config.json"
    return LocatedModel(found, told, config if config.exists() else None)
