"""Templates of entries: ``{name|fallback}`` is replaced by the value of a fact, or by the fallback."""

import re
from collections.abc import Mapping

FACT = re.compile(r"\{(?P<name>[a-z_]+)\|(?P<fallback>[^{}|]*)\}")


def fill_template(text: str, values: Mapping[str, str]) -> str:
    """Return ``text`` with the facts that are known in ``values``, and the fallback of the others."""
    return FACT.sub(lambda found: values.get(found["name"]) or found["fallback"], text)


def names_in_template(text: str) -> set[str]:
    """Return the names of the facts that a template uses."""
    return {found["name"] for found in FACT.finditer(text)}
