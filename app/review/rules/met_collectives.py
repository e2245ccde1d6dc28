"""DW124, DW416, DW441 and DW443: calls of different places at which ranks meet, and what each of them brings."""

import ast
from collections.abc import Iterator
from math import prod

from ...training_script.model.collective_traces import SLEEP, Meeting, meetings
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, Keys, Rank
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR as MEMBERS
from ...training_script.model.members import Member
from ...training_script.model.noted_calls import INIT
from ...training_script.model.reach import ALL, Reach, Run, argument
from ...training_script.model.sequences import Event
from ...training_script.model.signatures import place_of
from ...training_script.model.tensor_kinds import shape_of, type_of
from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .unequal_parts import SENT

PAIR = [Rank(rank, rank, 0, 2, 2) for rank in range(2)]  # the ranks of a small job
OBJECTS = (0, "object_list")
ROOTS = {"broadcast": (1, "src"), "broadcast_object_list": (1, "src"), "reduce": (1, "dst")}
KEEPS = ("data", "detach", "contiguous", "cpu", "cuda", "float", "clone")  # what a name is followed by
UNITS_S = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0, "milliseconds": 0.001}
Pair = tuple[Meeting, ...]


def check_order(script: Script, run: Run) -> Iterator[Violation]:
    """DW443: yield the first of two collectives that two ranks call for the same tensors in another order."""
    named = [(pair, names) for pair in _apart(script, run) if None not in (names := _names(script, pair))]
    first = next((each for each in named if each[1][0] != each[1][1]), None)
    if first is None:
        return
    pair, names = first
    later = [each for each in named[named.index(first) + 1 :] if each[0][0].kind == pair[0].kind]
    crossed = [other for other, others in later if others[0] == names[1] or others[1] == names[0]]
    if all(any(others[side] == names[1 - side] for _, others in later) for side in (0, 1)):
        yield from violation_at(
            script,
            _reach_of(run, pair[1]),
            f"one rank calls {pair[1].kind} for `{names[1]}` where another calls it for `{names[0]}` (line "
            f"{pair[0].site.line}): each gets what belongs to the other name",
            0.85,
            related=_places(pair, *crossed),
        )


def check_kinds(script: Script, run: Run) -> Iterator[Violation]:
    """DW441: yield the calls of different places to which two ranks pass tensors of other types or sizes."""
    for pair in _apart(script, run):
        facts = [each.fact for each in pair]
        if pair[0].site == pair[1].site or pair[0].kind not in SENT or None in facts:
            continue
        place, word, _ = SENT[pair[0].kind]
        given = [argument(fact, place, word) for fact in facts if fact]
        keys = [value.key for value in given if value]
        if len(keys) == 2 and (why := _difference(keys, run.keys)):
            yield from violation_at(
                script,
                _reach_of(run, pair[1]),
                f"the ranks pass tensors that do not fit to {pair[0].kind} (line {pair[0].site.line}): {why}",
                0.85,
                related=_places(pair),
            )


def check_roots(script: Script, run: Run) -> Iterator[Violation]:
    """DW416: yield the calls of different places that name other ranks as the root."""
    for pair in _apart(script, run):
        if pair[0].site == pair[1].site or pair[0].kind not in ROOTS:
            continue
        roots = [_root(meeting, member) for meeting, member in zip(pair, MEMBERS, strict=True)]
        if None not in roots and roots[0] != roots[1]:
            word = ROOTS[pair[0].kind][1]
            yield from violation_at(
                script,
                _reach_of(run, pair[1]),
                f"one rank passes {word} {roots[1]} to {pair[1].kind} here, another {roots[0]} (line "
                f"{pair[0].site.line}): they do not exchange anything",
                0.9,
                related=_places(pair),
            )


def check_time(script: Script, run: Run) -> Iterator[Violation]:
    """DW124: yield the pauses of one rank that are longer than the time-out of the process group."""
    if not any(run.of(SLEEP)):
        return
    limits = [(fact, limit) for _, fact in run.of(INIT) if (limit := _limit_s(script, fact)) is not None]
    for fact, limit in limits if len(limits) == 1 else ():
        for pair in _met(script, run):
            longest, least = sorted(pair, key=lambda each: each.slept_s, reverse=True)
            if longest.slept_s - least.slept_s > limit and longest.slept_at:
                yield from violation_at(
                    script,
                    _reach_of(run, longest)._replace(fact=fact._replace(site=longest.slept_at), calls=()),
                    f"one rank is busy here for {longest.slept_s:g} s while the others wait at {least.kind} (line "
                    f"{least.site.line}), and the process group gives up after {limit:g} s",
                    0.8,
                    related=[
                        RelatedPlace(path=fact.site.path, line=fact.site.line, message="the time-out is set here"),
                        *_places(pair),
                    ],
                )
                return


