"""Checked fields of a Hugging Face config, and counts of block parts that many families share."""

from collections.abc import Mapping
from typing import Any

from ...errors import UserError

Config = Mapping[str, Any]
MOST = 10_000_000  # largest value of a field


def first_present(config: Config, *names: str, default: int | None = None) -> int:
    """Return the first of these fields that is present.

    Raises:
        UserError: It is no positive whole number, or none is present and there is no default.
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
    """Return the first of these fields that is present and not 0, else 0.

    Raises:
        UserError: It is no positive whole number.
    """
    return next((first_present(config, name) for name in names if config.get(name)), 0)


def ungated_mlp(hidden: int, inner: int, bias: bool = True) -> int:
    """Count a feed-forward part without a gate."""
    return 2 * hidden * inner + (inner + hidden if bias else 0)


def ungated_block(hidden: int, inner: int, bias: bool = True) -> int:
    """Count attention of full width, a feed-forward part without a gate, and two norms with a bias."""
    return 4 * hidden * hidden + (4 * hidden if bias else 0) + ungated_mlp(hidden, inner, bias) + 4 * hidden
