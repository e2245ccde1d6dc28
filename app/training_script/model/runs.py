"""The facts of each start of a program, found by following the ranks through the steps of its functions.

A function is followed once; what it notes is then known at each of its calls. A rank reaches a fact if no condition
before it, seen by that rank, keeps it out: branches, early returns and exits, decorators that let one rank through.
"""

import ast
from typing import NamedTuple

from ..syntax import last_name
from .budget import OverBudget
from .evaluated import Evaluated, Root
from .function_steps import Attempt, Branch, Called, Item, Leave, Noted, Read, Rounds, Summary
from .keys import BY_RANK, RANKS, TOUCHED, Key, Keys, parts
from .launch_words import means_several_ranks
from .noted_calls import INIT
from .rank_mentions import may_ask_for_ranks
from .reach import ALL, Attempted, Condition, Reach, Run, noted_places
from .sequences import Event
from .several_ranks import HOROVOD, has_no_group, is_of_one, is_set_up, run_by_trainer, shows_ranks, with_parent

MOST_FACTS = 400  # of one function with all that it calls
MOST_CALLS = 50  # on the way to a fact
MOST_VISITED = 60_000  # items and facts, over all functions of a script
ORDERED = {"Lt", "LtE", "Gt", "GtE"}
WAITS = ("barrier", "wait_for_everyone")
CALLED_BY_LIBRARY = ("Callback", "Hook")  # how the names of the classes end whose methods a trainer calls on every rank
OF_ONE_PLACE = {"at", "local", "element", "number", "filled"}  # values with the result of a call in them
OF_IMPORTS = {"ImportError", "ModuleNotFoundError"}  # raised alike on every rank


def find_runs(evaluated: Evaluated) -> list[Run]:
    """Return the facts of each start of the program that comes to any."""
    reader = _Reader(evaluated.keys)
    found: list[Run] = []
    trained: dict[int, list[Reach]] = {}
    try:
        for root in evaluated.roots:
            run = reader.run(root, evaluated.is_interactive)
            if not run.reached:
                continue
            alone = evaluated.is_single or (evaluated.starts_actors and root.function is None)
            without = not (evaluated.names_ranks or is_set_up(run)) or has_no_group(run, evaluated.tree)
            run = run._replace(evidence=[]) if alone or without else run
            if not alone and not run.evidence and (facts := run_by_trainer(run)):
                trained[len(found)] = facts
            found.append(run)
    except (OverBudget, RecursionError):
        pass
    if trained and means_several_ranks(evaluated):
        found = [run._replace(evidence=trained.get(place, run.evidence)) for place, run in enumerate(found)]
    return [_as_others_of_class(run, found) for run in found]


def _as_others_of_class(run: Run, runs: list[Run]) -> Run:
    """Return the run of a method that a library calls on every rank with the evidence of other methods of its class."""
    owner = run.function and run.function.owner
    if run.evidence or not owner or not any(last_name(each).endswith(CALLED_BY_LIBRARY) for each in owner.node.bases):
        return run
    others = (each for each in runs if each.function and each.function.owner is owner)
    return run._replace(evidence=[reach for each in others for reach in each.evidence])


class _Found(NamedTuple):
    facts: list[Reach]
    returns: int  # the ranks that may come back from the function


