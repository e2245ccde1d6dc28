"""The versions named in a log, and whether the wording of a signature belongs to them."""

import re
from collections.abc import Iterable, Mapping

from ...knowledge.schema import Knowledge
from ..evidence import signature_id
from .matcher import Match

MARKS = {"mark:torch-version": "torch", "mark:nccl-version": "NCCL"}
NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}")


def versions_in_log(hits: Iterable[Match]) -> dict[str, str]:
    """Return the versions of torch and NCCL in a log, without those that are contradictory."""
    found: dict[str, set[str]] = {}
    for hit in hits:
        if hit.pattern.id in MARKS and "value" in hit.event.values:
            found.setdefault(MARKS[hit.pattern.id], set()).add(hit.event.values["value"])
    return {what: values.pop() for what, values in found.items() if len(values) == 1}


def unprintable_signatures(knowledge: Knowledge, versions: Mapping[str, str]) -> set[str]:
    """Return the ids of the signatures that none of the log's versions can print."""
    if not versions:
        return set()
    return {
        signature_id(cause, index)
        for cause in knowledge.causes.values()
        for index, signature in enumerate(cause.signatures)
        if not matches_version(signature.since, signature.until, versions)
    }


def matches_version(since: str, until: str, versions: Mapping[str, str]) -> bool:
    """Return whether wording of these versions can come from the versions of the log.

    ``since`` and ``until`` (the last one) are like ``torch 2.5``. Unknown versions match. Limits are compared as
    precisely as they are written: 2.4.1 is within ``torch 2.4``.
    """
    for limit, is_first in ((since, True), (until, False)):
        what, _, number = limit.partition(" ")
        bound, version = _numbers(number), _numbers(versions.get(what, ""))[: len(_numbers(number))]
        if bound and version and (version < bound if is_first else version > bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    found = NUMBERS.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()
