"""Comparison of the sequences of two ranks, step by step."""

from collections.abc import Sequence
from typing import Literal

from .amounts import is_as_long, is_certain, is_made_of, is_number_range, is_stepped_by_data
from .assumptions import Assumptions
from .budget import Budget, OverBudget
from .divergence import Divergence
from .entered_calls import EnteredCalls
from .keys import BY_RANK, LOCAL, Keys, Rank
from .length_differences import differ as is_different
from .length_differences import is_even
from .lengths import number
from .library_calls import BACKWARD, FORWARD
from .sequences import (
    Call,
    Choice,
    End,
    Event,
    Loop,
    Node,
    Reached,
    Site,
    Step,
    behind_unsure,
    first_event,
    is_left_together,
    is_unsure,
    leaving,
    path_of,
)
from .taken_sides import BranchSide, TakenSides, refuses

Joins = tuple[tuple[Node, Assumptions], ...]
OF_TRAINING = {FORWARD, BACKWARD}  # which no protocol between a leader and its workers is made of
MOST_VISITS = 8  # of one pair of nodes, with different assumptions


class Comparison:
    """Comparison of the sequences of two ranks."""

    def __init__(self, keys: Keys, first: Rank, second: Rank, budget: Budget) -> None:
        self.keys, self.ranks, self.budget = keys, (first, second), budget
        self.found: list[Divergence] = []
        self._taken = TakenSides(keys, first, second)
        self._views = self._taken.views
        self._visits: dict[tuple[int, int], int] = {}
        self._known: set[tuple[int, int, int]] = set()
        self._again = False  # what follows a call is compared with what the function does
        self._inside: dict[int, tuple[set[tuple[str, str]], list[Divergence]]] = {}  # by the bodies of functions
        self._calls = EnteredCalls()
        self._rejoined: set[int] = set()  # where ranks are together again that another side keeps apart
        self._behind: list[tuple[Node, tuple[Site, ...]]] = []  # branches at which the ranks diverged
        self._abroad = self._cut = False  # in a function of another file; such a function was not followed to its end
        self._endless: Node | None = None  # the round of a loop that only its statements end

    def run(self, root: Node) -> bool:
        """Find where the two ranks part in ``root``, each place once; return whether the budget was enough."""
        try:
            self._compare(root, root, None, 0, (), self._taken.nothing)
            while self._behind:
                node, calls = self._behind.pop()
                self._compare(node, node, None, 0, calls, self._taken.nothing)
        except OverBudget:
            return False
        return not self._cut

    def _compare_call(
        self, call: Call, decided: Choice | Loop | None, by: int, calls: tuple[Site, ...], *, same: bool
    ) -> tuple[set[tuple[str, str]], list[Divergence]]:
        """Compare what two ranks do in one function; return the different ends, and what was found there.

        In what is compared again, with what follows, nothing is compared again without it.
        """
        if same and self._again and (known := self._inside.get(id(call.body))):
            return known
        before = len(self.found)
        inner = self._compare_body(call, decided, by, (*calls, call.site))
        inside = self.found[before:]
        del self.found[before:]
        if same and inside:
            self._inside[id(call.body)] = inner, inside
        return inner, inside

    def _compare_body(
        self, call: Call, decided: Choice | Loop | None, by: int, calls: tuple[Site, ...]
    ) -> set[tuple[str, str]]:
        """Compare what two ranks do in one function; one of another file may take a share of the steps."""
        outside, nothing = self.budget, self._taken.nothing
        if self._abroad or path_of(call.body) in ("", call.site.path):
            return self._compare(call.body, call.body, decided, by, calls, nothing)
        self._abroad = True
        try:
            with outside.part_abroad() as self.budget:
                return self._compare(call.body, call.body, decided, by, calls, nothing)
        except OverBudget:
            self._cut = True
            return set()
        finally:
            self._abroad, self.budget = False, outside

    def _compare(
        self,
        a: Node,
        b: Node,
        decided: Choice | Loop | None,
        by: int,
        calls: tuple[Site, ...],
        assumed: Assumptions,
        joins: Joins = (),
    ) -> set[tuple[str, str]]:
        """Compare from here on; return the pairs of different ends that are reached.

        ``joins``: where the branches end that both ranks have taken alike, with what is assumed behind them.
        """
        ends: set[tuple[str, str]] = set()
        while True:
            self.budget.spend()
            while joins and a is b is joins[-1][0]:
                assumed, joins = joins[-1][1], joins[:-1]
            if a is b:
                if not a.differs_by & (BY_RANK | LOCAL):
                    return ends
                decided, by = None, 0
            pair = id(a), id(b)
            visits = self._visits[pair] = self._visits.get(pair, 0) + 1
            if visits > MOST_VISITS:
                return ends
            key = (*pair, id(assumed))
            if key in self._known:
                return ends
            self._known.add(key)
            if isinstance(a, Choice) or isinstance(b, Choice):
                sides = self._taken.pairs(a, b, decided, by, assumed)
                if decided is not None and a is not b:
                    sides = [side for side in sides if not refuses(side, (a, b))] or sides
                if len(sides) == 1:
                    a, b, decided, by, assumed = sides[0]
                    continue
                diverged = False
                if a is b and isinstance(a, Choice) and self._taken.is_taken_alike(a, assumed):
                    joins = _with_join(joins, a.behind, assumed)
                for first, second, place, differs_by, taken in sides if a is not b else sides[:-1]:
                    if diverged and (first is not second or id(first) in self._rejoined):
                        continue  # one finding is enough, unless the ranks are together again on this side
                    self._rejoined |= {id(first)} if diverged else set()
                    before = len(self.found)
                    ends |= self._compare(first, second, place, differs_by, calls, taken, joins)
                    if len(self.found) > before and a is not b and not diverged:
                        self._weaken(before, sides)
                        diverged = True
                if a is not b:
                    return ends
                a, b, decided, by, assumed = sides[-1]
                continue
            if isinstance(a, Call) and isinstance(b, Call) and a.body is b.body:
                before = len(self.found)
                inner, inside = self._compare_call(a, decided if a is not b else None, by, calls, same=a is b)
                if inside:
                    # Another call may pair with this one, as with a barrier before and one after the work of rank 0.
                    known_before, self._known = self._known, set()
                    again, self._again = self._again, True
                    ends |= self._compare(
                        self._calls.entered(a, self.budget),
                        self._calls.entered(b, self.budget),
                        decided,
                        by,
                        calls,
                        assumed,
                    )
                    self._again = again
                    self._known |= known_before
                    if len(self.found) > before:
                        known = {each.first.site for each in inside}
                        self.found[before:] = inside + [
                            each for each in self.found[before:] if each.first.site not in known
                        ]
                    return ends
                if any("exit" in pair for pair in inner):
                    ends |= {pair for pair in inner if "exit" in pair}
                a, b = a.next, b.next
                continue
            if isinstance(a, Call) or isinstance(b, Call):
                a = self._calls.entered(a, self.budget) if isinstance(a, Call) else a
                b = self._calls.entered(b, self.budget) if isinstance(b, Call) else b
                continue
            if isinstance(a, Loop) and isinstance(b, Loop) and a.body is b.body:
                ends |= self._loop(a, b, decided, by, (*calls, *a.via))
                a, b = a.next, b.next
                continue
            if behind := behind_unsure(a, b):
                before = len(self.found)
                ends |= self._compare(*behind, decided, by, calls, assumed)
                if len(self.found) == before:
                    self._part(a, b, decided, by, calls, assumed)
                return ends
            if isinstance(a, Loop) or isinstance(b, Loop):
                if isinstance(a, Loop) and not a.body.kinds:
                    a = a.next
                    continue
                if isinstance(b, Loop) and not b.body.kinds:
                    b = b.next
                    continue
                if a.kinds == b.kinds and not a.kinds <= OF_TRAINING:
                    return ends  # a leader and its workers: both sides communicate by the same kinds of calls
                if isinstance(a, Loop) and isinstance(b, Loop) and self._has_same_rounds(a, b):
                    ends |= self._loop(a, b, decided, by, (*calls, *a.via))
                    a, b = a.next, b.next
                    continue
                self._part(a, b, decided, by, calls, assumed)
                return ends
            if isinstance(a, Step) and isinstance(b, Step):
                if a.event.kind != b.event.kind or self._passes_other(a.event, b.event):
                    self._part(a, b, decided, by, calls, assumed)
                    return ends
                a, b = a.next, b.next
                continue
            if isinstance(a, End) and isinstance(b, End):
                if a.kind != b.kind:
                    ends.add((a.kind, b.kind))
                return ends
            self._part(a, b, decided, by, calls, assumed)
            return ends

    def _loop(
        self, a: Loop, b: Loop, decided: Choice | Loop | None, by: int, calls: tuple[Site, ...]
    ) -> set[tuple[str, str]]:
        """Compare two runs of one loop: the number of rounds, then a round."""
        first, second = self._views
        count_a, count_b = first.key(a.count), second.key(b.count)
        reached = first_event(a.body, sure=not is_unsure(a))
        by_rank = is_made_of(a.count, BY_RANK) or (a.count.op == "length" and a.count.args[0].op == "range")
        by_rank = by_rank or is_different(a.count, number)
        differ = count_a is not count_b and is_certain(count_a) and is_certain(count_b) and by_rank
        differ = differ and not is_as_long(count_a, count_b) and not is_even(a.count)
        by_data = is_made_of(count_a, LOCAL) or is_stepped_by_data(count_a)
        if reached and not (a.free or is_left_together(a)) and (differ or by_data):
            self._add_reached(reached, a.site, BY_RANK if count_a is not count_b else LOCAL, calls, rounds="count")
            return set()
        outside, self._endless = (
            self._endless,
            a.body if a.count.op == "while" and a.count.args[0].is_constant else None,
        )
        inner = self._compare(a.body, b.body, decided if a is not b else None, by, calls, self._taken.nothing)
        self._endless = outside
        for pair in inner:
            rounds = "break" in pair or "next" in pair
            if reached and rounds and not a.free and "raise" not in pair:
                site, differs_by = leaving(a.body, pair)
                if site:
                    self._add_reached(reached, site, differs_by, calls, rounds="left")
                    return set()
        rest = {pair for pair in inner if ("return" in pair or "exit" in pair) and "raise" not in pair}
        if rest and not reached and (later := first_event(a.next)):
            site, differs_by = leaving(a.body, next(iter(rest)))
            if site:
                self._add_reached(later, site, differs_by, calls, leaves=site)
        return set()

    def _add_reached(
        self,
        reached: Reached,
        decided: Site,
        by: int,
        calls: tuple[Site, ...],
        *,
        rounds: Literal["", "count", "left"] = "",
        leaves: Site | None = None,
    ) -> None:
        """Add that not all ranks get to an event, or not equally often."""
        ranks = self.ranks[0].rank, self.ranks[1].rank
        via = (*calls, *reached.via)
        self._add(Divergence(reached.event, None, decided, by, via, ranks, rounds, leaves, reached.sure))

    def _part(
        self,
        a: Node,
        b: Node,
        decided: Choice | Loop | None,
        by: int,
        calls: tuple[Site, ...],
        assumed: Assumptions,
    ) -> None:
        if decided is None or any(isinstance(node, End) and node.kind == "raise" for node in (a, b)):
            return
        event_a, event_b = (
            first_event(
                node,
                lambda choice, view=view: self._taken.by_rank(choice, view, assumed),
                sure=isinstance(node, Loop) and not is_unsure(node),
            )
            for node, view in zip((a, b), self._views, strict=True)
        )
        reached = event_a or event_b
        if reached is None:
            return
        first = reached.event
        second = event_b.event if event_a and event_b else None
        if isinstance(decided, Choice) and second is None and decided.may_answer(first):
            return
        holds = isinstance(decided, Choice) and any(first.kind in side.kinds for side in decided.sides)
        if not holds and second is None and any(self._repeats(node, first) for node in (a, b)):
            return
        ended = next((node for node in (a, b) if isinstance(node, End)), None) if not holds else None
        seen = [view.key(decided.test) for view in self._views] if isinstance(decided, Choice) else []
        known = not seen or by & LOCAL or any(each.is_constant for each in seen)
        self._add(
            Divergence(
                first,
                second,
                decided.site,
                by,
                (*calls, *reached.via),
                (self.ranks[0 if event_a else 1].rank, self.ranks[1 if event_a else 0].rank),
                leaves=ended.site if ended and ended.kind != "next" else None,
                sure=reached.sure and bool(known),
            )
        )
        if isinstance(decided, Choice) and (holds or ended) and second is None and by == BY_RANK:
            self._behind.append((decided.behind, calls))  # with this one repaired, the ranks go on together

    def _has_same_rounds(self, a: Loop, b: Loop) -> bool:
        """Return whether two loops, such as that of a function which both sides of a branch call, count the same."""
        first, second = (view.key(loop.count) for view, loop in zip(self._views, (a, b), strict=True))
        return a.count is b.count or first is second or is_as_long(first, second)

    def _passes_other(self, first: Event, second: Event) -> bool:
        """Return whether two ranks surely pass to a call what all ranks have to pass alike, but not the same."""
        if first.of is None or second.of is None or first.site == second.site:
            return False
        passed = [view.key(event.of) for view, event in zip(self._views, (first, second), strict=True) if event.of]
        return passed[0] is not passed[1] and all(map(is_number_range, passed))

    def _repeats(self, node: Node, event: Event) -> bool:
        """Return whether a rank begins another round of an endless loop, in which it comes to the same event."""
        if self._endless is None or not isinstance(node, End) or node.kind != "next" or node.site is None:
            return False
        again = first_event(self._endless)
        return again is not None and again.event.kind == event.kind

    def _add(self, found: Divergence) -> None:
        if not any(each.first.site == found.first.site and each.decided == found.decided for each in self.found):
            self.found.append(found)

    def _weaken(self, since: int, sides: Sequence[BranchSide]) -> None:
        """Note that what was found on one side of a branch behind the divergence may not be reached on another."""
        for place, each in enumerate(self.found[since:], since):
            if any(each.first.kind not in first.kinds | second.kinds for first, second, *_ in sides):
                self.found[place] = each._replace(sure=False)


def _with_join(joins: Joins, behind: Node, assumed: Assumptions) -> Joins:
    """Return the joins with one more; of nested branches that end at one place, the outermost counts."""
    return joins if joins and joins[-1][0] is behind else (*joins, (behind, assumed))
