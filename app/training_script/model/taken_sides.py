"""The branches that two compared ranks may take, with what is assumed there."""

from .assumptions import Assumptions, AssumptionSets
from .keys import BY_RANK, LOCAL, Key, Keys, Rank, View
from .sequences import Call, Choice, End, Loop, Node, Site, Step

BranchSide = tuple[Node, Node, Choice | Loop | None, int, Assumptions]


class TakenSides:
    """The branches of two ranks. ``views``: the conditions as each of them sees them."""

    def __init__(self, keys: Keys, first: Rank, second: Rank) -> None:
        self.views = keys.view(first), keys.view(second)
        self._assumptions = AssumptionSets(keys)
        self.nothing = self._assumptions.nothing

    def pairs(self, a: Node, b: Node, decided: Choice | Loop | None, by: int, assumed: Assumptions) -> list[BranchSide]:
        """Return the pairs of branches that two ranks may take."""
        first, second = self.views
        if isinstance(a, Choice) and isinstance(b, Choice) and a.test is b.test:
            seen_a, seen_b = (
                self._assumptions.seen(a.test, first, assumed),
                self._assumptions.seen(b.test, second, assumed),
            )
            if not (seen_a.is_constant or seen_b.is_constant) and seen_a is seen_b:
                sides: list[BranchSide] = [
                    (a.then, b.then, decided, by, self._assumptions.assume(assumed, seen_a, True)),
                    (a.other, b.other, decided, by, self._assumptions.assume(assumed, seen_a, False)),
                ]
                if seen_a.differs_by & LOCAL:
                    sides.append((a.then, b.other, a, LOCAL, assumed))
                return sides
            reached: list[BranchSide] = []
            for truth_a, side_a, then_a in self._taken(a, seen_a, assumed):
                for truth_b, side_b, then_b in self._taken(b, self._assumptions.seen(b.test, second, then_a), then_a):
                    same = truth_a == truth_b
                    differs_by = by if same else by | BY_RANK | (a.test.differs_by & LOCAL)
                    reached.append((side_a, side_b, decided if same else a, differs_by, then_b))
            return sorted(reached, key=lambda side: side[3] != by)
        if isinstance(a, Choice):
            taken = self._taken(a, self._assumptions.seen(a.test, first, assumed), assumed)
            return [(side, b, decided or a, by or a.test.differs_by, then) for _, side, then in taken]
        assert isinstance(b, Choice)
        taken = self._taken(b, self._assumptions.seen(b.test, second, assumed), assumed)
        return [(a, side, decided or b, by or b.test.differs_by, then) for _, side, then in taken]

    def is_taken_alike(self, choice: Choice, assumed: Assumptions) -> bool:
        """Return whether both ranks take the same side of a branch, whichever it is."""
        first, second = (self._assumptions.seen(choice.test, view, assumed) for view in self.views)
        return first is second

    def by_rank(self, choice: Choice, view: View, assumed: Assumptions) -> list[Node]:
        """Return the branches that one rank may take."""
        return [side for _, side, _ in self._taken(choice, self._assumptions.seen(choice.test, view, assumed), assumed)]

    def _taken(self, choice: Choice, seen: Key, assumed: Assumptions) -> list[tuple[bool, Node, Assumptions]]:
        if seen.op == "constant":
            return [(True, choice.then, assumed)] if seen.value else [(False, choice.other, assumed)]
        return [
            (True, choice.then, self._assumptions.assume(assumed, seen, True)),
            (False, choice.other, self._assumptions.assume(assumed, seen, False)),
        ]


def _exits(node: Node) -> bool:
    return type(node) is End and node.kind == "exit"


def _end(node: Node) -> Site | None:
    """Return where the steps that follow a node end."""
    while isinstance(node, (Step, Call, Loop, Choice)):
        node = node.behind if isinstance(node, Choice) else node.next
    return node.site if isinstance(node, End) else None


def refuses(side: BranchSide, choices: tuple[Node, Node]) -> bool:
    """Return whether a rank ends the program on one side of a branch that all ranks take alike once they get there.

    The end that both sides come to is that of the program.
    """
    if not (_exits(side[0]) or _exits(side[1])) or _end(side[0]) == _end(side[1]):
        return False
    return all(not each.test.differs_by & (BY_RANK | LOCAL) for each in choices if isinstance(each, Choice))
