"""The steps of a function as the evaluation finds them, and the sequence of nodes they make."""

import ast
from typing import NamedTuple

from .caught_errors import may_take
from .keys import DIFFERS, Key
from .sequences import BranchSide, Call, Choice, End, Event, Loop, Node, Site, Step
from .values import ClassRef, Value

MOST_INLINED = 3  # depth of calls whose errors are followed to a handler


class Branch(NamedTuple):
    test: Key
    site: Site
    then: "list[Item]"
    other: "list[Item]"
    unknown: tuple[bool, bool] = (False, False)  # functions that cannot be followed are called there
    text: ast.expr | None = None  # the test as it is written


class Rounds(NamedTuple):
    """A loop. ``amount``: what decides the number of rounds. ``free``: ranks may differ in it, as in ``join()``."""

    amount: Key
    site: Site
    body: "list[Item]"
    rest: "list[Item]"  # the else branch
    free: bool
    test_led: bool


class Leave(NamedTuple):
    """``error``: the class of what is raised, if the statement names it."""

    kind: str
    site: Site
    error: str = ""


class Pause(NamedTuple):
    """The place in a context manager where the statements of the ``with`` run."""

    site: Site


class Attempt(NamedTuple):
    """A ``try`` statement whose handler goes on. ``site``: of the handler that takes errors of one rank alone.

    ``caught``: the classes of errors that handlers take, none if they take any.
    """

    body: "list[Item]"
    handler: "list[Item]"
    site: Site | None = None
    caught: tuple[str, ...] = ()


class Called(NamedTuple):
    """A call of a function of the program. ``perhaps``: its object may be one of another class, which is not known.

    ``starts``: it is the function that started processes run, not the process that starts them. ``hands_on``: a
    function calls another one with all that it was called with, as decorators do.
    """

    summary: "Summary"
    site: Site
    perhaps: bool = False
    starts: bool = False
    hands_on: bool = False


class Noted(NamedTuple):
    """A call that a rule asks for: it takes no part in the comparison of ranks. ``name``: ``torch.save``, ``.step``.

    ``on_demand``: what it makes is kept, so that the call is not made again.
    """

    name: str
    site: Site
    node: ast.Call
    owner: Value | None  # of a method
    values: list[Value]
    named: dict[str, Value]
    result: Value
    on_demand: bool = False


class Read(NamedTuple):
    """A read of an attribute that DDP does not have, on a model in DDP."""

    name: str
    site: Site
    node: ast.Attribute
    owner: Value


Item = Pause | Event | Branch | Rounds | Leave | Attempt | Called | Noted | Read


class Summary:
    """The steps of a function, over its parameters."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.complete = False
        self.makes_group = False  # the process group, which is there from then on
        self.wrapped = False  # by a decorator that may keep ranks out
        self.filled: set[int] = set()  # places of arguments that are the same on every rank afterwards
        self.stored: dict[str, Value] = {}  # attributes of its object that it has set
        self.settled: dict[str, Value] = {}  # what attributes of its object hold where it ends
        self.sets: set[str] = set()  # the names of attributes that it or a function that it calls sets
        self.rebound: dict[tuple[int, str], Value] = {}  # names of functions around that it has assigned
        self.reads: dict[tuple[ClassRef, str], int] = {}  # attributes, with how they differed between ranks
        self.returned: list[Value] = []  # by each of its return statements
        self._node: Node | None = None
        self._kinds: frozenset[str] | None = None

    def forget(self) -> None:
        """Empty the steps, which may call the function itself."""
        self.items.clear()
        self.returned.clear()
        self.stored.clear()
        self.settled.clear()
        self.rebound.clear()
        self.reads.clear()
        self._node = None

    @property
    def is_outdated(self) -> bool:
        """True if an attribute that it has read differs between ranks, and did not do so then."""
        if not self.complete or self.makes_group:
            return False
        held = ((cls.attributes.get(name), before) for (cls, name), before in self.reads.items())
        return any(value is not None and value.key.differs_by & DIFFERS & ~before for value, before in held)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of events of the function and of all that it calls."""
        if self._kinds is None:
            pending: list[Summary] = [self]
            found, seen = set[str](), {id(self)}
            while pending:
                each = pending.pop()
                if each._kinds is not None:
                    found |= each._kinds
                    continue
                own, called = own_kinds(each.items)
                found |= own
                for summary in called:
                    if id(summary) not in seen:
                        seen.add(id(summary))
                        pending.append(summary)
            self._kinds = frozenset(found)
        return self._kinds

    @property
    def node(self) -> Node:
        """The sequence, ended by ``return``."""
        if self._node is None:
            self._node = End("return", None)  # of a function that calls itself
            self._node = sequence(self.items, self._node)
        return self._node