def _limit_s(script: Script, init: Noted) -> float | None:
    """Return the seconds after which a process group gives up, None if they are not written out."""
    node = call_argument(init.node, "timeout", place_of(INIT, "timeout"))
    if not isinstance(node, ast.Call) or not dotted_name(node.func).endswith("timedelta"):
        return None
    words = dict(zip(("days", "seconds"), node.args, strict=False))
    words |= {each.arg: each.value for each in node.keywords if each.arg}
    numbers = {
        word: value
        for word, given in words.items()
        if (value := _constant(script, given)) is not None and word in UNITS_S
    }
    return sum(UNITS_S[word] * value for word, value in numbers.items()) if len(numbers) == len(words) else None


def _constant(script: Script, given: ast.expr) -> float | None:
    """Return a number that is written out, where it is passed or as what a name holds."""
    if isinstance(given, ast.Constant):
        return given.value if isinstance(given.value, int | float) else None
    key = script.evaluated.value(given)
    return key.value if key is not None and key.is_constant and isinstance(key.value, int | float) else None


def _met(script: Script, run: Run) -> list[Pair]:
    """Return the meetings of two ranks, if all that is called is known."""
    root = next((each for each in script.evaluated.roots if each.function is run.function), None)
    return [*meetings(root.items, run.keys, PAIR)] if root else []


def _apart(script: Script, run: Run) -> list[Pair]:
    """Return the meetings of two ranks where only some of them come to a collective at its place."""
    if not run.distributed:
        return []
    apart = any(each.ranks != ALL and not each.unsure and isinstance(each.fact, Event) for each in run.reached)
    return _met(script, run) if apart else []


def _reach_of(run: Run, meeting: Meeting) -> Reach:
    found = (each for each in run.reached if (each.fact.site, each.calls) == (meeting.site, meeting.calls))
    return next(found)


def _places(*pairs: Pair) -> list[RelatedPlace]:
    sites = dict.fromkeys(each.site for pair in pairs for each in pair)
    return [RelatedPlace(path=site.path, line=site.line, message="the ranks meet here") for site in sites]


def _root(meeting: Meeting, member: Member) -> int | None:
    given = argument(meeting.fact, *ROOTS[meeting.kind]) if meeting.fact else None
    return number(given.key, member) if given else None


def _names(script: Script, pair: Pair) -> tuple[str | None, ...]:
    """Return the last names of the tensors that two ranks pass, None for one that has no name."""
    return tuple(_name(script, each) for each in pair)


def _name(script: Script, meeting: Meeting) -> str | None:
    place, word, *_ = SENT.get(meeting.kind, OBJECTS)
    node = call_argument(meeting.fact.node, word, place) if meeting.fact else None
    if node is None or node not in script.source.parents:
        return None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        named = _element(script, node.slice, meeting.rounds)
        return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else None
    if isinstance(node, ast.Name) and (entry := _entry_of(script, node)):
        return entry
    return _last_name(_element(script, node, meeting.rounds))


def _entry_of(script: Script, node: ast.Name) -> str:
    """Return the name of the entry of a mapping that a name holds, empty if it holds something else."""
    origins = script.names.origins(node)
    match origins:
        case [ast.Subscript(slice=ast.Constant(value=str() as name))]:
            return name
        case _:
            return ""


def _last_name(node: ast.expr | None) -> str | None:
    while True:
        match node:
            case ast.Attribute(value=inner, attr=name) if name in KEEPS:
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in KEEPS:
                node = inner
            case ast.Attribute(attr=name) | ast.Name(id=name):
                return name
            case ast.Subscript(slice=ast.Constant(value=str() as name)):
                return name
            case _:
                return None


def _element(script: Script, node: ast.expr, rounds: tuple[tuple[str, int, int], ...]) -> ast.expr | None:
    """Return what the name of a loop over tensors that are written out is in a round, and other expressions as is."""
    at: ast.AST | None = node
    while isinstance(node, ast.Name) and at is not None:
        at = script.source.parents.get(at)
        if not isinstance(at, ast.For) or dotted_name(at.target) != node.id:
            continue
        held = script.names.origins(at.iter) if isinstance(at.iter, ast.Name) else [at.iter]
        place = next((value for path, line, value in reversed(rounds) if line == at.lineno), None)
        match held:
            case [ast.Tuple(elts=elements) | ast.List(elts=elements)] if place is not None and place < len(elements):
                return elements[place]
            case _:
                return None
    return node


def _difference(given: list[Key], keys: Keys) -> str:
    """Return how the tensors of two ranks differ, an empty text if nothing is known to."""
    types = [type_of(key, keys, rank) for key, rank in zip(given, PAIR, strict=True)]
    if None not in types and types[0] != types[1]:
        return f"{types[1]} with {types[0]}"
    shapes = [shape_of(key, keys, rank) for key, rank in zip(given, PAIR, strict=True)]
    counts = [None if shape is None or None in shape else prod(size or 0 for size in shape) for shape in shapes]
    if None not in counts and counts[0] != counts[1]:
        return f"{counts[1]} elements with {counts[0]}"
    return ""
