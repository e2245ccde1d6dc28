"""Locate a model on disk: a config, a checkpoint, or a directory with one of them."""

from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from .model import checkpoint, hf_config
from .model.safetensors_header import INDEX
from .types import Model


class LocatedModel(NamedTuple):
    """The model at a path, the assumptions that were made, and its config, if any."""

    model: Model
    notes: list[str]
    config: Path | None


def model_at_path(path: Path) -> LocatedModel:
    """Return the model at a path: a config, a checkpoint, or a directory with them.

    Raises:
        UserError: There is none, or the file is not of the kind that its name suggests.
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
    """Return the model of a config, or of a directory with one.

    Raises:
        UserError: It cannot be read, or is no config.
    """
    found, notes = hf_config.read_config(path)
    return LocatedModel(found, notes, path)


def locate_checkpoint(path: Path) -> LocatedModel:
    """Return the model of a checkpoint, with the config next to it.

    Raises:
        UserError: It cannot be read, or holds no model.
    """
    found, notes = checkpoint.read_checkpoint(path)
    config = (path if path.is_dir() else path.parent) / "config.json"
    return LocatedModel(found, notes, config if config.exists() else None)
