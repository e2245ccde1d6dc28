"""Fields of a Hugging Face config, checked, and the parts of a block that many families share, counted."""

from collections.abc import Mapping
from typing import Any

from ...errors import UserError

Config = Mapping[str, Any]
MOST = 10_000_000  # of a field

# Whose config ties the head to the embedding where it says nothing.
TIED = (
    *("gpt2", "bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "t5", "umt5", "bart", "bloom"),
    *("opt", "falcon", "cohere", "starcoder2", "gemma", "gemma2", "gemma3_text"),
)


def first_present(config: Config, *names: str, default: int | None = None) -> int:
    """The first of these fields that is there.

    Raises:
        UserError: It is no positive whole number, or none is there and there is no default.
    """
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MOST:
                raise UserError(f"{name} is {repr(value)[:40]}", "give a positive whole number")
            return value
    if default is not None:
        return default
    raise UserError(f"the config has no {names[0]}", "name the config.json of a transformer")


def first_nonzero(config: Config, *names: str) -> int:
    """The first of these fields that is there and not 0, else 0.

    Raises:
        UserError: It is no positive whole number.
    """
    return next((first_present(config, name) for name in names if config.get(name)), 0)


def is_tied(config: Config, family: str) -> bool:
    """Whether the output head is the token embedding; what is not said is as the family's config has it."""
    return bool(config.get("tie_word_embeddings", family in TIED))


def ungated_mlp(hidden: int, inner: int, bias: bool = True) -> int:
    """A feed-forward part without a gate."""
    return 2 * hidden * inner + (inner + hidden if bias else 0)


def ungated_block(hidden: int, inner: int, bias: bool = True) -> int:
    """Attention of full width, a plain feed-forward part, and two norms with a bias."""
    return 4 * hidden * hidden + (4 * hidden if bias else 0) + ungated_mlp(hidden, inner, bias) + 4 * hidden
