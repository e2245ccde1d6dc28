"""Evaluate the expressions of a program to symbolic values, and note the calls that other ranks have to make too."""

import ast
import builtins
import re
import sys
from collections.abc import Sequence
from typing import Any

from ...launchers.rank_variables import LOCAL_WORLD_SIZES, RANK_SCOPES, WORLD_SIZES
from .. import rank_names
from ..syntax import last_name
from .items import Branch, Item, Rounds
from .keys import BY_RANK, LOCAL, Key, Keys
from .library_calls import (
    FIRST_ATTRIBUTES,
    FUNCTIONS,
    LOCAL_RESULTS,
    METHODS,
    RANDOM,
    RANK_ATTRIBUTES,
    TRANSPARENT,
    TRANSPARENT_METHODS,
    Effect,
)
from .program import (
    NO_FACTS,
    Bound,
    ClassRef,
    FunctionRef,
    Instance,
    Library,
    Method,
    Module,
    Program,
    Value,
    is_elements,
)
from .sequences import Event, Site

KNOWN_MODULES = {*sys.stdlib_module_names, "torch", "numpy", "tqdm", "wandb", "yaml", "tensorboardX"}
KNOWN_METHODS = re.compile(
    r"add_argument|add_scalar|append|close|copy|cpu|critical|cuda|debug|detach|error|eval|exception|extend|float|flush"
    r"|format|get|info|int|items?|join|keys|log|numpy|open|pop|print|put|read|split|startswith|strip|to|values|warn(?:ing)?"
    r"|write"
)
CARRIED = frozenset({"graph"})  # facts that a computed value keeps
MOST_ELEMENTS = 12  # of a sequence that is known element by element
# Objects whose attribute ``rank`` is this process's rank.
OWNERS = {"args", "opt", "opts", "options", "cfg", "config", "conf", "self", "cls", "hparams", "params", "flags", "ctx"}
OWNERS |= {
    "state",
    "env",
    "dist",
    "comm",
    "trainer",
    "accelerator",
    "fabric",
    "strategy",
    "dist_args",
    "settings",
    "hvd",
}
Values = list[Value]
Named = dict[str, Value]


