"""DW217, DW401 to DW406: ranks that go through different collectives, by the model of the whole program.

DW401 is also found by ``conditional_collective``, which knows patches; what it finds is not reported here again.
"""

from collections.abc import Iterator

from ....knowledge.schema import Severity
from ...training_script.model.comparison import Divergence
from ...training_script.model.keys import BY_RANK, LOCAL
from ...training_script.model.sequences import Event, Site
from ..patches.rejoin_ranks import rejoin_ranks
from ..related_places import related_places
from ..rule_context import Script, Violation
from ..worker_loops import served_kinds

CONFIDENCE = {"DW401": 0.85, "DW402": 0.85, "DW403": 0.8, "DW404": 0.75, "DW405": 0.6, "DW406": 0.55, "DW217": 0.7}
WRAPPED = ("of DDP", "of FSDP", "the backward pass")


RULES = frozenset(CONFIDENCE)


def check(script: Script, known: list[Violation]) -> Iterator[tuple[str, Violation]]:
    """Yield what violates one of ``RULES``, without the ``known`` violations of ``conditional_collective``."""
    reported: set[tuple[str, int]] = set()
    served = served_kinds(script) if script.divergences.found else set[str]()
    for each in script.divergences.found:
        if each.first.kind in served or (each.second and each.second.kind in served):
            continue
        rule = rule_of(each)
        if not _is_known(script, each, known):
            violation = _violation(script, rule, each)
            if (rule, violation.line) not in reported:
                yield rule, violation
            reported.add((rule, violation.line))


def rule_of(found: Divergence) -> str:
    """Return the rule that a divergence violates."""
    kind = found.first.kind
    if found.by & LOCAL:
        return "DW405" if found.rounds else "DW406"
    if found.rounds:
        return "DW217" if found.rounds == "count" else "DW405"
    if kind.endswith(WRAPPED):
        return "DW402"
    if found.first.implied:
        return "DW403"
    return "DW404" if found.leaves else "DW401"


def place(script: Script, found: Divergence) -> Site | None:
    """Return the place of a divergence in this script: its event, or the call that leads to it."""
    here = [site for site in (*found.calls, found.first.site) if site.path == script.source.path]
    after = [site for site in here if site.line >= found.decided.line]
    return (after or here or [None])[-1] if found.decided.path == script.source.path else None


def _is_known(script: Script, found: Divergence, known: list[Violation]) -> bool:
    site = place(script, found)
    return site is None or any(
        each.branch == found.decided.line or each.line <= site.line <= each.end_line for each in known
    )


def _violation(script: Script, rule: str, found: Divergence) -> Violation:
    site = place(script, found)
    assert site is not None
    event = found.first
    where = "" if site == event.site else f" ({_shown(event.site, script)})"
    one, other = (f"rank {rank}" for rank in sorted(found.ranks))
    at = f"line {found.decided.line}"
    if found.by & LOCAL:
        decides = (
            f"{at} decides by data of one rank whether "
            if not found.rounds
            else f"{at} decides by data of one rank how often "
        )
        message = f"{decides}{event.kind}{where} is reached: ranks may go on differently"
    elif found.rounds == "count":
        message = (
            f"the ranks run the loop of {at} a different number of times, and each round needs all: {event.kind}{where}"
        )
    elif found.rounds:
        message = f"some ranks leave the loop at {at}, the others go on to {event.kind}{where}"
    elif found.second is not None:
        second = f"{found.second.kind} ({_shown(found.second.site, script)})"
        message = f"after {at} one rank calls {event.kind}{where} where another calls {second}"
    elif found.leaves:
        message = f"{event.kind}{where} is not reached by all: some ranks leave at {at} ({one} and {other} differ)"
    else:
        message = (
            f"{event.kind}{where} is reached by some ranks only: {at} keeps the others out ({one} and {other} differ)"
        )
    return Violation(
        line=site.line,
        column=site.column,
        end_line=site.end_line,
        message=message,
        confidence=CONFIDENCE[rule],
        severity=_severity(found, script),
        branch=found.decided.line,
        related=related_places(found),
        patch=lambda: rejoin_ranks(script, found),
    )


def _severity(found: Divergence, script: Script) -> Severity | None:
    """Return the severity of a finding, None for that of its rule: the less of it is known, the lower."""
    if any(not (event.wrapped and (found.sure or "constructor" not in event.kind)) for event in _events(found)):
        return "info"  # the model may not be sharded, or be wrapped already: what is made on demand is made once
    elsewhere = found.first.site.path != script.source.path
    if (elsewhere and found.leaves) or found.by == BY_RANK | LOCAL:
        return "info"  # other conditions may keep the ranks together
    if elsewhere or not (found.first.sure and found.sure) or found.by & LOCAL or found.rounds == "count":
        return "warning"
    return None


def _events(found: Divergence) -> list[Event]:
    return [found.first, found.second] if found.second else [found.first]


def _shown(site: Site, script: Script) -> str:
    return f"line {site.line}" if site.path == script.source.path else f"{site.path.rpartition('/')[2]}:{site.line}"
