"""The facts of a program that rules ask for: noted calls and collectives, with the ranks that reach each.

``runs.py`` finds them.

How a rule is written, in ``app/review/rules``: a function from ``(Script, Run)`` to violations, entered in
``app/review/fact_rules.py``. ``run.reached`` holds the facts of one start of the program (``Root``) in order;
``run.of("torch.save")`` yields ``(reach, fact)`` for the calls of that name, a method as ``".step"``; names are in
``noted_calls``. ``argument(fact, 1, "f")`` is the value of an argument; ``reach.ranks`` the ranks that reach the
call, as bits; ``reach.several``: surely more than one. ``reach.unsure``: a condition on the way may be about ranks but
could not be decided, so be silent. ``same_on_ranks(key)``: nothing that differs between ranks is in a value.
``run.distributed``: several ranks surely run this. ``together(a, b)``: two facts may be reached in one run.
``violation_at(script, reach, …)`` makes the finding at the fact, or at the call in the script that leads to it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .function_steps import Attempt, Noted, Read, Rounds
from .keys import BY_RANK, DIFFERS, RANKS, TOUCHED, Key, Keys
from .sequences import Event, Site
from .values import FunctionRef, Value

NEAR = 3  # calls
ALL = (1 << len(RANKS)) - 1
FIRST_OF_NODES = sum(1 << bit for bit, rank in enumerate(RANKS) if rank.local == 0)  # one rank of each


class Condition(NamedTuple):
    """A test on the way to a fact, and the truth that it needs."""

    test: Key
    truth: bool
    site: Site


class Attempted(NamedTuple):
    """A ``try`` statement around a fact whose handler goes on. ``loops``: those around the statement."""

    attempt: Attempt
    loops: tuple[Rounds, ...]


class Reach(NamedTuple):
    """A fact and the way to it. ``calls``: outermost first.

    ``attempted``: an error there is passed over, or ranks take turns. ``started``: in a process that the program
    starts. ``attempts``: the statements that pass it over, outermost first. ``ends``: the program ends there.
    """

    fact: Noted | Event | Read
    calls: tuple[Site, ...]
    ranks: int
    unsure: bool
    conditions: tuple[Condition, ...]
    loops: tuple[Rounds, ...]
    attempted: bool = False
    started: bool = False
    attempts: tuple[Attempted, ...] = ()
    ends: bool = False

    @property
    def name(self) -> str:
        return self.fact.kind if isinstance(self.fact, Event) else self.fact.name

    @property
    def own_conditions(self) -> list[Condition]:
        """The conditions on the way to it that are in its own file."""
        return [each for each in self.conditions if each.site.path == self.fact.site.path]

    @property
    def several(self) -> bool:
        """More than one rank surely reaches it."""
        return not self.unsure and self.ranks & (self.ranks - 1) != 0

    @property
    def by_all(self) -> bool:
        """All ranks surely reach it, and not one after the other."""
        return self.several and self.ranks == ALL and not self.attempted


class Run(NamedTuple):
    """The facts of one start of the program, in order. ``evidence``: those that only several ranks reach.

    ``returned``: what the function returns, by each of its return statements. ``places``: of the noted calls of each
    name in ``reached``.
    """

    function: FunctionRef | None
    reached: list[Reach]
    evidence: list[Reach]
    keys: Keys
    returned: list[Value]
    places: dict[str, list[int]]

    @property
    def distributed(self) -> bool:
        """Several ranks surely run it."""
        return bool(self.evidence)

    @property
    def surely_distributed(self) -> bool:
        """Several ranks run it, by more than helpers of other files that serve one process as well."""
        return any(
            (not isinstance(each.fact, Event) and len(each.calls) <= NEAR)
            or all(site.path == each.fact.site.path for site in each.calls[:1])
            or not each.own_conditions
            for each in self.evidence
        )

    def is_of_several(self, reach: Reach) -> bool:
        """Return whether several ranks run it where a fact is reached."""
        before = {id(each) for each in self.reached[: self.reached.index(reach)]} if reach.ends else set[int]()
        return any(
            together(each, reach) and (not reach.ends or each.ends or id(each) in before) for each in self.evidence
        )

    def knows_callers(self, facts: Iterable[Reach]) -> bool:
        """Return whether the program shows which ranks come to facts: it starts here, or something on the way asks.

        Other files may call a function on some ranks only.
        """
        shown = self.function is None or any(self.of("torch.distributed.init_process_group"))
        return shown or any(_asks_for_rank(each) for each in facts)

    def of(self, *names: str) -> Iterator[tuple[Reach, Noted]]:
        """Yield the noted calls with one of these names."""
        if noted := {*names}.intersection(self.places):  # most functions have none of the calls of most rules
            for each in map(self.reached.__getitem__, sorted(place for name in noted for place in self.places[name])):
                if isinstance(each.fact, Noted):
                    yield each, each.fact


def _asks_for_rank(reach: Reach) -> bool:
    given = reach.fact.values if isinstance(reach.fact, Noted) else []
    return any(key.differs_by & BY_RANK for key in (*(each.test for each in reach.conditions), *(v.key for v in given)))


def noted_places(reached: list[Reach]) -> dict[str, list[int]]:
    """Return the places of the noted calls of each name among facts."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(reached):
        if isinstance(each.fact, Noted):
            found.setdefault(each.fact.name, []).append(place)
    return found


