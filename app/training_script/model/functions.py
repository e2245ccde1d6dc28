"""Evaluate a program: each function once for each kind of its arguments, to its result and its steps in order.

Values are symbolic (``keys``), so that one evaluation serves all ranks. Branches are joined, loops are evaluated twice:
first to see what a round changes, then with what it may find changed. Nothing of the program is executed.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..nodes import walk
from ..rank_names import getter_kind, is_distributed_flag, is_size_of_group, one_rank_decorator
from ..syntax import FUNCTIONS, last_name
from .branches import WITHOUT_GRADIENTS, BranchEvaluator
from .budget import Budget, OverBudget
from .followed import is_followed
from .function_steps import Branch, Called, Item, Leave, Summary
from .keys import BY_RANK, DIFFERS, TOUCHED, rank_in
from .names import CARRIED, Named, Shared, Values
from .program import Program
from .sequences import Site
from .values import (
    NO_FACTS,
    TURNS,
    Bound,
    ClassRef,
    Context,
    Either,
    FunctionRef,
    Generated,
    Instance,
    Library,
    Method,
    Module,
    Partial,
    Record,
    Value,
    is_elements,
)

MOST_FLAGS = 3  # combinations of arguments that are True, False or None
MOST_CONTEXTS = 4  # kinds of arguments for which a function is evaluated apart
MOST_DEPTH = 25  # of calls
HARMLESS_DECORATORS = {
    *("staticmethod", "classmethod", "property", "cached_property", "abstractmethod", "override", "contextmanager"),
    *("no_grad", "inference_mode", "enable_grad", "autocast", "compile", "jit", "script", "record", "dataclass"),
    *("main", "command", "option", "argument", "lru_cache", "cache", "wraps", "hydra_main", "parse", "overload"),
}
BY_CONDITION = {"compare", "not", "and", "or", "constant"}
LONGEST_FLAG = 3  # statements of a function whose result is rather known than suggested by its name


class Evaluation(Shared):
    """One evaluation of a program: what all functions share."""

    def __init__(self, program: Program, text: str, budget: Budget) -> None:
        super().__init__(program, text, budget)
        self.depth = 0
        self.script: Module | None = None
        self.abroad = False  # in a function of another file, which may take a share of the steps
        self.cut = False  # such a share was not enough
        self.evaluated: dict[ast.AST, FunctionRef] = {}
        self.contexts: Counter[Any] = Counter()
        self.alike: dict[tuple[Any, ...], Summary] = {}  # of a function with such flags, or of a function
        self.summaries: dict[tuple[Any, ...], Summary] = {}
        self.results: dict[int, Value] = {}
        self._names: dict[ast.AST, list[str]] = {}  # that a function inside of another one reads

    def run_script(self, module: Module) -> list[Item]:
        """Evaluate the statements of a script and return its steps."""
        self.script = module
        module.evaluated = True
        module.env["__name__"] = Value(self.keys.constant("__main__"))
        evaluator = FunctionEvaluator(self, module, module.env, {}, None)
        evaluator.hoist(module.parsed.tree.body)
        evaluator.block(module.parsed.tree.body)
        return evaluator.items

    def run_function(self, function: FunctionRef) -> Summary:
        """Evaluate a function of which no call is known."""
        owner = None
        if function.owner and isinstance(function.node, FUNCTIONS) and not is_static(function.node):
            self.prepare(function.owner)
            owner = Value(self.keys.make("instance", id(function.owner)), obj=Instance(function.owner))
        return self.summary(function, [owner] if owner else [], {}, called=False)

    def _closure(self, function: FunctionRef) -> tuple[Any, ...]:
        """Return the kinds of the values that a function takes from the function around it."""
        if not function.env:
            return (function.decorated,)
        names = self._names.get(function.node)
        if names is None:
            names = self._names[function.node] = sorted(_names(function.node))
        kinds = ((name, _kind(function.env[name])) for name in names if name in function.env)
        return (function.decorated, *kinds)

    def forget(self) -> None:
        """Empty what refers to itself."""
        self.program.forget()
        self.keys.forget()
        for cls in self.classes.values():
            cls.attributes.clear()
        for summary in self.summaries.values():
            summary.forget()

    def prepare(self, cls: ClassRef) -> None:
        """Evaluate the constructor of a class, so that the attributes of its objects are known."""
        if cls.prepared:
            return
        cls.prepared = True
        if found := cls.find("__init__"):
            self.run_function(FunctionRef(found[0].module, found[1], found[0].env, cls))
            self.evaluated.pop(found[1], None)  # nothing has called it

    def summary(
        self, function: FunctionRef, values: list[Value], named: dict[str, Value], *, called: bool = True
    ) -> Summary:
        """Return what a function does with such arguments; ``called``: they are all that a call passes."""
        node = function.node, *self._closure(function)
        signature = (
            *node,
            called,
            *(_kind(value) for value in values),
            *((name, _kind(value)) for name, value in named.items()),
        )
        if signature in self.summaries:
            return self.summaries[signature]
        flags = (
            *node,
            *_flags(values),
            *((name, flag) for name, flag in zip(named, _flags(named.values()), strict=True)),
        )
        if self.contexts[flags] >= MOST_CONTEXTS or self.contexts[node] >= MOST_CONTEXTS * MOST_FLAGS:
            alike = self.alike.get(flags) or self.alike.get(node)
            if alike:
                return alike
        self.contexts[flags] += 1
        self.contexts[node] += 1
        made = self.summaries[signature] = Summary()
        self.results[id(made)] = Value(self.keys.make("recursive", id(function.node)))
        if self.depth >= MOST_DEPTH:
            return made
        self.depth += 1
        self.evaluated[function.node] = function
        try:
            with self._steps_for(function):
                evaluator = FunctionEvaluator(self, function.module, {}, function.env, function)
                made.items, self.results[id(made)] = evaluator.run(values, named, called=called)
                made.filled, made.returned = evaluator.filled, [value for _, value in evaluator.returned]
                made.complete = True
                decorators = () if function.decorated else getattr(function.node, "decorator_list", ())
                made.wrapped = any(not is_harmless(each) for each in decorators)
                self.alike[flags] = self.alike[node] = made
        finally:
            self.depth -= 1
        return made

    @contextmanager
    def _steps_for(self, function: FunctionRef) -> Iterator[None]:
        """Take the steps of a call into another file from those for such calls; it ends where they do."""
        if self.abroad or self.script is None or function.module is self.script:
            yield
            return
        outside, self.abroad = self.budget, True
        try:
            with outside.part_abroad() as self.budget:
                yield
        except OverBudget:
            self.cut = True
        finally:
            self.abroad, self.budget = False, outside


def _names(node: ast.AST) -> frozenset[str]:
    """Return the names that a function reads."""
    return frozenset(each.id for each in walk(node) if isinstance(each, ast.Name))


def _kind(value: Value) -> tuple[Any, ...]:
    obj = value.obj
    identity: object = len(obj) if is_elements(obj) else obj if isinstance(obj, Library) else id(obj)
    if isinstance(obj, Instance):
        identity = id(obj.cls)
    elif isinstance(obj, FunctionRef):
        identity = obj.node
    elif isinstance(obj, Bound):
        identity = (obj.function.node, id(obj.owner.key))
    elif isinstance(obj, Method):
        identity = "method"
    elif isinstance(obj, Either):
        identity = (id(obj.test), _kind(obj.then), _kind(obj.other))
    elif isinstance(obj, Partial):
        identity = (_kind(obj.function), *map(_kind, obj.values), *map(_kind, obj.named.values()))
    elif is_elements(obj) and is_followed(obj):
        identity = tuple(map(_kind, obj))
    elif isinstance(obj, Record):
        identity = tuple([(name, _kind(field)) for name, field in obj.fields.items()])
    key = value.key if value.key.spread & DIFFERS or value.key.is_constant or value.key.op == "world" else None
    return id(key) if key else None, bool(value.key.spread & TOUCHED), value.facts, identity


def is_harmless(decorator: ast.expr) -> bool:
    """Return whether every rank calls the function that a decorator wraps."""
    return last_name(decorator) in HARMLESS_DECORATORS or bool(one_rank_decorator(last_name(decorator)))


def _flags(values: Iterable[Value]) -> list[Any]:
    """Return which arguments are True, False or None: they decide what a function does more than others."""
    return [
        (value.key.value,) if value.key.is_constant and isinstance(value.key.value, bool | None) else ()
        for value in values
    ]


def gives_loss_to_trainer(function: FunctionRef) -> bool:
    """Return whether a Trainer calls a method with the model that it has wrapped, and takes the loss from it."""
    owner, node = function.owner, function.node
    of_trainer = owner and any(last_name(base).endswith("Trainer") for base in owner.node.bases)
    return bool(of_trainer) and getattr(node, "name", "") == "compute_loss"


def is_abstract(node: "ast.FunctionDef | ast.AsyncFunctionDef") -> bool:
    """Return whether a method has no body: a class that is not known defines what it does."""
    empty = all(
        isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in node.body
    )
    return empty or any(last_name(each) == "abstractmethod" for each in node.decorator_list)


def is_static(node: "ast.FunctionDef | ast.AsyncFunctionDef") -> bool:
    return any(last_name(each) == "staticmethod" for each in node.decorator_list)


class FunctionEvaluator(BranchEvaluator):
    """Evaluation of one function body."""

    def __init__(
        self,
        whole: Evaluation,
        module: Module,
        env: dict[str, Value],
        outer: dict[str, Value],
        function: FunctionRef | None,
    ) -> None:
        super().__init__(whole, module, env, outer)
        self.whole, self.function = whole, function

    def run(self, values: list[Value], named: dict[str, Value], *, called: bool) -> tuple[list[Item], Value]:
        """Evaluate the function with these arguments; return its steps and its result."""
        assert self.function is not None
        node = self.function.node
        self._bind_parameters(node, values, named, called)
        if isinstance(node, ast.Lambda):
            return self.items, self.evaluate(node.body)
        self.no_grad = any(last_name(each) in WITHOUT_GRADIENTS for each in node.decorator_list)
        self.hoist(node.body)
        self.block(node.body)
        items: list[Item] = self.items
        for decorator in node.decorator_list if not self.function.decorated else ():
            who = one_rank_decorator(last_name(decorator.func if isinstance(decorator, ast.Call) else decorator))
            if who and items:
                test = self.keys.is_first("local" if who == "first local" else "global")
                items = [Branch(test, self.site(node)._replace(end_line=node.lineno), items, [])]
        if self.yielded:
            return items, self._generated()
        result = self.constant(None)
        for condition, value in reversed(self.returned):
            result = value if condition is self.keys.true else self.joined(condition, value, result)
        return items, result

    def _generated(self) -> Value:
        """Return what a call of a generator gives."""
        counts = dict.fromkeys(each for counts, _ in self.yielded for each in counts)
        if len(self.yielded) > 1 and any(each.op in BY_CONDITION and each.spread & BY_RANK for each in counts):
            counts = {self.unknown(self.function.node).key: None} if self.function else {}  # a leader and its workers
        values = [value for _, value in self.yielded]
        key = self.keys.make("built", len(counts), *counts, *(value.key for value in values))
        facts = frozenset[str]().union(*(value.facts for value in values)) & CARRIED
        element = values[0]
        for each in values[1:]:
            element = self.joined(self.unknown(self.function.node).key, element, each) if self.function else each
        return Value(key, facts, Generated(element))

    def _bind_parameters(self, node: Any, values: list[Value], named: dict[str, Value], called: bool) -> None:
        spec: ast.arguments = node.args
        positional = [*spec.posonlyargs, *spec.args]
        self.parameters = [each.arg for each in positional]
        defaults = dict(zip([each.arg for each in positional][::-1], spec.defaults[::-1], strict=False))
        defaults |= {each.arg: value for each, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
        for place, parameter in enumerate((*positional, *spec.kwonlyargs)):
            name = parameter.arg
            if place < len(values) and place < len(positional):
                given = values[place]
            elif name in named:
                given = named[name]
            elif name in defaults and not self._suggests(name):
                given = self.evaluate(defaults[name])
                if given.key.is_constant and not called:
                    given = Value(self.keys.make("parameter", *self.place(parameter)))
            else:
                given = Value(self.keys.make("at", *self.place(parameter)))
                if name in ("accelerator", "fabric"):
                    given = Value(given.key, frozenset({name}))
                elif name == "model" and not called and self.function and gives_loss_to_trainer(self.function):
                    given = Value(given.key, frozenset({"prepared"}))
            self.env[name] = self.named(name, given)
        names = {each.arg for each in (*positional, *spec.kwonlyargs)}
        rest, others = tuple(values[len(positional) :]), {name: named[name] for name in named if name not in names}
        if spec.vararg:
            key = self.keys.make("sequence", *(each.key for each in rest))
            unknown = Value(self.keys.make("at", *self.place(spec.vararg)))
            self.env[spec.vararg.arg] = Value(key, obj=rest) if called else unknown
        if spec.kwarg:
            known = called and "**" not in others
            pairs = (each for text, value in others.items() for each in (self.keys.constant(text), value.key))
            given = Value(self.keys.make("mapping", *pairs), obj=Record(others))
            self.env[spec.kwarg.arg] = given if known else Value(self.keys.make("at", *self.place(spec.kwarg)))

    def _suggests(self, name: str) -> bool:
        return self.by_name(name) is not None

    def call_function(
        self, function: FunctionRef, values: Values, named: Named, site: Site, arguments: Sequence[ast.expr] = ()
    ) -> Value:
        node = function.node
        if isinstance(node, FUNCTIONS):
            for decorator in node.decorator_list:
                if last_name(decorator) in ("contextmanager", "asynccontextmanager"):
                    known = node in self.whole.evaluated
                    summary = self.whole.summary(function, values, named)
                    if not known:
                        self.whole.evaluated.pop(node, None)  # its steps are not those of the caller
                    facts = TURNS if summary.kinds else NO_FACTS
                    return Value(self.keys.make("at", *site[:3]), facts, Context(summary))
        if function.owner and isinstance(node, FUNCTIONS) and is_abstract(node):
            return self.unknown(node, *values, *named.values())
        every_argument = "**" not in named and not any(isinstance(each, ast.Starred) for each in arguments)
        summary = self.whole.summary(function, values, named, called=every_argument)
        self.items.append(Called(summary, site))
        if len(values) - len(arguments) in (0, 1):  # with or without the object of a method
            for argument in (place - len(values) + len(arguments) for place in summary.filled):
                if 0 <= argument < len(arguments):
                    self.fill(arguments[argument])
        result = self.whole.results[id(summary)]
        if (
            isinstance(node, FUNCTIONS)
            and is_distributed_flag(node.name)
            and not (result.key.is_constant or result.key.spread & DIFFERS)
        ):
            return self.constant(True)  # what it asks of libraries and of the configuration is so in a run of several
        if isinstance(node, FUNCTIONS) and not result.key.spread & DIFFERS and result.obj is None and not result.facts:
            suggested = (
                self.by_name(node.name, called=True)
                if not values and not named and len(node.body) > LONGEST_FLAG
                else None
            )
            return suggested or result
        if isinstance(node, FUNCTIONS) and result.key.spread & BY_RANK and is_size_of_group(node.name):
            return Value(self.keys.make("at", *site[:3]))  # found by a rank among the groups, which are of one size
        return self._rank_by_name(node, result) if isinstance(node, FUNCTIONS) else result

    def _rank_by_name(self, node: "ast.FunctionDef | ast.AsyncFunctionDef", result: Value) -> Value:
        """Return the rank that a function is named after where it seems to return one of another kind."""
        kind, rank = getter_kind(node.name), rank_in(result.key)
        differs = kind and rank and rank.args[0] not in (kind, "spawned")
        return Value(self.keys.rank(kind)) if kind and differs else result

    def instantiate(self, cls: ClassRef, values: list[Value], named: dict[str, Value], site: Site) -> Value:
        instance = Value(self.keys.make("instance", id(cls)), obj=Instance(cls))
        self.shared.classes[instance.key] = cls
        cls.prepared = True
        if found := cls.find("__init__"):
            summary = self.whole.summary(
                FunctionRef(found[0].module, found[1], found[0].env, cls),
                [instance, *values],
                named,
                called="**" not in named,
            )
            self.items.append(Called(summary, site))
        else:
            for name, value in (*zip(cls.fields, values, strict=False), *named.items()):
                if name in cls.fields:
                    self._store(instance, name, self.named(name, value))
        if any(name.endswith(("Trainer", "SFTTrainer")) for name in cls.library_bases()):
            return instance._replace(facts=frozenset({"trainer"}))
        return instance

    def attribute_of_instance(self, instance: Instance, name: str) -> Value | None:
        cls = instance.cls
        if found := cls.find(name):
            owner = Value(self.keys.make("instance", id(cls)), obj=instance)
            function = self._method_of(found[0], found[1])
            if any(last_name(each) in ("property", "cached_property") for each in found[1].decorator_list):
                return self.call_function(function, [owner], {}, self.site(found[1]))
            return Value(
                self.keys.make("bound", id(found[1])),
                obj=Bound(function, owner) if not is_static(found[1]) else function,
            )
        self.whole.prepare(cls)
        for each in cls.ancestry():
            if name in each.attributes:
                value = each.attributes[name]
                if value.key.is_constant and any(base.is_set_later(name) for base in cls.ancestry()):
                    suggested = None if value.key is self.keys.none else self.by_name(name)
                    return suggested or Value(self.keys.make("held", id(cls), name))
                return value
        return self._made_by_factory(cls, name)

    def _made_by_factory(self, cls: ClassRef, name: str) -> Value | None:
        """Return what the constructor of a dataclass, or of a model of pydantic, gives an attribute."""
        found = cls.factory(name)
        if found is None:
            return None
        module, node = found
        around = FunctionEvaluator(self.whole, module, module.env, {}, None)
        factory = around.evaluate(node)
        if not isinstance(factory.obj, FunctionRef):
            return None
        cls.attributes[name] = self.named(name, around.call_function(factory.obj, [], {}, around.site(node)))
        return cls.attributes[name]

    def _method_of(self, cls: ClassRef, node: "ast.FunctionDef | ast.AsyncFunctionDef") -> FunctionRef:
        """Return a method as its decorators make it."""
        function = FunctionRef(cls.module, node, cls.env, cls)
        if all(is_harmless(each) for each in node.decorator_list):
            return function
        if node.name not in cls.decorated:
            cls.decorated[node.name] = function  # while its decorators are evaluated
            around = FunctionEvaluator(self.whole, cls.module, dict(cls.env), {}, None)
            cls.decorated[node.name] = around.with_decorators(function)
        return cls.decorated[node.name]

    def module_value(self, module: Module, name: str) -> Value | None:
        """Return what a name of a module is; only the statement that binds it is evaluated."""
        if name in module.env or module.evaluated:
            return module.env.get(name) or self._submodule(module, name)
        if name in module.asked:
            return None
        module.asked.add(name)
        evaluator = FunctionEvaluator(self.whole, module, module.env, {}, None)
        if stmt := module.parsed.bound_by.get(name):
            evaluator.bind_name(name, stmt)
        else:
            for star in [each for bound, each in module.parsed.bound_by.items() if bound.startswith("*")]:
                assert isinstance(star, ast.ImportFrom)
                inner = self.program.imported(star.module or "", star.level, module)
                if inner is None and star.module and star.module not in module.stars:
                    module.stars.append(star.module)
                if inner is not None and (found := self.module_value(inner, name)):
                    module.env[name] = found
                    break
        return module.env.get(name) or self._submodule(module, name)

    def _submodule(self, module: Module, name: str) -> Value | None:
        if not module.is_package:
            return None
        inner = self.program.imported(name, 1, module)
        return Value(self.keys.make("module", inner.path), obj=inner) if inner else None

    def exit_program(self, call: ast.Call) -> None:
        code = call.args[0] if call.args else None
        fails = code is not None and not (isinstance(code, ast.Constant) and code.value in (0, None))
        self.items.append(Leave("raise" if fails else "exit", self.site(call)))
