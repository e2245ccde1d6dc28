"""Evaluate the expressions of a program to symbolic values."""

import ast
from collections.abc import Sequence
from typing import Any

from ..nodes import child_nodes
from ..syntax import last_name
from .items import Branch, Called, Item, Noted, Read, Rounds
from .keys import BY_RANK, DIFFERS, LOCAL, OF_BRANCHES, Key
from .library_calls import MASKS, METHODS, OF_FILE, TRANSPARENT
from .library_effects import LibraryEvaluator, is_of_batches, is_received
from .module_api import DDP_API
from .names import CARRIED, Named, Values
from .noted_calls import is_past_wrapper, noted_device, noted_name, owner_of
from .values import Bound, ClassRef, FunctionRef, Instance, Library, Method, Record, Super, Value, is_elements

BUILTINS = {"exit", "quit", "len", "range", "min", "max", "enumerate", "zip", "print", "next", "getattr", "open"}
BUILTINS |= {"hasattr", "isinstance"}
LAUNCH_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}
METHOD_NAMES = {kind: f"_{kind.__name__}" for kind in ast.expr.__subclasses__()}
MOST_ELEMENTS = 12  # of a sequence that is known element by element


def is_mask(index: ast.expr) -> bool:
    """Return whether an index keeps the elements that fulfil a condition."""
    if isinstance(index, ast.UnaryOp):
        return isinstance(index.op, ast.Invert)
    if isinstance(index, ast.BinOp):
        return isinstance(index.op, ast.BitAnd | ast.BitOr) and is_mask(index.left) and is_mask(index.right)
    return isinstance(index, ast.Compare) or (isinstance(index, ast.Call) and last_name(index.func) in MASKS)


def _is_text(key: Key) -> bool:
    return key.is_constant and isinstance(key.value, str)


def _may_be_overridden(method: Bound, called: ast.expr) -> bool:
    """Return whether a method is called on ``self``, and a class below its own in the file has another one."""
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name) or called.value.id != "self":
        return False
    owner = method.owner.obj
    if not isinstance(owner, Instance):
        return False
    return called.attr in owner.cls.module.parsed.overridden.get(owner.cls.node.name, ())


def is_inner(value: Value, wrapper: Value) -> bool:
    """Return whether a value is the model inside of a wrapper: a script that asks for it has a wrapper there."""
    return value.key.op == "attribute" and value.key.args[1] == "module" and value.key.args[0] is wrapper.key


def may_be_other(key: Key) -> bool:
    """Return whether an object is one that the program makes on some way, and on another way one that is not known."""
    if key.op not in ("one of", "if"):
        return False
    arms = key.args if key.op == "one of" else key.args[1:]
    known = any(arm.op == "instance" for arm in arms)
    return known and any(_is_unknown(arm) or may_be_other(arm) for arm in arms)


def _is_unknown(key: Key) -> bool:
    return not key.is_constant and key.op not in ("instance", "one of", "if")


