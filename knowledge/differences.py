"""Differences between causes that are easily confused: an entry that names one is enough for both."""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from .schema import Cause


def mirror_differences(causes: Mapping[str, Cause]) -> dict[str, Cause]:
    """Return the causes with each difference in both entries: "there a; here b" is "there b; here a" in the other.

    A difference that does not name both sides, or that the other entry words itself, is not copied.
    """
    added: dict[str, dict[str, str]] = defaultdict(dict)
    for id_, cause in causes.items():
        for other, text in cause.tells_apart.items():
            there, _, here = text.partition("; here ")
            if here and there.startswith("there ") and id_ not in causes[other].tells_apart:
                added[other][id_] = f"there {here}; here {there.removeprefix('there ')}"
    return {
        id_: msgspec.structs.replace(cause, tells_apart=cause.tells_apart | added[id_]) if id_ in added else cause
        for id_, cause in causes.items()
    }
