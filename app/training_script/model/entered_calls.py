"""Calls that the comparison of ranks enters: the steps of a function, followed by what comes after the call."""

from .budget import Budget
from .sequences import Call, Choice, End, Loop, Node, Site, Step


class EnteredCalls:
    """The calls that one comparison has entered. Equal nodes are one object."""

    def __init__(self) -> None:
        self._ways: dict[tuple[Site, ...], tuple[Site, ...]] = {}  # each once
        self._joined: dict[tuple[int, int, int], Node] = {}  # by node, what follows, and way

    def entered(self, call: Call, budget: Budget) -> Node:
        """Return the body of a function followed by what comes after the call."""
        way = (*call.via, call.site)
        return self._followed(call.body, call.next, self._ways.setdefault(way, way), budget)

    def _followed(self, node: Node, following: Node, via: tuple[Site, ...], budget: Budget) -> Node:
        key = id(node), id(following), id(via)
        joined = self._joined.get(key)
        if joined is None:
            budget.spend()
            match node:
                case End():
                    made: Node = following if node.kind == "return" else node
                case Step():
                    made = Step(node.event, self._followed(node.next, following, via, budget), (*via, *node.via))
                case Choice():
                    then, other = (
                        self._followed(node.then, following, via, budget),
                        self._followed(node.other, following, via, budget),
                    )
                    behind = self._followed(node.behind, following, via, budget)
                    made = Choice(node.test, node.site, then, other, behind, node.sides)
                case Loop():
                    rest = self._followed(node.next, following, via, budget)
                    led = (*via, *node.via)
                    made = Loop(node.count, node.site, node.body, rest, free=node.free, test_led=node.test_led, via=led)
                case Call():
                    made = Call(
                        node.body, node.site, self._followed(node.next, following, via, budget), (*via, *node.via)
                    )
                case _:
                    raise AssertionError(node)
            joined = self._joined[key] = made
        return joined
