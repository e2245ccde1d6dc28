"""Well-known models by their published shapes: the ``config.json`` next to the weights of each on huggingface.co.

``models.json`` has its fields that decide on the shape, or the name of a model of the same shape. ``hf_config`` counts
their parameters; a test compares them with the counts published with the weights.
"""

import re
from functools import lru_cache
from typing import Any

from ...text.suggestions import closest as nearest
from ..tables import read_table
from ..types import Model
from .hf_config import model_from_config

_LISTED: dict[str, dict[str, Any] | str] = read_table("models.json", dict[str, Any])
CONFIGS: dict[str, dict[str, Any]] = {
    name: config if isinstance(config, dict) else _LISTED[config]  # type: ignore[misc]
    for name, config in _LISTED.items()
}
FAMOUS = ["Llama-3.1-8B", "Qwen2.5-7B", "gpt2"]
MODELS: dict[str, Model] = {name.lower(): model_from_config(config, name)[0] for name, config in CONFIGS.items()}


def find_known_model(name: str) -> Model | None:
    """Return the model of a name in any case, with or without its maker (``meta-llama/Llama-3.1-8B-Instruct``), or
    None.
    """
    plain = name.strip().lower().rpartition("/")[2].removeprefix("meta-")
    if "distill" in plain:  # a model of another shape, named after its teacher
        return None
    fitting = [key for key in MODELS if plain == key or (plain.startswith(key) and not plain[len(key)].isalnum())]
    if fitting:
        return MODELS[max(fitting, key=len)]
    return next((model for key, model in MODELS.items() if _words(key) == _words(plain)), None)


@lru_cache(maxsize=256)
def _words(name: str) -> list[str]:
    """Return the words and numbers of a name, however they are separated: ``llama 3.1 8b``, ``llama3.1-8b``."""
    return re.findall(r"[a-z]+|[0-9.]+", name)


def closest_models(name: str) -> list[str]:
    """Return the known names closest to an unknown one, or some famous ones if none is close."""
    return nearest(name.strip().rpartition("/")[2].removeprefix("Meta-"), CONFIGS) or FAMOUS