class ExpressionEvaluator(LibraryEvaluator):
    """Evaluation of the expressions in one function."""

    def evaluate(self, node: ast.expr | None) -> Value:
        if node is None:
            return self.constant(None)
        self.budget.spend()
        method = getattr(self, METHOD_NAMES[type(node)], None)
        if method is not None:
            value = method(node)
        else:
            parts = [self.evaluate(child) for child in child_nodes(node) if isinstance(child, ast.expr)]
            value = self.unknown(node, *parts)
        if self.quick:
            return value
        if self.known is not None:
            self.known[node] = value
            return value
        known = self.shared.values.setdefault(node, value.key)
        if known is not value.key:  # the function is called with other arguments as well
            self.shared.values[node] = self.keys.make("one of", known, value.key)
        return value

    def _Constant(self, node: ast.Constant) -> Value:
        return self.constant(node.value)

    def _Name(self, node: ast.Name) -> Value:
        found = self.lookup(node.id)
        if found is not None:
            return found
        if node.id in TRANSPARENT or node.id in BUILTINS:
            return Value(self.keys.make("name", node.id), obj=Library(node.id))
        return self.by_name(node.id) or Value(self.keys.make("name", self.module.path, node.id))

    def _Attribute(self, node: ast.Attribute) -> Value:
        owner = self.evaluate(node.value)
        if "ddp" in owner.facts and "fsdp" not in owner.facts and self._is_of_model(owner, node):
            self.items.append(Read(node.attr, self.site(node), node, owner))
        return self.attribute(owner, node.attr, node)

    def _is_of_model(self, owner: Value, node: ast.Attribute) -> bool:
        """Return whether an attribute is one of the model inside DDP, not of DDP, and nothing has set it on DDP."""
        own = node.attr in DDP_API or node.attr.startswith("_") or f"{id(owner.key)}.{node.attr}" in self.env
        return isinstance(node.ctx, ast.Load) and not own

    def _Subscript(self, node: ast.Subscript) -> Value:
        owner = self.evaluate(node.value)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            if found := self.variable(node.slice.value, owner):
                return found
            stored = self.env.get(f"{id(owner.key)}.{node.slice.value}")
            if stored is not None:
                return stored
            if isinstance(owner.obj, Record) and node.slice.value in owner.obj.fields:
                return owner.obj.fields[node.slice.value]
        index = self.evaluate(node.slice)
        if is_mask(node.slice) or index.key.op == "compare":
            return self.selected(owner, node)
        return self.item(owner, index.key, node)

    def _Slice(self, node: ast.Slice) -> Value:
        parts = [self.evaluate(part) for part in (node.lower, node.upper, node.step)]
        return Value(self.keys.make("slice", *(part.key for part in parts)))

    def _Compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        result: Key | None = None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator)
            single = self.keys.make("compare", type(op).__name__, left.key, self._as_members(right))
            if isinstance(op, ast.In | ast.NotIn) and left.key.is_constant and right.key.spread & LOCAL:
                single = self.unknown(node).key  # data of one rank have the same names on every rank
            elif isinstance(op, ast.In | ast.NotIn) and self._is_launch_variable(left, right):
                single = self.keys.constant(isinstance(op, ast.In))
            elif _is_text(right.key) and left.key is self.keys.true:
                single = self.unknown(node).key  # its name suggests a flag, but it is the name of something
            if isinstance(op, ast.Eq | ast.NotEq) and right.key.is_constant and left.key.spread & LOCAL:
                single = self._chosen_test(left.key, right.key, isinstance(op, ast.Eq)) or single
            if right.key is self.keys.none:
                single = self._none_test(single, left, op, node)
            result = single if result is None else self.keys.make("and", result, single)
            left = right
        assert result is not None
        return Value(result)

    def _chosen_test(self, value: Key, number: Key, equal: bool) -> Key | None:
        """Return the condition under which a branch has chosen a number instead of data; None for other values."""
        if value.op != "if" or value.args[0].spread & LOCAL or number not in value.args[1:]:
            return None
        chosen = value.args[0] if value.args[1] is number else self.keys.make("not", value.args[0])
        return chosen if equal else self.keys.make("not", chosen)

    def _is_launch_variable(self, name: Value, owner: Value) -> bool:
        """Return whether a variable of the environment is one that torchrun sets for every rank."""
        return self.qualified(owner) == "os.environ" and name.key.is_constant and name.key.value in LAUNCH_VARIABLES

    def _none_test(self, test: Key, left: Value, op: ast.cmpop, node: ast.Compare) -> Key:
        if left.obj is not None and isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
            none = self._is_none(left.key)
            return self.keys.make("not", none) if isinstance(op, ast.IsNot | ast.NotEq) else none
        by_branch = left.key.op in OF_BRANCHES and not is_of_batches(left.key)
        if left.key.spread & LOCAL and not test.is_constant and not by_branch:
            return self.unknown(node).key  # a function returns None or not for the same reason on every rank
        return test

    def _is_none(self, key: Key) -> Key:
        """Return the condition under which something that is known to be an object elsewhere is None."""
        if key.op == "if":
            return self.keys.make("if", key.args[0], self._is_none(key.args[1]), self._is_none(key.args[2]))
        return self.keys.constant(key is self.keys.none)

    def _as_members(self, value: Value) -> Key:
        if is_elements(value.obj) and all(each.key.is_constant for each in value.obj):
            return self.keys.constant(tuple(each.key.value for each in value.obj))
        return value.key

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.evaluate(node.values[0])
        for part in node.values[1:]:
            value, items = self.captured(part)
            if items:
                taken = result.key if op == "and" else self.keys.make("not", result.key)
                self.items.append(Branch(taken, self.site(node), items, []))
            facts = result.facts | value.facts
            if op == "or" and not (result.key.spread | value.key.spread) & DIFFERS and value.obj is not None:
                result = Value(value.key, facts, value.obj)  # x or default
            else:
                obj = result.obj if op == "or" else None
                result = Value(self.keys.make(op, result.key, value.key), facts & CARRIED, obj)
        return result

    def captured(self, node: ast.expr) -> tuple[Value, list[Item]]:
        """Evaluate an expression that may not run, with its items kept apart."""
        outside, self.items = self.items, []
        try:
            value = self.evaluate(node)
            return value, self.items
        finally:
            self.items = outside

    def _UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            return Value(self.keys.make("not", value.key))
        if isinstance(node.op, ast.USub) and value.key.is_constant and isinstance(value.key.value, int | float):
            return self.constant(-value.key.value)
        return Value(self.keys.make("unary", type(node.op).__name__, value.key), value.facts & CARRIED)

    def _BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        op = type(node.op).__name__
        if is_elements(left.obj) and is_elements(right.obj) and op == "Add":
            return Value(self.keys.make("binary", op, left.key, right.key), obj=(*left.obj, *right.obj))
        if rank := self.rank_of_node(op, left.key, right.key, node):
            return Value(rank)
        return Value(self.keys.make("binary", op, left.key, right.key), (left.facts | right.facts) & CARRIED)

    def _IfExp(self, node: ast.IfExp) -> Value:
        test = self.evaluate(node.test)
        (then, first), (other, second) = self.captured(node.body), self.captured(node.orelse)
        if test.key.is_constant:
            self.items += first if test.key.value else second
            return then if test.key.value else other
        agreed = self.agreed(test.key)
        if first or second:
            self.items.append(Branch(agreed, self.site(node), first, second))
        return self.joined(agreed, then, other)

    def agreed(self, test: Key) -> Key:
        """Return a condition with files that exist for all ranks or for none, if nothing else in it is of one rank."""
        if not test.spread & LOCAL:
            return test
        known = self.shared.agreed
        if test not in known:
            known[test] = self._agreed(test)
        return known[test]

    def _agreed(self, test: Key) -> Key:
        if test.op == "local":
            return self.keys.make("call", "exists", test.args[-1]) if test.args[0] == OF_FILE else test
        changed = [self.agreed(part) if isinstance(part, Key) else part for part in test.args]
        still = any(isinstance(each, Key) and each.spread & LOCAL for each in changed)
        return test if still or changed == [*test.args] else self.keys.make(test.op, *changed)

    def joined(self, test: Key, then: Value, other: Value) -> Value:
        """Return the value behind a branch."""
        if then is other:
            return then
        if test.spread & BY_RANK and is_received(then.key) != is_received(other.key):
            return then if is_received(then.key) else other  # one rank keeps what it sends, the others receive it
        if is_elements(then.obj) and is_elements(other.obj) and len(then.obj) == len(other.obj):
            parts = tuple(self.joined(test, *pair) for pair in zip(then.obj, other.obj, strict=True))
            key = self.keys.make("sequence", *(part.key for part in parts))
            return Value(key, then.facts | other.facts, parts)
        if isinstance(then.obj, Record) and isinstance(other.obj, Record):
            both = then.obj.fields.keys() & other.obj.fields.keys()
            fields = {name: self.joined(test, then.obj.fields[name], other.obj.fields[name]) for name in both}
            return Value(self.keys.either(test, then.key, other.key), obj=Record(fields))
        obj = then.obj if then.obj == other.obj or other.obj is None else other.obj if then.obj is None else None
        key = self.keys.either(test, then.key, other.key)
        if is_inner(then, other):
            return Value(key, then.facts, obj)
        return Value(key, other.facts if is_inner(other, then) else then.facts | other.facts, obj)

    def _NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.named(node.target.id, self.evaluate(node.value))
        self.env[node.target.id] = value
        return value

    def _Tuple(self, node: ast.Tuple) -> Value:
        return self._sequence(node, node.elts)

    def _List(self, node: ast.List) -> Value:
        return self._sequence(node, node.elts)

    def _Set(self, node: ast.Set) -> Value:
        return self._sequence(node, node.elts)

    def _Dict(self, node: ast.Dict) -> Value:
        names = [self.evaluate(each) for each in node.keys]
        values = [self.evaluate(each) for each in node.values]
        if len(values) > MOST_ELEMENTS or None in node.keys or not all(each.key.is_constant for each in names):
            return self.unknown(node, *names, *values)
        pairs = (each.key for pair in zip(names, values, strict=True) for each in pair)
        facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED
        fields = {name.key.value: value for name, value in zip(names, values, strict=True)}
        return Value(self.keys.make("mapping", *pairs), facts, Record(fields))

    def _sequence(self, node: ast.expr, elements: Sequence[ast.expr]) -> Value:
        values = [self.evaluate(each) for each in elements]
        if len(values) > MOST_ELEMENTS or any(isinstance(each, ast.Starred) for each in elements):
            return self.unknown(node, *values)
        facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED
        key = self.keys.make("sequence", *(value.key for value in values))
        return Value(key, facts, tuple(values))

    def _Starred(self, node: ast.Starred) -> Value:
        return self.evaluate(node.value)

    def _Await(self, node: ast.Await) -> Value:
        return self.evaluate(node.value)

    def _Lambda(self, node: ast.Lambda) -> Value:
        return Value(self.keys.make("lambda", *self.place(node)), obj=FunctionRef(self.module, node, self.scope()))

    def _JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts = [self.evaluate(each.value if isinstance(each, ast.FormattedValue) else each) for each in node.values]
        return Value(self.keys.make("text", *self.place(node), *(part.key for part in parts)))

    def _comprehension(self, node: Any, elements: Sequence[ast.expr]) -> Value:
        before = dict(self.env)
        iterables: list[Value] = []
        outside, self.items = self.items, []
        for clause in node.generators:
            iterable = self.evaluate(clause.iter)
            iterables.append(iterable)
            self.bind(clause.target, self.element(iterable, clause.iter))
            iterables += [self.evaluate(test) for test in clause.ifs]
        values = [self.evaluate(each) for each in elements]
        body, self.items = self.items, outside
        if body:
            count = self.count(iterables[0], node)
            self.items.append(Rounds(count, self.site(node), body, [], free=False, test_led=False))
        self.env.clear()
        self.env.update(before)
        key = self.keys.make("built", len(iterables), *(value.key for value in (*iterables, *values)))
        return Value(key, frozenset[str]().union(*(value.facts for value in values)) & CARRIED)

    def _ListComp(self, node: ast.ListComp) -> Value:
        return self._comprehension(node, [node.elt])

    def _SetComp(self, node: ast.SetComp) -> Value:
        return self._comprehension(node, [node.elt])

    def _GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        return self._comprehension(node, [node.elt])

    def _DictComp(self, node: ast.DictComp) -> Value:
        return self._comprehension(node, [node.key, node.value])

    def _Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and (inherited := self._super()):
            return inherited
        callee = self._callee(node.func)
        values, named = self.arguments(node)
        name = self.qualified(callee)
        if name in ("sys.exit", "os._exit", "exit", "quit"):
            self.exit_program(node)
            return self.unknown(node)
        outcome = self.called(callee, node, values, named)
        if self.no_grad and "unreduced" in outcome.facts:
            outcome = outcome._replace(facts=outcome.facts - {"unreduced"})
        if named_call := noted_name(callee) or noted_device(callee, values, named):
            self.items.append(Noted(named_call, self.site(node), node, owner_of(callee), values, named, outcome))
        return outcome

    def _super(self) -> Value | None:
        function = self.function
        if function is None or function.owner is None or not self.parameters:
            return None
        owner = self.env[self.parameters[0]]
        cls = owner.obj.cls if isinstance(owner.obj, Instance) else function.owner
        return Value(self.keys.make("super", id(cls)), obj=Super(cls, owner, function.node))

    def _callee(self, node: ast.expr) -> Value:
        """Return the function that is called; what its name would suggest as a variable does not count."""
        value = self.evaluate(node)
        if isinstance(node, ast.Name) and value.obj is None and self.lookup(node.id) is None:
            return Value(self.keys.make("name", self.module.path, node.id))
        return value

    def arguments(self, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        values: list[Value] = []
        for arg in node.args:
            value = self.evaluate(arg)
            if isinstance(arg, ast.Starred) and is_elements(value.obj):
                values += value.obj
            else:
                values.append(value)
        return values, {each.arg or "**": self.evaluate(each.value) for each in node.keywords}

    def called(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        obj = callee.obj
        if isinstance(obj, FunctionRef):
            return self.call_function(obj, values, named, self.site(node), node.args)
        if isinstance(obj, Bound):
            result = self.call_function(obj.function, [obj.owner, *values], named, self.site(node), node.args)
            last = self.items[-1] if self.items else None
            held = obj.held and may_be_other(obj.held.key)
            if isinstance(last, Called) and (held or _may_be_overridden(obj, node.func)):
                self.items[-1] = last._replace(perhaps=True)
            return result
        if isinstance(obj, ClassRef):
            return self.instantiate(obj, values, named, self.site(node))
        if isinstance(obj, Instance):
            method = obj.cls.find("__call__") or obj.cls.find("forward")
            if method:
                function = FunctionRef(method[0].module, method[1], method[0].env, method[0])
                result = self.call_function(function, [callee, *values], named, self.site(node), node.args)
                return result._replace(facts=result.facts | {"unreduced"}) if is_past_wrapper(callee) else result
        for role in sorted(callee.facts & METHODS.keys()) if callee.facts else ():
            if effect := METHODS[role].get("__call__"):
                return self.effect(effect, node, values, named, callee)
        if started := self.started(node, values, named):
            return started
        if isinstance(obj, Library):
            return self._library(obj.name, callee, node, values, named)
        if isinstance(obj, Method):
            return self._method(obj, callee, node, values, named)
        if last_name(node.func) == "init_device_mesh" and (mesh := self.mesh(values, named)):
            return mesh
        known = self.by_name(last_name(node.func), called=True) if not values and not named else None
        return known or self._opaque(callee, node, values, named)
