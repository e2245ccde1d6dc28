"""Evaluate objects of the program's classes: how they are made, their attributes and their methods."""

import ast
from abc import ABC, abstractmethod

from msgspec.structs import replace

from ..syntax import last_name
from .branches import BranchEvaluator
from .budget import Budget
from .definitions import is_harmless, is_static
from .evaluator_state import OUTSIDE, Within
from .function_steps import Called, Summary
from .keys import DIFFERS, LOCAL
from .lengths import number
from .members import PAIR
from .program import Program
from .sequences import Site
from .shared_state import Shared
from .values import Bound, ClassRef, FunctionRef, Instance, Module, Value


class SharedFunctions(Shared, ABC):
    """State of the evaluators of all functions, and the functions that were evaluated."""

    def __init__(self, program: Program, text: str, budget: Budget) -> None:
        super().__init__(program, text, budget)
        self.evaluated: dict[ast.AST, FunctionRef] = {}
        self.results: dict[int, Value] = {}  # by the identity of the summary

    @abstractmethod
    def prepare(self, cls: ClassRef) -> None:
        """Evaluate the constructor of a class, so that the attributes of its objects are known."""

    @abstractmethod
    def summary(
        self,
        function: FunctionRef,
        values: list[Value],
        named: dict[str, Value],
        *,
        called: bool = True,
        within: Within = OUTSIDE,
    ) -> Summary:
        """Return what a function does with such arguments; ``called``: they are all that a call passes."""


class ObjectEvaluator(BranchEvaluator):
    """Evaluation of the objects in one function."""

    def __init__(
        self,
        whole: SharedFunctions,
        module: Module,
        env: dict[str, Value],
        outer: dict[str, Value],
        function: FunctionRef | None,
    ) -> None:
        super().__init__(whole, module, env, outer)
        self.whole, self.function = whole, function

    def instantiate(self, cls: ClassRef, values: list[Value], named: dict[str, Value], site: Site) -> Value:
        instance = Value(self.keys.make("instance", id(cls)), obj=Instance(cls))
        self.shared.classes[instance.key] = cls
        cls.prepared = True
        cls.is_made_often |= cls.made_at.setdefault(self.function and self.function.node, site) != site
        if found := cls.find("__init__"):
            summary = self.whole.summary(
                FunctionRef(found[0].module, found[1], found[0].env, cls),
                [instance, *values],
                named,
                called="**" not in named,
            )
            self.take_attributes(summary, None)
            self.items.append(Called(summary, site))
            stored = summary.stored
        else:
            given = (*zip(cls.fields, values, strict=False), *named.items())
            stored = {name: self.named(name, value) for name, value in given if name in cls.fields}
            for name, value in stored.items():
                self._store(instance, name, value)
            if finish := cls.find("__post_init__"):
                function = FunctionRef(finish[0].module, finish[1], finish[0].env, cls)
                summary = self.whole.summary(function, [instance], {})
                self.take_attributes(summary, None)
                self.items.append(Called(summary, site))
                stored |= summary.stored
        if sized := cls.find("__len__"):
            keys = (each.key for each in (*values, *named.values()))
            instance = replace(instance, key=self.keys.make("instance", id(cls), *map(id, keys)))
            self.shared.classes[instance.key] = cls
            self.shared.made[instance.key] = stored
            self.keys.sizes[instance.key] = self.length_of(instance, sized[1]).key
        if any(name.endswith(("Trainer", "SFTTrainer")) for name in cls.library_bases()):
            return replace(instance, facts=frozenset({"trainer"}))
        return instance

    def length_of(self, held: Value, node: ast.AST) -> Value:
        """Return the length of an object of the program, as its class says if that is a number or data of one rank."""
        plain = Value(self.keys.make("length", held.key))
        found = held.obj.cls.find("__len__") if isinstance(held.obj, Instance) else None
        if found is None:
            return plain
        function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
        given = self.call_function(function, [held], {}, self.site(node))
        if own := self._own_length(held, function):
            given = own
        of_file = given.key.op == "length" and given.key.args[0] in self.shared.contents
        known = number(given.key, PAIR[0]) is not None or of_file
        return given if known or given.key.differs_by & DIFFERS else plain

    def _own_length(self, held: Value, function: FunctionRef) -> Value | None:
        """Return the length of an object by the attributes that it was made with; other objects may have others."""
        made, body = self.shared.made.get(held.key), getattr(function.node, "body", [])
        if not made or not isinstance(body[-1], ast.Return) or not isinstance(held.obj, Instance):
            return None
        cls = held.obj.cls
        of_all, cls.attributes = cls.attributes, cls.attributes | made
        around = type(self)(self.whole, function.module, {}, function.env, function)
        around.env[function.node.args.args[0].arg], around.quick = held, True
        try:
            return around.evaluate(body[-1].value)
        finally:
            cls.attributes = of_all

    def attribute_of_instance(self, instance: Instance, name: str) -> Value | None:
        cls = instance.cls
        if found := cls.find(name):
            owner = Value(self.keys.make("instance", id(cls)), obj=instance)
            function = self.method_of(found[0], found[1])
            decorators = found[1].decorator_list
            if decorators and any(last_name(each) in ("property", "cached_property") for each in decorators):
                return self.call_function(function, [owner], {}, self.site(found[1]))
            return Value(
                self.keys.make("bound", id(found[1])),
                obj=Bound(function, owner) if not is_static(found[1]) else function,
            )
        self.whole.prepare(cls)
        for each in cls.ancestry():
            if name in each.attributes:
                value = each.attributes[name]
                self.reads.setdefault((each, name), value.key.differs_by)
                of_some = bool(value.key.differs_by & LOCAL) and cls.is_made_often  # another object may have got it
                is_open = value.key.is_constant or of_some
                if not is_open or not any(base.is_set_later(name) for base in cls.ancestry()):
                    return value
                held = Value(self.keys.make("held", id(cls), name))
                if of_some:
                    return replace(held, facts=value.facts, obj=value.obj)
                return (None if value.key is self.keys.none else self.by_name(name)) or held
        return self._made_by_factory(cls, name)

    def _made_by_factory(self, cls: ClassRef, name: str) -> Value | None:
        """Return what the constructor of a dataclass, or of a model of pydantic, gives an attribute."""
        found = cls.factory(name)
        if found is None:
            return None
        module, node = found
        around = type(self)(self.whole, module, module.env, {}, None)
        factory = around.evaluate(node)
        if not isinstance(factory.obj, FunctionRef):
            return None
        cls.attributes[name] = self.named(name, around.call_function(factory.obj, [], {}, around.site(node)))
        return cls.attributes[name]

    def method_of(self, cls: ClassRef, node: "ast.FunctionDef | ast.AsyncFunctionDef") -> FunctionRef:
        """Return a method as its decorators make it."""
        function = FunctionRef(cls.module, node, cls.env, cls)
        if all(is_harmless(each) for each in node.decorator_list):
            return function
        if node.name not in cls.decorated:
            cls.decorated[node.name] = function  # while its decorators are evaluated
            around = type(self)(self.whole, cls.module, dict(cls.env), {}, None)
            cls.decorated[node.name] = around.with_decorators(function)
        return cls.decorated[node.name]