class Handler(NamedTuple):
    """The place at which an error goes on. ``outside``: the handler of the statement around."""

    node: Node
    caught: tuple[str, ...]
    outside: "Handler | None"

    def of(self, error: str) -> Node | None:
        """Return where an error of a class goes on, None if no handler takes it."""
        if may_take(self.caught, error):
            return self.node
        return self.outside.of(error) if self.outside else None


def sequence(
    items: "list[Item]", following: Node, raised: Handler | None = None, returned: Node | None = None, depth: int = 0
) -> Node:
    """Return the nodes for ``items``, and then ``following``.

    What is raised goes on at ``raised``, and what returns at ``returned``, if these are given.
    """
    node = following
    for item in reversed(items):
        match item:
            case Event():
                node = Step(item, node)
            case Branch():
                node = _choice(item, node, raised, returned, depth)
            case Leave():
                taken = raised.of(item.error) if raised and item.kind == "raise" else None
                goes_on = returned if item.kind == "return" else taken
                node = goes_on or End(item.kind, item.site)
            case Attempt():
                handler = sequence(item.handler, node, raised, returned, depth)
                node = sequence(item.body, node, Handler(handler, item.caught, raised), returned, depth)
            case Rounds():
                node = sequence(item.rest, node, raised, returned, depth) if item.rest else node
                body = sequence(item.body, End("next", None), None)
                if body.kinds or _leaves(body):
                    node = Loop(item.amount, item.site, body, node, free=item.free, test_led=item.test_led)
            case Called(summary=summary):
                if raised and depth < MOST_INLINED and _raises(summary.items):
                    node = sequence(summary.items, node, raised, node, depth + 1)
                    continue
                body = summary.node
                if body.kinds or _exits(body):
                    node = Call(body, item.site, node)
    return node


def _choice(item: Branch, following: Node, raised: Handler | None, returned: Node | None, depth: int) -> Node:
    """Return the node of a branch. A chain of ``elif`` may be long: the last of its branches is made first."""
    chain = [item]
    while chain[-1].other and isinstance(last := chain[-1].other[-1], Branch):
        chain.append(last)
    node, others = following, frozenset[str]()
    for each in reversed(chain):
        is_last = each is chain[-1]
        before = each.other if is_last else each.other[:-1]
        then = sequence(each.then, following, raised, returned, depth)
        other = sequence(before, node, raised, returned, depth)
        own, others = kinds(each.then), others | kinds(before)
        early = is_last and _left_early(each.other)
        sides = BranchSide(own, each.unknown[0], _left_early(each.then)), BranchSide(others, each.unknown[1], early)
        node = then if then is other else Choice(each.test, each.site, then, other, following, sides)
        others |= own
    return node


def _raises(items: "list[Item]") -> bool:
    return any(
        (isinstance(item, Leave) and item.kind == "raise")
        or (isinstance(item, Branch) and (_raises(item.then) or _raises(item.other)))
        for item in items
    )


def _leaves(body: Node) -> bool:
    return isinstance(body, Choice) or (isinstance(body, End) and body.kind not in ("next", "break"))


def _exits(body: Node) -> bool:
    return isinstance(body, (Choice, Call)) or (isinstance(body, End) and body.kind == "exit")


def kinds(items: "list[Item]") -> frozenset[str]:
    """Return the kinds of events in steps, those of called functions included."""
    found, called = own_kinds(items)
    return frozenset(found).union(*(summary.kinds for summary in called))


def own_kinds(items: "list[Item]") -> "tuple[set[str], list[Summary]]":
    """Return the kinds of events in steps themselves, and the functions that are called there."""
    found, called, pending = set[str](), list[Summary](), [*items]
    while pending:
        match pending.pop():
            case Event(kind=kind):
                found.add(kind)
            case Branch(then=first, other=second) | Rounds(body=first, rest=second) | Attempt(first, second):
                pending += [*first, *second]
            case Called(summary=summary):
                called.append(summary)
            case Leave() | Noted() | Read() | Pause():
                pass
    return found, called


def _left_early(items: "list[Item]") -> bool:
    return bool(items) and isinstance(items[-1], Leave)
