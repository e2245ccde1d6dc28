"""Errors whose reason is known: an exception that a finding of the review leads to, and a mismatch of collectives after
ranks that are at different places. The reason is the cause, the error its effect.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import msgspec

from ...knowledge.schema import Knowledge
from ..evidence import (
    DESYNC,
    EXPLAIN_DESYNC,
    RAISED,
    SCRIPT_ERROR,
    Evidence,
    rule_error_id,
    rule_of_finding,
    verdict_id,
)

UNEXPLAINED_SHARE = 0.4  # of an error for which a reason is known
MISMATCHES = (f"log:{DESYNC}/", f"words:{DESYNC}")  # the messages of collectives that do not match, and their words


def explain_errors(evidence: Sequence[Evidence], knowledge: Knowledge) -> list[Evidence]:
    """Return the evidence with the exceptions that findings of the review lead to.

    A finding leads to an exception if its rule names this type as a symptom, and its file is the one that raised it.
    The messages of collectives that do not match follow from what sent the ranks to different places.
    """
    findings = [item for item in evidence if item.source == "review"]
    diverged = {item.id for item in evidence} & {verdict_id(cause) for cause in EXPLAIN_DESYNC}
    found: list[Evidence] = []
    for item in evidence:
        if diverged and item.id.startswith(MISMATCHES):
            found.append(msgspec.structs.replace(item, strength=item.strength * UNEXPLAINED_SHARE))
            continue
        effects = list(_effects(item, findings, knowledge)) if item.id == SCRIPT_ERROR else []
        found += effects
        found.append(msgspec.structs.replace(item, strength=item.strength * UNEXPLAINED_SHARE) if effects else item)
    return found


def _effects(error: Evidence, findings: Sequence[Evidence], knowledge: Knowledge) -> Iterator[Evidence]:
    exception, raised_in = error.values.get(RAISED, ""), error.values.get("file", "")
    for finding in findings:
        rule = rule_of_finding(finding.id)
        spec = knowledge.rules.get(rule)
        place = PurePath(finding.where.rpartition(":")[0]).name
        if spec and exception in re.findall(r"\w+", spec.symptom) and raised_in in ("", place):
            what = f"{error.what}; {spec.title[:1].lower()}{spec.title[1:]} ({rule}) leads to it"
            yield msgspec.structs.replace(error, id=rule_error_id(rule), what=what, strength=finding.strength)