class _Reader:
    """The facts of functions, each followed once."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self._known: dict[int, _Found] = {}
        self._tests: dict[Key, tuple[int, int]] = {}
        self._lasting: dict[Key, bool] = {}
        self._asking: dict[ast.expr, bool] = {}
        self._left = MOST_VISITED

    def run(self, root: Root, interactive: bool) -> Run:
        way = _Way(self, root.items)
        facts = with_parent(way.facts)
        if interactive and root.function is None and not any(map(_makes_group, facts)):
            facts = [each if each.started else each._replace(unsure=True) for each in facts]
        evidence = [each for each in facts if each.several and shows_ranks(each)]
        if is_of_one(facts) or all(each.name == HOROVOD for each in evidence):
            evidence = []
        called = root.items[0] if root.function and root.items else None
        returned = called.summary.returned if isinstance(called, Called) else []
        return Run(root.function, facts, evidence, self.keys, returned, noted_places(facts))

    def function(self, summary: Summary) -> _Found:
        found = self._known.get(id(summary))
        if found is None:
            self._known[id(summary)] = _Found([], ALL)  # of a function that calls itself
            way = _Way(self, summary.items)
            facts = [each._replace(unsure=True) for each in way.facts] if summary.wrapped else way.facts
            found = self._known[id(summary)] = _Found(facts, way.ranks | way.returned)
        return found

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise OverBudget

    def sides(self, test: Key) -> tuple[int, int]:
        """Return the ranks for which a test may be true, and those for which it may be false."""
        known = self._tests.get(test)
        if known is None:
            true = false = 0
            for bit, rank in enumerate(RANKS):
                seen = self.keys.specialise(test, rank)
                true |= (not seen.is_constant or bool(seen.value)) << bit
                false |= (not seen.is_constant or not seen.value) << bit
            known = self._tests[test] = true, false
        return known

    def lasts(self, test: Key) -> bool:
        """Return whether a condition is the same wherever it is asked for: none with the result of a call in it."""
        known = self._lasting.get(test)
        if known is None:
            known = self._lasting[test] = all(part.op not in OF_ONE_PLACE for part in parts(test))
        return known

    def is_open(self, branch: Branch) -> bool:
        """Return whether a condition may be about ranks although it is not known which ranks fulfil it."""
        test = branch.test
        true, false = self.sides(test)
        seen = [self.keys.specialise(test, rank) for bit, rank in enumerate(RANKS) if true & false & (1 << bit)]
        if not seen:
            return False
        some_surely = true & ~false  # "not several, or rank 0"
        if some_surely or any(each is not seen[0] for each in seen) or _is_of_ranks(seen[0]):
            return True
        if branch.text is None or test.differs_by & BY_RANK:
            return False
        known = self._asking.get(branch.text)
        if known is None:
            known = self._asking[branch.text] = may_ask_for_ranks(branch.text)
        return known


def _makes_group(reach: Reach) -> bool:
    """Return whether cells of a notebook make a process group themselves, which needs the variables of a launcher."""
    own = all(site.path == reach.fact.site.path for site in reach.calls)
    return own and reach.name == INIT and reach.several and not reach.attempted


class _Way:
    """The way of the ranks through the items of one function."""

    def __init__(self, reader: _Reader, items: list[Item]) -> None:
        self.reader = reader
        self.facts: list[Reach] = []
        self.returned = 0
        self._unsure = self._attempted = False
        self._attempts: tuple[Attempted, ...] = ()
        self._waited = 0  # the ranks that have waited for the others, which have not yet waited for them
        self._in_turn: list[int] = []  # the places of the facts since then
        self._conditions: list[Condition] = []  # which grows and shrinks in place: a chain of ``elif`` may be long
        self._loops: tuple[Rounds, ...] = ()
        self._out_of_round = 0
        self.ranks = self._walk(items, ALL)
        for place in self._in_turn:  # the other ranks never wait: this was no turn
            self.facts[place] = self.facts[place]._replace(attempted=False)

    def _walk(self, items: list[Item], ranks: int) -> int:
        """Follow items; return the ranks that may go on behind them."""
        first = len(self.facts)
        for item in items:
            if not ranks:
                return 0
            self.reader.spend()
            match item:
                case Event() | Noted() | Read():
                    way = tuple(self._conditions), self._loops, self._attempted, False, self._attempts
                    self._add(Reach(item, (), ranks, self._unsure, *way))
                case Branch():
                    ranks = self._branch(item, ranks)
                case Rounds():
                    ranks = self._round(item, ranks)
                case Attempt():
                    ranks = self._attempt(item, ranks)
                case Called():
                    ranks = self._called(item, ranks)
                case Leave(kind=kind):
                    if kind == "return":
                        self.returned |= ranks
                    elif kind in ("next", "break"):
                        self._out_of_round |= ranks
                    else:
                        self.facts[first:] = [each._replace(ends=True) for each in self.facts[first:]]
                    return 0
        return ranks

    def _branch(self, item: Branch, ranks: int) -> int:
        """Follow a branch, and the one that its other side ends with: a chain of ``elif`` may be long."""
        chain: list[tuple[Branch, int, int, int, bool, bool, int]] = []
        while True:
            true, false = self.reader.sides(item.test)
            unsure, outside = self._unsure, len(self._conditions)
            is_open = not unsure and self.reader.is_open(item)
            self._unsure = unsure or is_open
            self._conditions.append(Condition(item.test, True, item.site))
            left = self._walk(item.then, ranks & true)
            gone, others = ranks & true & ~left, ranks & false
            chain.append((item, left, gone, others, is_open, unsure, outside))
            self._unsure = unsure or is_open
            self._conditions[outside:] = [Condition(item.test, False, item.site)]
            last = item.other[-1] if item.other else None
            ranks = self._walk(item.other[:-1] if isinstance(last, Branch) else item.other, ranks & false)
            if not ranks or not isinstance(last, Branch):
                break
            self.reader.spend()
            item = last
        for item, left, gone, others, is_open, unsure, outside in reversed(chain):
            one_leaves = bool(left) != bool(ranks)
            self._conditions[outside:] = [Condition(item.test, bool(left), item.site)] if one_leaves else []
            self._unsure = unsure or (is_open and gone != others & ~ranks and not _fails_alike(item))
            ranks |= left
        return ranks

    def _round(self, item: Rounds, ranks: int) -> int:
        outside, loops, conditions = self._out_of_round, self._loops, len(self._conditions)
        self._out_of_round, self._loops = 0, (*loops, item)
        after = self._walk(item.body, ranks)
        after |= self._out_of_round
        endless = item.amount.op == "while" and item.amount.args[0].is_constant
        if not after and not endless:
            after = ranks  # no round is run, as in a search for what is wrong
        self._out_of_round, self._loops = outside, loops
        del self._conditions[conditions:]
        return self._walk(item.rest, after)

    def _attempt(self, item: Attempt, ranks: int) -> int:
        attempted = self._attempted
        self._attempted = attempted or not OF_IMPORTS.issuperset(item.caught) or not item.caught
        conditions, attempts = len(self._conditions), self._attempts
        self._attempts = (*attempts, Attempted(item, self._loops))
        after = self._walk(item.body, ranks)
        self._attempted, self._attempts = attempted, attempts
        del self._conditions[conditions:]
        unsure, self._unsure = self._unsure, True
        after |= self._walk(item.handler, ranks)
        self._unsure = unsure
        del self._conditions[conditions:]
        return after

    def _called(self, item: Called, ranks: int) -> int:
        inner = self.reader.function(item.summary)
        decided = {each.test: each.truth for each in self._conditions if self.reader.lasts(each.test)}
        for each in inner.facts:
            if decided and any(decided.get(inside.test, inside.truth) != inside.truth for inside in each.conditions):
                continue
            # A way that has been here before is that of the next call of a recursion.
            if each.ranks & ranks and len(each.calls) < MOST_CALLS and item.site not in each.calls:
                self._add(
                    Reach(
                        each.fact,
                        each.calls if item.hands_on else (item.site, *each.calls),
                        each.ranks & ranks,
                        self._unsure or each.unsure or item.perhaps,
                        (*self._conditions, *each.conditions),
                        (*self._loops, *each.loops),
                        self._attempted or each.attempted,
                        each.started or item.starts,
                        self._within(each.attempts),
                        each.ends,
                    )
                )
        return ranks & inner.returns

    def _within(self, attempts: tuple[Attempted, ...]) -> tuple[Attempted, ...]:
        """Return the statements around a fact of a function that is called here."""
        return (*self._attempts, *(each._replace(loops=(*self._loops, *each.loops)) for each in attempts))

    def _add(self, reach: Reach) -> None:
        self.reader.spend()
        if len(self.facts) < MOST_FACTS:
            if self._waited and not reach.attempted:
                self._in_turn.append(len(self.facts))
                reach = reach._replace(attempted=True)
            self.facts.append(reach)
        if isinstance(reach.fact, Event) and reach.fact.kind in WAITS and reach.ranks != ALL:
            self._waited = (self._waited | reach.ranks) % ALL
            if not self._waited:
                self._in_turn.clear()


def _fails_alike(branch: Branch) -> bool:
    """Return whether a branch ends with an error, for no reason of one rank: where a program goes on, none has it."""
    last = branch.then[-1] if branch.then else None
    return isinstance(last, Leave) and last.kind == "raise" and not branch.test.differs_by & BY_RANK


def _is_of_ranks(test: Key) -> bool:
    """Return whether an undecided test asks for something made from a rank, comparisons of amounts left out."""
    if test.op == "compare" and test.args[0] in ORDERED:
        return bool(test.differs_by & BY_RANK)
    if test.op in ("and", "or", "not"):
        return any(_is_of_ranks(arg) for arg in test.args)
    return bool(test.differs_by & (BY_RANK | TOUCHED))