def argument(fact: Noted, place: int, *names: str) -> Value | None:
    """Return the value of an argument that is given by place or by one of these names."""
    for name in names:
        if name in fact.named:
            return fact.named[name]
    return fact.values[place] if 0 <= place < len(fact.values) else None


def same_on_ranks(key: Key) -> bool:
    """Return whether nothing that differs between ranks has gone into a value, as far as that is known."""
    return not key.differs_by & (DIFFERS | TOUCHED)


def alternatives(key: Key, conditions: "tuple[Condition, ...]" = ()) -> Iterator[Key]:
    """Yield what a value may be, depending on the branches that were taken before; under ``conditions`` if given."""
    known = known_tests(conditions)
    pending, seen = [key], set[int]()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if each.op == "if":
            truth = _truth(each.args[0], known) if known else None
            pending += [each.args[1 if side else 2] for side in ((True, False) if truth is None else (truth,))]
        elif each.op in ("one of", "changing"):
            pending += [arg for arg in each.args if isinstance(arg, Key)]


def known_tests(conditions: "tuple[Condition, ...]") -> dict[Key, bool]:
    """Return the tests that conditions decide, with their truth, the parts of a compound one included."""
    known: dict[Key, bool] = {}
    pending = [(each.test, each.truth) for each in conditions]
    while pending:
        test, truth = without_not(*pending.pop())
        known[test] = truth
        if test.op == ("and" if truth else "or"):
            pending += [(part, truth) for part in test.args]
    return known


def possible_ranks(reach: Reach, keys: Keys) -> int:
    """Return the ranks that reach a fact, as bits, without those for which its conditions contradict each other."""
    found = 0
    for bit, rank in enumerate(RANKS):
        seen = [(keys.specialise(each.test, rank), each.truth) for each in reach.conditions]
        known = known_tests(tuple(Condition(test, truth, reach.fact.site) for test, truth in seen))
        if all(_truth(test, known) in (truth, None) for test, truth in seen if not test.is_constant):
            found |= reach.ranks & 1 << bit
    return found


def _truth(test: Key, known: dict[Key, bool]) -> bool | None:
    """Return whether a test holds, as far as it follows from those that are known."""
    if test in known:
        return known[test]
    if test.op == "not":
        inner = _truth(test.args[0], known)
        return None if inner is None else not inner
    if test.op in ("and", "or"):
        parts = [_truth(part, known) for part in test.args]
        decides = test.op == "or"
        return decides if decides in parts else None if None in parts else not decides
    return None


def together(first: Reach, second: Reach) -> bool:
    """Return whether no condition keeps two facts from being reached in one run."""
    wanted = dict(without_not(each.test, each.truth) for each in first.conditions)
    asked = (without_not(each.test, each.truth) for each in second.conditions)
    return all(wanted.get(test, truth) == truth for test, truth in asked)


def without_not(test: Key, truth: bool) -> tuple[Key, bool]:
    """Return a test and the truth it needs, a ``not`` taken off."""
    return (test.args[0], not truth) if test.op == "not" else (test, truth)
