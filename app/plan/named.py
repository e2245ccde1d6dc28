"""A model as a person names it in one line."""

from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..files import expanded
from . import spec
from .model import checkpoint, hf_config, known
from .model.safetensors import INDEX
from .types import Model

LONGEST_SAID = 30  # letters of a name that is not known, in the message


class Located(NamedTuple):
    """The model at a path, what had to be assumed of it, and the config it is from or has beside it, if any."""

    model: Model
    told: list[str]
    config: Path | None


def model(value: str) -> Model:
    """A known name, a path, or numbers: parameters, layers, hidden size, vocabulary.

    Raises:
        UserError: It is none of these.
    """
    if found := known.find(value):
        return found
    if "/" in value or value.endswith((".json", ".safetensors")):
        return located(expanded(value)).model
    try:
        numbers = [spec.count_of(word) for word in value.split()]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 4 or not all(0 < number < 1e14 for number in numbers):
        near = f"perhaps {', '.join(known.near(value))}; or " if value.strip() else "a name, "
        said = value if len(value) <= LONGEST_SAID else f"{value[:LONGEST_SAID]}…"
        raise UserError(f"model {said or 'is empty'}: not known", f"{near}a config.json, or 7b 32 4096 32000")
    layers, hidden, vocab = (int(number) or None for number in (*numbers[1:], 0, 0, 0)[:3])
    return Model(name=value, params=numbers[0], layers=layers, hidden=hidden, vocab=vocab)


def located(path: Path) -> Located:
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
    return of_checkpoint(path) if weights else of_config(path)


def of_config(path: Path) -> Located:
    """The model of a config, or of a directory with one.

    Raises:
        UserError: It cannot be read, or is none.
    """
    found, told = hf_config.read(path)
    return Located(found, told, path)


def of_checkpoint(path: Path) -> Located:
    """The model of a checkpoint, and the config beside it.

    Raises:
        UserError: It cannot be read, or holds no model.
    """
    found, told = checkpoint.read(path)
    config = (path if path.is_dir() else path.parent) / "config.json"
    return Located(found, told, config if config.exists() else None)
