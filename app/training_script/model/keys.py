"""Symbolic values: two ranks have the same value where their keys are the same and nothing in them is local to a rank.

A key is an expression over constants, the rank, places of the program, and data of one rank. Equal expressions are one
object. ``specialise`` gives the key as one rank sees it: a constant where the rank decides it.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

BY_RANK, LOCAL = 1, 2  # what makes a value differ: the rank itself; data, files, time or errors of one rank
TOUCHED = 4  # made by a call that cannot be followed from something that differs by rank: it may differ too
DIFFERS = BY_RANK | LOCAL
MOST_DEPTH = 40  # of an expression; a deeper one is a value of its own
NEW_GROUP = "new_group"
UNTIL_KNOWN = "a number until the rank is known"
LARGEST = 1 << 40  # no number in a condition on ranks is larger

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Is": operator.eq,
    "IsNot": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}
OF_BRANCHES = {"if", "one of", "changing"}  # values that are None where a branch made them so
# Comparisons of the number of ranks, or of GPUs, that have the same result for each number above 1.
OF_SEVERAL = {
    **dict.fromkeys((("Gt", 0), ("Gt", 1), ("GtE", 1), ("GtE", 2), ("NotEq", 0), ("NotEq", 1)), True),
    **dict.fromkeys((("Lt", 1), ("Lt", 2), ("LtE", 0), ("LtE", 1), ("Eq", 0), ("Eq", 1)), False),
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": lambda a, b: int(a) * int(b),
    "Mod": lambda a, b: int(a) % int(b),
    "FloorDiv": operator.floordiv,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "RShift": operator.rshift,
}
WITH_SIZES = {"world", "range", "compare", "binary", "not", "and", "or", "if"}  # the number of ranks may decide them


ORDERS = {"torch.randperm", "numpy.random.permutation"}  # calls that give an order of numbers, or of what they get
NUMBERS = {"length", "binary", "number", "attribute", "min", "max"}

LAUNCHED = "launched"  # a variable of the environment that a launcher sets for every rank
CLOCK = "the clock"  # a time of which each rank makes a name
ALWAYS_TRUE = {"function", "class", LAUNCHED}
NEVER_NONE = {
    LAUNCHED,
    "binary",
    "sequence",
    "built",
    "text",
    "number",
    "rank",
    "world",
    "devices",
    "mapping",
    "length",
    "range",
    "instance",
    "compare",
    "local",
}


class Key(msgspec.Struct, eq=False):
    """One expression. ``differs_by`` holds the flags of everything in it.

    ``is_constant``: of the operation "constant". ``accumulated``: how rounds of a loop have made it of what it was
    before.
    ``rows_of``: a value of which it has one row for each, if that is known.
    """

    op: str
    args: tuple[Any, ...]
    differs_by: int
    depth: int
    is_constant: bool = False
    accumulated: "Accumulated | None" = None
    rows_of: "Key | None" = None

    @property
    def value(self) -> Any:
        """Value of a constant."""
        return self.args[0]

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"


class Accumulated(NamedTuple):
    """A value that each round of a loop changes: from ``over`` to ``after``. ``rounds`` decides their number."""

    first: Key
    over: Key
    after: Key
    rounds: Key


def parts(key: Key) -> Iterator[Key]:
    """Yield a key and the keys in it."""
    pending, seen = [key], set[int]()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [arg for arg in each.args if type(arg) is Key]


def parts_entered(key: Key, enters: Callable[[Key], bool]) -> Iterator[Key]:
    """Yield a key, and the keys in it that are in no key which is not entered."""
    pending, seen = [key], set[int]()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            if enters(each):
                pending += [arg for arg in each.args if type(arg) is Key]


class Rank(NamedTuple):
    """One rank of a job, with the sizes it sees, as far as they are known."""

    rank: int
    local: int | None
    node: int | None
    world_size: int
    local_world_size: int | None


WORLD, PER_NODE = 4, 2
RANKS = [Rank(rank, rank % PER_NODE, rank // PER_NODE, WORLD, PER_NODE) for rank in range(WORLD)]


class Keys:
    """The keys of one review; each expression exists once."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Key] = {}
        self._constants: dict[tuple[type, Any], Key] = {}
        self._views: dict[Rank, View] = {}
        self._grown: list[Key] = []
        self.sizes: dict[Key, Key] = {}  # lengths of objects of the program that have one
        self.array_types: dict[Key, str | None] = {}  # of what functions of numpy return, None if it is not one type
        self.generators: set[Key] = set()  # of random numbers of numpy
        self.kinds_read: set[str] = set()  # kinds of ranks of which the program shows where they are read from
        self.sources_read: set[str] = set()  # the variables and functions that it reads them from
        self.true, self.false, self.none = self.constant(True), self.constant(False), self.constant(None)

    def make(self, op: str, *args: Any, differs_by: int = 0) -> Key:
        """Return the expression, simplified where its parts are constants."""
        identity = op, differs_by, args
        made = self._made.get(identity)
        if made is None:
            simplify = SIMPLER.get(op)
            made = simplify(self, *args) if simplify else None
            if made is None:
                made = self._new(op, args, differs_by)
            self._made[identity] = made
        return made

    def _new(self, op: str, args: tuple[Any, ...], differs_by: int) -> Key:
        depth = 1
        for arg in args:
            if type(arg) is Key:
                differs_by |= arg.differs_by
                if arg.depth >= depth:
                    depth = arg.depth + 1
        return Key(op, args, differs_by, depth) if depth <= MOST_DEPTH else self.make("deep", op, differs_by=differs_by)

    def constant(self, value: Any) -> Key:
        try:
            made = self._constants.get((type(value), value))
        except TypeError:
            value, made = repr(value), None
        if made is None:
            made = self._constants.setdefault((type(value), value), Key("constant", (value,), 0, 1, is_constant=True))
        return made

    def local(self, why: str, *site: Any) -> Key:
        """Return a value that each rank has of its own: ``why`` says what it is."""
        return self.make("local", why, *site, differs_by=LOCAL)

    def rank(self, kind: str, source: str = "") -> Key:
        """Return the rank of this process: global, local, node or spawned (the number that ``mp.spawn`` gives).

        A rank in a group has no known number. ``source``: the variable or the function that it is read from; empty if
        only a name suggests it, UNTIL_KNOWN if it is a number that a rank has in runs of one process.
        """
        if source not in ("", UNTIL_KNOWN):
            self.kinds_read.add(kind)
            self.sources_read.add(source)
        return self.make("rank", kind, source, differs_by=BY_RANK)

    def note_accumulated(self, key: Key, accumulated: Accumulated) -> None:
        """Say how rounds of a loop have made a value."""
        key.accumulated = accumulated
        self._grown.append(key)

    def forget(self) -> None:
        """Empty what refers to itself: the views, and the values that a round makes of those before it."""
        self._views.clear()
        for key in self._grown:
            key.accumulated = None

    def is_first(self, kind: str) -> Key:
        return self.make("compare", "Eq", self.rank(kind), self.constant(0))

    def either(self, test: Key, then: Key, other: Key) -> Key:
        """Return the value after a branch."""
        if then.op == other.op == "shared" and then.args[0] == other.args[0] != NEW_GROUP:
            return then  # rank 0 calls broadcast with what it has, the others with None: both get the same
        return then if then is other else self.make("if", test, then, other)

    def specialise(self, key: Key, rank: Rank) -> Key:
        """Return ``key`` as ``rank`` sees it."""
        if not key.differs_by & BY_RANK and key.op not in WITH_SIZES:
            return key
        return self.view(rank).key(key)

    def view(self, rank: Rank) -> "View":
        """Return the keys as ``rank`` sees them."""
        view = self._views.get(rank)
        if view is None:
            view = self._views[rank] = View(self, rank)
        return view

    def _not(self, inner: Key) -> Key | None:
        if inner.op == "constant":
            return self.false if inner.args[0] else self.true
        if inner.op in ALWAYS_TRUE:
            return self.false
        return inner.args[0] if inner.op == "not" else None

    def _one_of(self, first: Key, *others: Key) -> Key | None:
        return first if len(others) == 1 and others[0] is first else None

    def _changing(self, *args: Any) -> Key | None:
        keys = [arg for arg in args if type(arg) is Key]
        return keys[0] if keys and keys[0].is_constant and all(key is keys[0] for key in keys) else None

    def _if(self, test: Key, then: Key, other: Key) -> Key | None:
        if test.op == "constant":
            return then if test.args[0] else other
        if test.op in ALWAYS_TRUE:
            return then
        sides = self._under(test, then, True), self._under(test, other, False)
        if sides != (then, other):
            return self.make("if", test, *sides)
        if then is other:
            return then
        if then is self.true and other is self.false:
            return test
        return self.make("not", test) if then is self.false and other is self.true else None

    def _under(self, test: Key, key: Key, truth: bool) -> Key:
        """Return what a value is where the truth of a condition is known."""
        if key.op != "if":
            return key
        asked, then, other = key.args
        if asked is test:
            return then if truth else other
        opposite = asked.args[:1] == (test,) if asked.op == "not" else test.op == "not" and test.args[0] is asked
        return (other if truth else then) if opposite else key

    def _and(self, left: Key, right: Key, *, decides: bool = False) -> Key | None:
        if left.op == "constant":
            return left if bool(left.args[0]) == decides else right
        if left.op in ALWAYS_TRUE:
            return left if decides else right
        if right.op == "constant":  # false and true decide; what is evaluated before has no effect here
            return right if bool(right.args[0]) == decides else left
        return left if left is right else None

    def _or(self, left: Key, right: Key) -> Key | None:
        return self._and(left, right, decides=True)

    def _item(self, held: Key, at: Key, *default: Key) -> Key | None:
        if held.op == "mapping":
            pairs = dict(zip(held.args[::2], held.args[1::2], strict=True))
            known = at.is_constant and all(name.is_constant for name in pairs)
            return pairs.get(at) or (default[0] if default and known else None)
        if held.op == "sequence" and not default and at.is_constant and type(at.value) is int:
            return held.args[at.value] if -len(held.args) <= at.value < len(held.args) else None
        return None

    def _place(self, at: int, falls: bool, *of: Key) -> Key | None:
        if not all(each.is_constant and isinstance(each.value, (int, float)) for each in of):
            return None
        values = [each.value for each in of]
        order = sorted(range(len(values)), key=values.__getitem__, reverse=falls)
        return self.constant(order.index(at))

    def _length(self, *of: Any) -> Key | None:
        """Return the length of a random order: that of what it is one of, which no draw decides."""
        if len(of) != 1 or of[0].op != "call" or of[0].args[0] not in ORDERS or len(of[0].args) < 2:
            return None
        ordered = of[0].args[1]
        whole = ordered.op in NUMBERS or (ordered.is_constant and type(ordered.value) is int)
        return ordered if whole else self.make("length", ordered)

    def _least(self, *of: Key) -> Key | None:
        return self._computed(min, of[0].value, of[1].value) if _are_two_constants(of) else None

    def _greatest(self, *of: Key) -> Key | None:
        return self._computed(max, of[0].value, of[1].value) if _are_two_constants(of) else None

    def _compare(self, name: str, left: Key, right: Key) -> Key | None:
        if name in ("In", "NotIn") and right.is_constant and right.value == ():
            return self.constant(name == "NotIn")
        if left.op == "constant":
            if right.op == "constant":
                return self._computed(COMPARE.get(name), left.value, right.value)
            if name in ("In", "NotIn") and right.op == "range":
                bounds = [each.value for each in right.args if each.is_constant and type(each.value) is int]
                if 0 < len(bounds) < 4 and len(bounds) == len(right.args):
                    return self._computed(COMPARE[name], left.value, range(*bounds))
        elif right.op == "constant":
            if left.op in ALWAYS_TRUE - {LAUNCHED} and name in ("Eq", "NotEq", "Is", "IsNot"):
                return self.constant(name in ("NotEq", "IsNot"))
            if right is self.none and left.op in NEVER_NONE and name in ("Is", "IsNot"):
                return self.constant(name == "IsNot")
            if left.op == "devices" or (left.op == "world" and left.args == ("global",)):
                if (name, right.value) in OF_SEVERAL:
                    return self.constant(OF_SEVERAL[name, right.value])
            elif left.op in OF_BRANCHES:
                return self._compared(name, left, right)
        same = left is right and name in ("Eq", "Is") and not left.differs_by & LOCAL
        return self.true if same else None

    def _binary(self, name: str, left: Key, right: Key) -> Key | None:
        if left.op == "constant" and right.op == "constant":
            return self._computed(ARITHMETIC.get(name), left.value, right.value)
        return None

    def _compared(self, name: str, left: Key, right: Key) -> Key | None:
        """Return the comparison of a value that branches chose, made of those of its parts, if that tells more."""
        chosen = [arg for arg in left.args if isinstance(arg, Key)]
        first = 1 if left.op == "if" else 0
        compared = [self.make("compare", name, part, right) for part in chosen[first:]]
        if name not in ("Is", "IsNot") and not (
            left.differs_by & BY_RANK and any(each.is_constant for each in compared)
        ):
            return None
        if left.op == "if":
            return self.make("if", chosen[0], *compared)
        rest = [arg for arg in left.args if not isinstance(arg, Key)]
        return compared[0] if len(set(compared)) == 1 else self.make(left.op, *rest, *compared)

    def _computed(self, function: Callable[[Any, Any], Any] | None, left: Any, right: Any) -> Key | None:
        if function is None:
            return None
        left, right = (each.args if isinstance(each, Key) else each for each in (left, right))
        if isinstance(left, str) and isinstance(right, int) and left.isdigit():
            left = int(left)
        if isinstance(right, str) and isinstance(left, int) and right.isdigit():
            right = int(right)
        try:
            value = function(left, right)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return None
        return self.constant(value) if not isinstance(value, int) or abs(value) < LARGEST else None


