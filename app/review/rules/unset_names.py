"""DW437: names and attributes that only some ranks have set and others read."""

import ast
import builtins
import re
from collections.abc import Iterator

from ...training_script.model.keys import RANKS, Key, Keys
from ...training_script.model.noted_calls import NONE_OF_SOME, OF_SOME_RANKS
from ...training_script.model.reach import Run, possible_ranks
from ...training_script.syntax import dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

ASKS = re.compile(r"\b(?:locals|globals|vars|dir)\(\)|\b(?:NameError|UnboundLocalError)\b")
WORDS_OF_ASKS = ("locals()", "globals()", "vars()", "dir()", "NameError", "UnboundLocalError")  # which are found faster
ASKS_FOR_NAME = re.compile(r"""["'](\w+)["'] (?:not )?in (?:locals|globals|vars|dir)\(\)""")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW437: yield the first read of each name that a rank comes to without having set it."""
    if not run.distributed and (run.function is None or script.evaluated.is_single):
        return  # what a function of a module asks for is a rank that its callers give
    if not any(run.of(OF_SOME_RANKS, NONE_OF_SOME)):
        return
    asked = set[str]()  # names that the script looks for before it reads them
    if any(map(script.mentions, WORDS_OF_ASKS)) and script.mentions(ASKS):
        asked.update(ASKS_FOR_NAME.findall(script.source.text))
        if ASKS.search(ASKS_FOR_NAME.sub("", script.source.text)):
            return
    known: set[tuple[object, ...]] = set()
    for reach, fact in run.of(OF_SOME_RANKS):
        name, (test, path, line) = dotted_name(fact.node.func), (value.key for value in fact.values)
        bound = name, path.value, line.value
        without = possible_ranks(reach, run.keys) & ranks_without(test, run.keys)
        if (
            not without
            or not reach.several
            or reach.attempted
            or bound in known
            or name in asked | vars(builtins).keys()
        ):
            continue
        known.add(bound)
        if run.function and fact.site in script.sites_of_some:
            continue  # the scripts that use this module come here on some ranks only
        who = "rank 0 has" if not without & 1 << 0 and without.bit_count() == len(RANKS) - 1 else "some ranks have"
        error = "an AttributeError" if "." in name else "a NameError"
        message = f"only {who} set `{name}` (line {line.value}): the others end here with {error}"
        place = RelatedPlace(path=path.value, line=line.value, message="the condition under which it is set")
        # Of a method that nothing shows to be for all ranks it is not known which of them call it.
        severity = "info" if "." in name and not run.distributed else None
        branch = _branch(script, place)
        yield from violation_at(script, reach, message, 0.8, severity=severity, branch=branch, related=[place])
    yield from _of_none(script, run)


def _of_none(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first use of each object that a rank comes to with None in its place."""
    known: set[tuple[str, str]] = set()
    for reach, fact in run.of(NONE_OF_SOME):
        name, error, lacks = _use(fact.node)
        without = possible_ranks(reach, run.keys) & ranks_without(fact.values[0].key, run.keys)
        if not without or not reach.several or reach.attempted or (fact.site.path, name) in known:
            continue
        known.add((fact.site.path, name))
        which = "every rank but 0" if not without & 1 << 0 and without.bit_count() == len(RANKS) - 1 else "some ranks"
        message = f"`{name}` is None on {which}: they end here with {error}, as None has no {lacks}"
        yield from violation_at(script, reach, message, 0.8)


def _use(noted: ast.Call) -> tuple[str, str, str]:
    """Return the name of what is used, the error that a use of None raises, and what None lacks."""
    match noted.func:
        case ast.Subscript(value=held):
            return dotted_name(held), "a TypeError", "elements"
        case ast.Starred(value=held):
            return dotted_name(held), "a TypeError", "elements to go through"
        case ast.Call(args=[held, *_]):
            return dotted_name(held), "a TypeError", "length"
        case used:
            name, _, attribute = dotted_name(used).rpartition(".")
            return name, "an AttributeError", f"`{attribute}`"


def ranks_without(test: Key, keys: Keys) -> int:
    """Return the ranks, as bits, for which a condition surely does not hold."""
    seen = [keys.specialise(test, rank) for rank in RANKS]
    return sum(1 << bit for bit, each in enumerate(seen) if each.is_constant and not each.value)


def _branch(script: Script, place: RelatedPlace) -> int | None:
    return place.line if place.path == script.source.path else None
