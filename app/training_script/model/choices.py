"""Values that a condition chooses: one object on some ranks or ways, another on the others."""

import ast
from collections.abc import Callable, Iterator

from .collective_effects import is_received
from .distinct_names import is_with_member
from .followed import is_followed
from .function_steps import Branch, Item
from .keys import BY_RANK, LOCAL, OF_BRANCHES, Key
from .library_calls import OF_FILE
from .names import MOST_NESTED
from .noted_calls import WRAPPERS
from .object_methods import MethodEvaluator
from .sequences import Site
from .values import Either, Library, Method, Record, Value, is_elements


def _depth(obj: object) -> int:
    return 1 + max(_depth(obj.then.obj), _depth(obj.other.obj)) if isinstance(obj, Either) else 0


def _is_of_wrapper(first: object, second: object) -> bool:
    """Return whether one of two functions is a method of a wrapper of the model, such as ``no_sync``."""
    methods = [each for each in (first, second) if isinstance(each, Method)]
    callables = all(isinstance(each, (Method, Library)) for each in (first, second))
    return callables and any(each.name == "no_sync" or WRAPPERS & each.owner.facts for each in methods)


def truth_of(test: Key, known: Key) -> bool | None:
    """Return whether a condition holds where another one does; None if that does not follow."""
    pending = [(known, True)]
    while pending:
        key, truth = pending.pop()
        if key is test:
            return truth
        if key.op == "not":
            pending.append((key.args[0], not truth))
        elif key.op == ("and" if truth else "or"):
            pending += [(part, truth) for part in key.args]
    return None


class ChoiceEvaluator(MethodEvaluator):
    """Branches in expressions of one function, and the values behind branches."""

    def chosen(self, choice: Either, node: ast.AST, use: Callable[[Value], Value]) -> Value:
        """Return what ``use`` gives for the object that is chosen; its steps are on the sides of a branch."""
        outside, found = self.items, list[tuple[Value, list[Item]]]()
        for side in (choice.then, choice.other):
            self.items = []
            found.append((use(side), self.items))
        self.items = outside
        (then, first), (other, second) = found
        if first or second:
            self.items.append(Branch(choice.test, choice.site or self.site(node), first, second))
        return self.joined(choice.test, then, other, choice.site)

    def captured(self, node: ast.expr, test: Key) -> tuple[Value, list[Item]]:
        """Evaluate an expression that runs only under a condition, with its items kept apart."""
        outside, self.items = self.items, []
        self.path.append(self.keys.make("and", self.path[-1], test))
        try:
            value = self.evaluate(node)
            return value, self.items
        finally:
            self.items = outside
            self.path.pop()

    def is_inner(self, value: Value, wrapper: Value) -> bool:
        """Return whether a value is the model inside of a wrapper: a script that asks for it has a wrapper there."""
        if value.key.op != "attribute" or value.key.args[1] != "module":
            return False
        pending = [wrapper]
        while pending:
            each = pending.pop()
            if value.key.args[0] is each.key:
                return True
            pending += self.shared.sides.get(each.key, ())
        return False

    def in_branch(self, value: Value) -> Value:
        """Return what a value is under the conditions around it, if these have chosen it."""
        while sides := self.shared.sides.get(value.key):
            truth = truth_of(value.key.args[0], self.path[-1])
            if truth is None:
                break
            value = sides[0 if truth else 1]
        return value

    def agreed(self, test: Key) -> Key:
        """Return a condition with files that exist for all ranks or for none, if nothing else in it is of one rank."""
        if not test.differs_by & LOCAL:
            return test
        known = self.shared.agreed
        if test not in known:
            known[test] = self._agreed(test)
        return known[test]

    def _agreed(self, test: Key) -> Key:
        if test.op == "local":
            return self.keys.make("call", "exists", test.args[-1]) if test.args[0] == OF_FILE else test
        changed = [self.agreed(part) if isinstance(part, Key) else part for part in test.args]
        still = any(isinstance(each, Key) and each.differs_by & LOCAL for each in changed)
        return test if still or changed == [*test.args] else self.keys.make(test.op, *changed)

    def joined(self, test: Key, then: Value, other: Value, site: Site | None = None) -> Value:
        """Return the value behind a branch. ``site``: its place."""
        if then is other:
            return then
        if test.differs_by & BY_RANK and is_received(then.key) != is_received(other.key):
            return then if is_received(then.key) else other  # one rank keeps what it sends, the others receive it
        if is_with_member(test, then.key, other.key):
            return then
        if is_elements(then.obj) and is_elements(other.obj) and len(then.obj) == len(other.obj):
            parts = tuple(self.joined(test, *pair) for pair in zip(then.obj, other.obj, strict=True))
            key = self.keys.make("sequence", *(part.key for part in parts))
            return Value(key, then.facts | other.facts, parts)
        if isinstance(then.obj, Record) and isinstance(other.obj, Record):
            both = then.obj.fields.keys() & other.obj.fields.keys()
            fields = {name: self.joined(test, then.obj.fields[name], other.obj.fields[name]) for name in both}
            return Value(self.keys.either(test, then.key, other.key), obj=Record(fields))
        obj = self._joined_object(test, then, other, site)
        key = self.keys.either(test, then.key, other.key)
        if key.op == "if" and key.args[0] is test and then.facts != other.facts:
            self.shared.sides[key] = then, other
        if self.is_inner(then, other):
            return Value(key, then.facts, obj)
        return Value(key, other.facts if self.is_inner(other, then) else then.facts | other.facts, obj)

    def _joined_object(self, test: Key, then: Value, other: Value, site: Site | None) -> object:
        first, second = then.obj, other.obj
        if first == second:
            return first
        if first is None or second is None:
            known, unknown = (second, then) if first is None else (first, other)
            return None if is_elements(known) and unknown.key is not self.keys.none else known
        if isinstance(first, Method) and isinstance(second, Method) and first.name == second.name:
            return Method(self.joined(test, first.owner, second.owner, site), first.name)
        known = (is_followed(first) and is_followed(second)) or _is_of_wrapper(first, second)
        if not known or max(_depth(first), _depth(second)) >= MOST_NESTED:
            return None
        return Either(test, then, other, site)


def sides_of(key: Key) -> Iterator[Key]:
    """Yield what a value may be by the branches that were taken before."""
    pending, seen = [key], set[int]()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen.add(id(each))
            inner = [arg for arg in each.args if isinstance(arg, Key)] if each.op in OF_BRANCHES else []
            pending += inner[1:] if each.op == "if" else inner
            if not inner:
                yield each