# Expressions that may be a simpler one, and what returns it.
SIMPLER: dict[str, Callable[..., Key | None]] = {
    "not": Keys._not,
    "one of": Keys._one_of,
    "changing": Keys._changing,
    "if": Keys._if,
    "and": Keys._and,
    "or": Keys._or,
    "item": Keys._item,
    "place": Keys._place,
    "length": Keys._length,
    "min": Keys._least,
    "max": Keys._greatest,
    "compare": Keys._compare,
    "binary": Keys._binary,
}


def _are_two_constants(of: tuple[Key, ...]) -> bool:
    return len(of) == 2 and of[0].is_constant and of[1].is_constant


class View:
    """The keys as one rank sees them."""

    def __init__(self, keys: Keys, rank: Rank) -> None:
        self.rank = rank
        self._keys = keys
        self._known: dict[Key, Key] = {}

    def key(self, key: Key) -> Key:
        """Return ``key`` as the rank sees it: a constant where the rank decides it."""
        if not key.differs_by & BY_RANK and key.op not in WITH_SIZES:
            return key
        seen = self._known.get(key)
        if seen is None:
            seen = self._known[key] = self._key(key)
        return seen

    def _key(self, key: Key) -> Key:
        rank = self.rank
        if key.op == "rank":
            value = {"global": rank.rank, "local": rank.local, "node": rank.node, "spawned": rank.rank}.get(key.args[0])
            return key if value is None else self._keys.constant(value)
        if key.op == "world":
            size = rank.local_world_size if key.args[0] == "local" else rank.world_size
            return key if size is None else self._keys.constant(size)
        args = tuple([self.key(arg) if type(arg) is Key else arg for arg in key.args])
        return self._keys.make(key.op, *args, differs_by=key.differs_by & LOCAL) if args != key.args else key


