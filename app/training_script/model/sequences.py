"""The calls of a program that need other ranks, in order.

A sequence is a graph of nodes, each with what follows it, so that both branches of a condition go on with the same
node. A sequence without collectives and exits behind a condition is that condition's rest: such conditions vanish.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .keys import BY_RANK, LOCAL, Key, parts


class Site(NamedTuple):
    """A place in a file. Lines and columns count from 1, and columns bytes, as in the syntax tree."""

    path: str
    line: int
    column: int
    end_line: int


class Event(NamedTuple):
    """A call that needs all ranks of a group. ``implied``: the text does not say collective (backward of DDP).

    ``wrapped``: if only a sharded model, or one with buffers, makes it communicate, the model is known to be one.
    ``on_demand``: what it makes is kept, so that the call is not made again. ``of``: what all ranks have to pass alike.
    """

    kind: str
    site: Site
    implied: bool = False
    sure: bool = True
    wrapped: bool = True
    on_demand: bool = False
    of: Key | None = None


class Reached(NamedTuple):
    """The next event, and the calls that lead to it. ``sure``: some event is reached whatever the branches decide."""

    event: Event
    via: tuple[Site, ...]
    sure: bool


class Node:
    """One step of a sequence; equal ones are one object.

    ``differs_by``: what its conditions depend on, here or later.
    """

    __slots__ = ("differs_by", "kinds")

    def __init__(self, differs_by: int, kinds: frozenset[str]) -> None:
        self.differs_by, self.kinds = differs_by, kinds


class End(Node):
    """The end: ``next`` (of a loop body), ``break``, ``return``, ``raise``, or ``exit`` (of the program)."""

    __slots__ = ("kind", "site")

    def __init__(self, kind: str, site: Site | None) -> None:
        super().__init__(0, frozenset())
        self.kind, self.site = kind, site


class Step(Node):
    """An event. ``via``: the calls that lead to it, where functions have been entered."""

    __slots__ = ("event", "next", "via")

    def __init__(self, event: Event, following: Node, via: tuple[Site, ...] = ()) -> None:
        super().__init__(following.differs_by, following.kinds | {event.kind})
        self.event, self.next, self.via = event, following, via


class BranchSide(NamedTuple):
    """One side of a branch before both go on: kinds of events; calls of unknown functions; leaves early."""

    kinds: frozenset[str] = frozenset()
    unknown: bool = False
    leaves: bool = False


class Choice(Node):
    """A branch. ``behind``: what follows both sides."""

    __slots__ = ("behind", "other", "sides", "site", "test", "then")

    def __init__(
        self, test: Key, site: Site, then: Node, other: Node, behind: Node, sides: tuple[BranchSide, BranchSide]
    ) -> None:
        super().__init__(test.differs_by | then.differs_by | other.differs_by, then.kinds | other.kinds)
        self.test, self.site, self.then, self.other = test, site, then, other
        self.behind, self.sides = behind, sides

    def may_answer(self, event: Event) -> bool:
        """Return whether the ranks without ``event`` may make it after all, on their own side of the branch."""
        having = [event.kind in side.kinds for side in self.sides]
        if all(having):
            return True
        if any(having):
            return any(side.unknown for side, has in zip(self.sides, having, strict=True) if not has)
        return any(side.unknown for side in self.sides if side.leaves)


class Loop(Node):
    """A loop. ``count``: what decides the number of rounds; ``free``: ranks may run different numbers of rounds.

    ``via``: the calls that lead to it, where functions have been entered.
    """

    __slots__ = ("body", "count", "free", "next", "site", "test_led", "via")

    def __init__(
        self,
        count: Key,
        site: Site,
        body: Node,
        following: Node,
        *,
        free: bool,
        test_led: bool,
        via: tuple[Site, ...] = (),
    ) -> None:
        super().__init__(count.differs_by | body.differs_by | following.differs_by, body.kinds | following.kinds)
        self.count, self.site, self.body, self.next = count, site, body, following
        self.free, self.test_led, self.via = free, test_led, via


class Call(Node):
    """A call of a function of the program."""

    __slots__ = ("body", "next", "site", "via")

    def __init__(self, body: Node, site: Site, following: Node, via: tuple[Site, ...] = ()) -> None:
        super().__init__(body.differs_by | following.differs_by, body.kinds | following.kinds)
        self.body, self.site, self.next, self.via = body, site, following, via


def first_event(
    node: Node, taken: "Callable[[Choice], Sequence[Node]] | None" = None, *, sure: bool = False
) -> Reached | None:
    """Return the first event that a sequence may reach, in the order of the text, and the calls that lead to it.

    ``taken`` gives the sides of a branch that may be taken. ``sure``: leave out calls that perhaps need no other rank.
    """
    pending: list[tuple[Node, tuple[Site, ...], bool]] = [(node, (), True)]
    seen: set[int] = set()
    while pending:
        node, via, always = pending.pop()
        if id(node) in seen or not node.kinds:
            continue
        seen.add(id(node))
        match node:
            case Step() if sure and not node.event.wrapped:
                pending.append((node.next, via, always))
            case Step():
                return Reached(node.event, (*via, *node.via), always)
            case Choice():
                sides = taken(node) if taken else (node.then, node.other)
                always = always and all(side.kinds for side in sides)
                pending += [(side, via, always) for side in reversed(sides)]
            case Loop():
                pending += [(node.next, via, always), (node.body, (*via, *node.via), always)]
            case Call():
                pending += [(node.next, via, always), (node.body, (*via, *node.via, node.site), always)]
    return None


def is_unsure(node: Step | Loop) -> bool:
    """Return whether a call, or all calls of a loop, perhaps need no other rank: too little is known of a model."""
    if isinstance(node, Step):
        return not node.event.wrapped
    pending, seen = [node.body], set[int]()
    while pending:
        for each in nodes(pending.pop()):
            if isinstance(each, Step) and each.event.wrapped:
                return False
            if isinstance(each, Call) and id(each.body) not in seen:
                seen.add(id(each.body))
                pending.append(each.body)
    return bool(node.body.kinds)


def leaving(body: Node, pair: tuple[str, str]) -> tuple[Site | None, int]:
    """Return the condition at which ranks leave a round in different ways, and what it depends on."""
    first: Choice | None = None
    for node in nodes(body):
        if isinstance(node, Choice) and node.test.differs_by & (BY_RANK | LOCAL):
            then, other = (
                {end.kind for end in nodes(side) if isinstance(end, End)} for side in (node.then, node.other)
            )
            if (then | other).issuperset(pair):
                if then != other:
                    return node.site, node.test.differs_by
                first = first or node
    return (first.site, first.test.differs_by) if first else (None, 0)


def is_left_together(loop: Loop) -> bool:
    """Return whether all ranks leave a loop in the round of a number on which they have agreed."""
    for node in nodes(loop.body):
        if isinstance(node, Choice) and not node.test.differs_by & (BY_RANK | LOCAL):
            inside = list(parts(node.test))
            counts = any(each.op == "number" and each.args[:2] == loop.site[:2] for each in inside)
            agreed = any(each.op in ("filled", "shared", "world") for each in inside)
            ends = (end for side in (node.then, node.other) for end in nodes(side) if isinstance(end, End))
            if counts and agreed and any(end.kind == "break" for end in ends):
                return True
    return False


def nodes(node: Node) -> Iterator[Node]:
    """Yield each node of a sequence once, bodies of called functions left out."""
    pending, seen = [node], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        match node:
            case Step() | Call():
                pending.append(node.next)
            case Choice():
                pending += [node.other, node.then]
            case Loop():
                pending += [node.next, node.body]


def tests_of_ranks(root: Node) -> list[Key]:
    """Return the conditions and numbers of rounds that depend on the rank, those of called functions included."""
    found: dict[Key, None] = {}
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen or not node.differs_by & BY_RANK:
            continue
        seen.add(id(node))
        match node:
            case Step():
                pending.append(node.next)
            case Call():
                pending += [node.next, node.body]
            case Choice():
                found[node.test] = None
                pending += [node.behind, node.other, node.then]
            case Loop():
                found[node.count] = None
                pending += [node.next, node.body]
    return [test for test in found if test.differs_by & BY_RANK]


def path_of(node: Node) -> str:
    """Return the file of a function, by its first node."""
    site = (
        node.event.site
        if isinstance(node, Step)
        else node.site
        if isinstance(node, (Choice, Loop, Call, End))
        else None
    )
    return site.path if site else ""


def behind_unsure(a: Node, b: Node) -> tuple[Node, Node] | None:
    """Return where two ranks go on if a call that one of them makes perhaps needs no other; None if both make it."""
    if isinstance(a, Step) and isinstance(b, Step) and a.event.kind == b.event.kind:
        return None
    if isinstance(a, (Step, Loop)) and is_unsure(a):
        return a.next, b
    return (a, b.next) if isinstance(b, (Step, Loop)) and is_unsure(b) else None