class ExpressionEvaluator:
    """Evaluation of expressions in one function."""

    def __init__(
        self, keys: Keys, program: Program, module: Module, env: dict[str, Value], outer: dict[str, Value]
    ) -> None:
        self.keys, self.program, self.module = keys, program, module
        self.env, self.outer = env, outer
        self.items: list[Item] = []
        self.seeded = False
        self.no_sync = False
        self.unknown_calls = 0

    # ---- what the statements provide

    def call_function(self, function: FunctionRef, values: Values, named: Named, site: Site) -> Value:
        raise NotImplementedError

    def instantiate(self, cls: ClassRef, values: Values, named: Named, site: Site) -> Value:
        raise NotImplementedError

    def attribute_of_instance(self, instance: Instance, name: str) -> Value | None:
        raise NotImplementedError

    def exit_program(self, call: ast.Call) -> None:
        raise NotImplementedError

    def module_value(self, module: Module, name: str) -> Value | None:
        raise NotImplementedError

    # ---- places and plain values

    def site(self, node: ast.AST) -> Site:
        line = getattr(node, "lineno", 1)
        return Site(
            self.module.path, line, getattr(node, "col_offset", 0) + 1, getattr(node, "end_lineno", line) or line
        )

    def unknown(self, node: ast.AST, *parts: Value, facts: frozenset[str] = NO_FACTS) -> Value:
        """Return a value of which only the dependence on data of one rank is known."""
        spread = 0
        for part in parts:
            spread |= part.key.spread & LOCAL
            facts |= part.facts & CARRIED
        return Value(self.keys.make("at", *self.site(node)[:3], spread=spread), facts)

    def constant(self, value: object) -> Value:
        return Value(self.keys.constant(value))

    def by_name(self, name: str, called: bool = False) -> Value | None:
        """Return what a name suggests: a rank, a first process, a size, a flag of distributed runs."""
        if kind := rank_names.rank_kind(name) or (rank_names.getter_kind(name) if called else None):
            return Value(self.keys.rank(kind))
        if first := rank_names.first_process(name, called):
            return Value(self.keys.is_first(first))
        if rank_names.is_last(name):
            last = self.keys.make("binary", "Sub", self.keys.make("world", "global"), self.keys.constant(1))
            return Value(self.keys.make("compare", "Eq", self.keys.rank("global"), last))
        if size := rank_names.world_size(name):
            return Value(self.keys.make("world", size))
        return self.constant(True) if rank_names.is_distributed_flag(name) else None

    def named(self, name: str, value: Value) -> Value:
        """Return a value that gets a name: what it is, or what the name says if that is not known."""
        if value.obj is not None or value.facts or value.key.spread or value.key.op not in ("at", "constant"):
            return value
        if value.key.is_constant and not (value.key.value in (0, -1, None) and rank_names.rank_kind(name)):
            return value
        return self.by_name(name) or value

    def lookup(self, name: str) -> Value | None:
        for env in (self.env, self.outer, self.module.env):
            if name in env:
                return env[name]
        return None if self.module.evaluated else self.module_value(self.module, name)

    def qualified(self, value: Value) -> str:
        return value.obj.name if isinstance(value.obj, Library) else ""

    # ---- expressions

    def evaluate(self, node: ast.expr | None) -> Value:
        if node is None:
            return self.constant(None)
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is not None:
            return method(node)
        parts = [self.evaluate(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return self.unknown(node, *parts)

    def _Constant(self, node: ast.Constant) -> Value:
        return self.constant(node.value)

    def _Name(self, node: ast.Name) -> Value:
        found = self.lookup(node.id)
        if found is not None:
            return found
        if node.id in TRANSPARENT or node.id in ("exit", "quit", "len", "range", "enumerate", "zip", "print", "next"):
            return Value(self.keys.make("name", node.id), obj=Library(node.id))
        return self.by_name(node.id) or Value(self.keys.make("name", self.module.path, node.id))

    def _Attribute(self, node: ast.Attribute) -> Value:
        owner = self.evaluate(node.value)
        return self.attribute(owner, node.attr, node)

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        obj = owner.obj
        if isinstance(obj, Library):
            return Value(self.keys.make("library", f"{obj.name}.{name}"), obj=Library(f"{obj.name}.{name}"))
        if isinstance(obj, Module):
            return self.module_value(obj, name) or self.unknown(node)
        if isinstance(obj, Instance) and (found := self.attribute_of_instance(obj, name)) is not None:
            return found
        if isinstance(obj, ClassRef) and (method := obj.find(name)):
            return Value(
                self.keys.make("method", id(method[1])),
                obj=FunctionRef(method[0].module, method[1], method[0].env, method[0]),
            )
        stored = self.env.get(f"{id(owner.key)}.{name}")
        if stored is not None:
            return stored
        if owner.facts & {"accelerator", "fabric", "trainer"}:
            if name in RANK_ATTRIBUTES:
                return Value(self.keys.rank(RANK_ATTRIBUTES[name]))
            if name in FIRST_ATTRIBUTES:
                return Value(self.keys.is_first(FIRST_ATTRIBUTES[name]))
        if name == "module" and owner.facts & {"ddp", "engine"}:
            return Value(self.keys.make("attribute", owner.key, name))
        if not owner.facts and not is_elements(obj):
            kind = rank_names.rank_kind(name)
            if kind and (name != "rank" or self._owns_rank(node)):
                return Value(self.keys.rank(kind))
            if not kind and (suggested := self.by_name(name)):
                return Value(suggested.key, obj=Method(owner, name))
        facts = owner.facts & CARRIED
        return Value(self.keys.make("attribute", owner.key, name), facts, Method(owner, name))

    def _owns_rank(self, node: ast.AST) -> bool:
        owner = last_name(node.value).lower().lstrip("_") if isinstance(node, ast.Attribute) else ""
        return owner in OWNERS or owner.endswith(("args", "config", "cfg", "opts", "info"))

    def _Subscript(self, node: ast.Subscript) -> Value:
        owner = self.evaluate(node.value)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            if found := self.variable(node.slice.value, owner):
                return found
            stored = self.env.get(f"{id(owner.key)}.{node.slice.value}")
            if stored is not None:
                return stored
        index = self.evaluate(node.slice)
        place = index.key.value if index.key.is_constant else None
        if is_elements(owner.obj) and isinstance(place, int) and -len(owner.obj) <= place < len(owner.obj):
            return owner.obj[place]
        return Value(self.keys.make("item", owner.key, index.key), owner.facts & CARRIED)

    def variable(self, name: str, owner: Value) -> Value | None:
        """Return the rank or size in ``os.environ[name]`` or ``cfg[name]``."""
        if name in RANK_SCOPES and (self.qualified(owner).endswith("environ") or name.isupper()):
            return Value(self.keys.rank(RANK_SCOPES[name]))
        if name in WORLD_SIZES or name in LOCAL_WORLD_SIZES:
            return Value(self.keys.make("world", "local" if name in LOCAL_WORLD_SIZES else "global"))
        if not owner.facts and owner.obj is None and rank_names.rank_kind(name):
            return Value(self.keys.rank(rank_names.rank_kind(name) or "global"))
        return None

    def _Slice(self, node: ast.Slice) -> Value:
        parts = [self.evaluate(part) for part in (node.lower, node.upper, node.step)]
        return Value(self.keys.make("slice", *(part.key for part in parts)))

    def _Compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        result: Key | None = None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator)
            single = self.keys.make("compare", type(op).__name__, left.key, self._as_members(right))
            if (
                left.obj is not None
                and isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
                and right.key is self.keys.none
            ):
                single = self.keys.constant(isinstance(op, ast.IsNot | ast.NotEq))
            result = single if result is None else self.keys.make("and", result, single)
            left = right
        assert result is not None
        return Value(result)

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
            if op == "or" and not (result.key.spread or value.key.spread) and value.obj is not None:
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
        return Value(self.keys.make("binary", op, left.key, right.key), (left.facts | right.facts) & CARRIED)

    def _IfExp(self, node: ast.IfExp) -> Value:
        test = self.evaluate(node.test)
        (then, first), (other, second) = self.captured(node.body), self.captured(node.orelse)
        if test.key.is_constant:
            self.items += first if test.key.value else second
            return then if test.key.value else other
        if first or second:
            self.items.append(Branch(test.key, self.site(node), first, second))
        return self.joined(test.key, then, other)

    def joined(self, test: Key, then: Value, other: Value) -> Value:
        """Return the value behind a branch."""
        if then is other:
            return then
        obj = then.obj if then.obj == other.obj or other.obj is None else other.obj if then.obj is None else None
        return Value(self.keys.either(test, then.key, other.key), then.facts | other.facts, obj)

    def _NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.named(node.target.id, self.evaluate(node.value))
        self.env[node.target.id] = value
        return value

    def _Tuple(self, node: ast.Tuple) -> Value:
        return self._sequence(node, node.elts)

    def _List(self, node: ast.List) -> Value:
        return self._sequence(node, node.elts)

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
        return Value(self.keys.make("lambda", *self.site(node)[:3]), obj=FunctionRef(self.module, node, self.scope()))

    def scope(self) -> dict[str, Value]:
        """Return the names that a function defined here can see."""
        return {**self.outer, **self.env} if self.env is not self.module.env else {}

    def _JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts = [self.evaluate(each.value) for each in node.values if isinstance(each, ast.FormattedValue)]
        return Value(self.keys.make("text", *self.site(node)[:3], *(part.key for part in parts)))

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
        key = self.keys.make("built", *(value.key for value in (*iterables, *values)))
        return Value(key, frozenset[str]().union(*(value.facts for value in values)) & CARRIED)

    def _ListComp(self, node: ast.ListComp) -> Value:
        return self._comprehension(node, [node.elt])

    def _SetComp(self, node: ast.SetComp) -> Value:
        return self._comprehension(node, [node.elt])

    def _GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        return self._comprehension(node, [node.elt])

    def _DictComp(self, node: ast.DictComp) -> Value:
        return self._comprehension(node, [node.key, node.value])

    # ---- loops

    def bind(self, target: ast.expr, value: Value) -> None:
        raise NotImplementedError

    def count(self, iterable: Value, node: ast.AST) -> Key:
        """Return what decides the number of rounds over an iterable."""
        if is_elements(iterable.obj) and iterable.key.op == "sequence":
            return self.keys.constant(len(iterable.obj))
        return self.keys.make("length", iterable.key)

    def element(self, iterable: Value, node: ast.AST) -> Value:
        """Return what a loop over an iterable gets in a round."""
        key = iterable.key
        if "loader" in iterable.facts or is_loader_by_name(node):
            return Value(self.keys.local("a batch", *self.site(node)[:3]))
        if key.op == "enumerate":
            number = Value(self.keys.make("number", *self.site(node)[:3], spread=key.spread & BY_RANK))
            inner = iterable.obj[0] if is_elements(iterable.obj) else Value(key)
            element = self.element(inner, node.args[0] if isinstance(node, ast.Call) and node.args else node)
            return Value(self.keys.make("sequence", number.key, element.key), obj=(number, element))
        if key.op == "zip" and is_elements(iterable.obj):
            sources = (
                node.args
                if isinstance(node, ast.Call) and len(node.args) == len(iterable.obj)
                else [node] * len(iterable.obj)
            )
            parts = tuple(self.element(part, source) for part, source in zip(iterable.obj, sources, strict=True))
            return Value(self.keys.make("sequence", *(part.key for part in parts)), obj=parts)
        if key.op == "range":
            return Value(self.keys.make("number", *self.site(node)[:3], spread=key.spread))
        return Value(self.keys.make("element", key, *self.site(node)[:3]), iterable.facts & CARRIED)

    # ---- calls

    def _Call(self, node: ast.Call) -> Value:
        callee = self.evaluate(node.func)
        values, named = self.arguments(node)
        name = self.qualified(callee)
        if name in ("sys.exit", "os._exit", "exit", "quit"):
            self.exit_program(node)
            return self.unknown(node)
        return self.called(callee, node, values, named)

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
        obj, site = callee.obj, self.site(node)
        if isinstance(obj, FunctionRef):
            return self.call_function(obj, values, named, site)
        if isinstance(obj, Bound):
            return self.call_function(obj.function, [obj.owner, *values], named, site)
        if isinstance(obj, ClassRef):
            return self.instantiate(obj, values, named, site)
        if isinstance(obj, Instance):
            method = obj.cls.find("__call__") or obj.cls.find("forward")
            if method:
                function = FunctionRef(method[0].module, method[1], method[0].env, method[0])
                return self.call_function(function, [callee, *values], named, site)
        for role in sorted(callee.facts & METHODS.keys()):
            if effect := METHODS[role].get("__call__"):
                return self.effect(effect, node, values, named, callee)
        if isinstance(obj, Library):
            return self._library(obj.name, callee, node, values, named)
        if isinstance(obj, Method):
            return self._method(obj, callee, node, values, named)
        known = self.by_name(last_name(node.func), called=True) if not values and not named else None
        return known or self._opaque(callee, node, values, named)

    def _opaque(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        """Return the result of a call that cannot be followed: the rank in its arguments is not in the result."""
        if not self._is_harmless(callee, node):
            self.unknown_calls += 1
        return self.unknown(node, callee, *values, *named.values())

    def _is_harmless(self, callee: Value, node: ast.Call) -> bool:
        """Return whether a call surely makes no collective."""
        if name := self.qualified(callee):
            return name.partition(".")[0] in KNOWN_MODULES or ("." not in name and name in dir(builtins))
        if isinstance(node.func, ast.Name):
            return node.func.id in dir(builtins)
        return isinstance(node.func, ast.Attribute) and bool(KNOWN_METHODS.fullmatch(node.func.attr))

    def _computed(self, name: str, values: list[Value], facts: frozenset[str] = NO_FACTS) -> Value:
        carried = frozenset[str]().union(*(value.facts for value in values)) & CARRIED if values else NO_FACTS
        return Value(self.keys.make("call", name, *(value.key for value in values)), facts | carried)

    def _library(self, name: str, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        last = name.rpartition(".")[2]
        if name in FUNCTIONS:
            return self.effect(FUNCTIONS[name], node, values, named, None)
        if name in ("torch.distributed.get_rank", "horovod.torch.rank", "mpi4py.MPI.COMM_WORLD.Get_rank"):
            group = named.get("group") or (values[0] if values else None)
            return Value(self.keys.rank("global" if group is None or group.key is self.keys.none else "group"))
        if name in ("os.getenv", "os.environ.get") and values and values[0].key.is_constant:
            variable = values[0].key.value
            found = (
                self.variable(variable, Value(callee.key, obj=Library("os.environ")))
                if isinstance(variable, str)
                else None
            )
            return found or self.unknown(node)
        if name == "deepspeed.initialize":
            engine = Value(self.keys.make("at", *self.site(node)[:3]), frozenset({"engine"}))
            rest = [self.unknown(node) for _ in range(3)]
            return Value(engine.key, obj=(engine, *rest))
        if name in LOCAL_RESULTS:
            if LOCAL_RESULTS[name] == RANDOM and self.seeded:
                return self.unknown(node)
            return Value(self.keys.local(LOCAL_RESULTS[name], *self.site(node)[:3]))
        if name in ("os.path.exists", "os.path.isfile", "os.path.isdir") and values:
            return self._computed(name, values)
        if name in TRANSPARENT and values:
            return values[0]
        if name in ("len", "range", "min", "max", "sum", "divmod", "pow"):
            if name == "len" and values and is_elements(values[0].obj):
                return self.constant(len(values[0].obj))
            return Value(self.keys.make("length" if name == "len" else name, *(value.key for value in values)))
        if name == "enumerate" and values:
            return Value(self.keys.make("enumerate", values[0].key), obj=(values[0],))
        if name == "next" and values:
            return self.element(values[0], node.args[0])
        if name == "zip" and values:
            return Value(self.keys.make("zip", *(value.key for value in values)), obj=tuple(values))
        if name.startswith("horovod.") and last in ("local_rank", "rank"):
            return Value(self.keys.rank("local" if last == "local_rank" else "global"))
        if last == "join" and isinstance(callee.obj, Library):
            return self._computed(name, values)
        if not name.startswith(("torch.", "numpy.", "math.")) or name.startswith("torch.distributed"):
            known = self.by_name(last, called=True) if not values and not named else None
            if known:
                return known
        if name.startswith(("torch.cuda.", "torch.distributed.")) and rank_names.is_distributed_flag(last):
            return self.constant(True)
        if name.startswith("torch."):
            return self._computed(name, list(values)) if values else self.unknown(node)
        return self._opaque(callee, node, values, named)

    def _method(self, method: Method, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        owner, name = method.owner, method.name
        for role in sorted(owner.facts & METHODS.keys()):
            if effect := METHODS[role].get(name):
                if name == "backward" and role == "graph" and self.no_sync:
                    return self.constant(None)
                return self.effect(effect, node, values, named, owner)
        if name in ("exists", "is_file", "is_dir") and not values:
            return self._computed(name, [owner])
        if name in TRANSPARENT_METHODS:
            return Value(owner.key, owner.facts)
        if name == "get" and values and isinstance(values[0].key.args[0], str) and values[0].key.is_constant:
            return self.variable(values[0].key.args[0], owner) or self.unknown(node, owner)
        if name in ("add_", "mul_", "div_", "sub_", "append", "extend"):
            self.rebind(node.func.value if isinstance(node.func, ast.Attribute) else None, owner, values)
            return owner
        if not values and not named and name != "rank" and (known := self.by_name(name, called=True)):
            return known
        if owner.facts & {"prepared"}:
            return self.unknown(node, owner, *values)
        return self._opaque(owner, node, values, named)

    def rebind(self, target: ast.expr | None, owner: Value, values: list[Value]) -> None:
        """A value changed in place depends on what was added to it."""
        if isinstance(target, ast.Name) and target.id in self.env and values:
            key = self.keys.make("changed", owner.key, *(value.key for value in values))
            facts = owner.facts.union(*(value.facts & CARRIED for value in values))
            self.env[target.id] = Value(key, facts)

    def effect(self, effect: Effect, node: ast.Call, values: Values, named: Named, owner: Value | None) -> Value:
        """Note the event of a library call and return its result."""
        site = self.site(node)
        if effect.event and self._in_all_ranks(effect, values, named):
            self.items.append(Event(effect.event, site, effect.implied, effect.sure))
        if effect.fills is not None and effect.fills < len(node.args):
            self.fill(node.args[effect.fills])
        if "loader" in effect.result:
            return self._loader(node, values, named)
        if "fsdp" in effect.result and effect.event and node.args and last_name(node.func) == "fully_shard":
            target = node.args[0]
            if isinstance(target, ast.Name) and target.id in self.env:
                self.env[target.id] = Value(self.env[target.id].key, frozenset({"fsdp"}))
        if effect.drops and values:
            return Value(values[0].key)
        if "prepared" in effect.result:
            prepared = [
                Value(self.keys.make("prepared", value.key), value.facts - {"loader"} | {"prepared"})
                for value in values
            ]
            if len(prepared) == 1:
                return prepared[0]
            return Value(self.keys.make("sequence", *(each.key for each in prepared)), obj=tuple(prepared))
        if effect.same or effect.group is not None:
            return Value(self.keys.make("at", *site[:3]), effect.result | self._membership(effect, values, named))
        return self.unknown(node, *values, *named.values(), facts=effect.result)

    def _membership(self, effect: Effect, values: Values, named: Named) -> frozenset[str]:
        """Return whether a new group has only some of the ranks as members."""
        if "group" not in effect.result:
            return NO_FACTS
        ranks = named.get("ranks") or (values[0] if values else None)
        everyone = (
            ranks is None
            or ranks.key is self.keys.none
            or (ranks.key.op == "range" and ranks.key.args[-1].op == "world")
        )
        return NO_FACTS if everyone else frozenset({"members"})

    def _in_all_ranks(self, effect: Effect, values: Values, named: Named) -> bool:
        """Return whether the call is one of all ranks: only members have to enter a collective of another group."""
        if effect.group is None:
            return True
        group = named.get("group") or (values[effect.group] if effect.group < len(values) else None)
        if group is None or group.key is self.keys.none or ("group" in group.facts and "members" not in group.facts):
            return True
        return self.qualified(group).endswith(("group.WORLD", "GroupMember.WORLD"))

    def fill(self, target: ast.expr) -> None:
        """After a collective its result is the same on every rank."""
        if isinstance(target, ast.Subscript):
            target = target.value
        value = Value(self.keys.make("at", *self.site(target)[:3]))
        match target:
            case ast.Name(id=name):
                self.env[name] = value
            case ast.Attribute(value=inner, attr=name):
                owner = self.evaluate(inner)
                if isinstance(owner.obj, Instance):
                    owner.obj.cls.attributes[name] = value
                self.env[f"{id(owner.key)}.{name}"] = value

    def _loader(self, node: ast.Call, values: Values, named: Named) -> Value:
        sampler = named.get("sampler") or named.get("batch_sampler")
        key = self.keys.make("loader", *self.site(node)[:3])
        if not (sampler and "sampler" in sampler.facts) and (
            dataset := named.get("dataset") or (values[0] if values else None)
        ):
            key = self.keys.make("loader", *self.site(node)[:3], dataset.key)
        return Value(key, frozenset({"loader"}))


def is_loader_by_name(node: ast.AST) -> bool:
    """Return whether an iterable is a loader by its name."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("tqdm", "enumerate", "iter") and node.args:
        return last_name(node.func) != "enumerate" and is_loader_by_name(node.args[0])
    return (
        last_name(node).lower().endswith(("loader", "dataloader"))
        if isinstance(node, ast.Name | ast.Attribute)
        else False
    )