def is_text(key: Key) -> bool:
    """Return whether a value is surely a text."""
    return key.op == "text" or (key.is_constant and isinstance(key.value, str))


def is_place(key: Key) -> bool:
    """Return whether a value is a whole number that is written out, as for the place of an element."""
    return key.is_constant and type(key.value) is int


def is_read(key: Key) -> bool:
    """Return whether the program shows where each rank in a value is read from, rather than a name suggests it."""
    return all(part.args[1] not in ("", UNTIL_KNOWN) for part in parts(key) if part.op == "rank")


def rank_in(key: Key) -> Key | None:
    """Return the rank that a value is, the constants of runs without ranks left aside; the least sure of several."""
    if key.op == "rank":
        return key
    if key.op not in ("if", "one of", "or"):
        return None
    parts = [part for part in key.args[key.op == "if" :] if not part.is_constant]
    found = [rank_in(part) for part in parts]
    ranks = [each for each in found if each]
    if not ranks or len(ranks) < len(parts) or len({each.args[0] for each in ranks}) > 1:
        return None
    read = [each for each in ranks if each.args[1] != UNTIL_KNOWN] or ranks
    return min(read, key=lambda each: bool(each.args[1]))


def entry(mapping: Key, name: str) -> Key | None:
    """Return what a mapping holds under a name, if that is written out."""
    if mapping.op != "mapping":
        return None
    pairs = zip(mapping.args[::2], mapping.args[1::2], strict=True)
    return next((value for key, value in pairs if key.is_constant and key.value == name), None)
