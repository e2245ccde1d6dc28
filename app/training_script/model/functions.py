"""Evaluate the functions of a program: their parameters, their results and their calls; names of its modules."""

import ast
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..nodes import walk
from ..rank_names import getter_kind, is_distributed_flag, is_size_of_group, one_rank_decorator
from ..syntax import FUNCTIONS, last_name
from .amounts import DISTINCT
from .branches import WITHOUT_GRADIENTS
from .choices import sides_of
from .definitions import gives_loss_to_trainer, is_abstract, is_static
from .evaluator_state import Named, Values
from .followed import collects
from .function_steps import Branch, Called, Item, Leave
from .handed_on import call_handed_on
from .keys import BY_RANK, DIFFERS, LOCAL, Key, rank_in
from .library_collectives import CALLED_ON_FIRST_RANK, ROLES_OF_ARGUMENTS
from .names import CARRIED, role_of_attribute
from .objects import ObjectEvaluator
from .sequences import Site
from .values import NO_FACTS, TURNS, Context, FunctionRef, Generated, Library, Module, Record, Value

BY_CONDITION = {"compare", "not", "and", "or", "constant"}
MOST_HANDED_ON = 3  # functions, each of which calls the next one
LONGEST_FLAG = 3  # statements of a function whose result is rather known than suggested by its name

# Decorators of Lightning, Accelerate and mmengine: the function returns None on the ranks that do not run it.
NONE_ON_OTHERS = {"rank_zero_only", "on_main_process", "on_local_main_process", "master_only"}


class FunctionEvaluator(ObjectEvaluator):
    """Evaluation of one function body."""

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
        self.settle_attributes(node.name)
        self.settle_names()
        items: list[Item] = self.items
        of_some: list[Key] = []
        for decorator in node.decorator_list if not self.function.decorated else ():
            name = last_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            who = one_rank_decorator(name)
            test = self.keys.is_first("local" if who == "first local" else "global")
            if who and items:
                items = [Branch(test, self.site(node)._replace(end_line=node.lineno), items, [])]
            if name in NONE_ON_OTHERS:
                of_some.append(test)
        if not called and items and self._is_called_on_first_rank(node.name):
            items = [Branch(self.keys.is_first("global"), self.site(node)._replace(end_line=node.lineno), items, [])]
        if self.yielded:
            return items, self._generated()
        result = self.constant(None)
        for condition, value in reversed(self.returned):
            result = value if condition is self.keys.true else self.joined(condition, value, result)
        for test in of_some if result.key is not self.keys.none else ():
            result = self.joined(test, result, self.constant(None))
        return items, result

    def _is_called_on_first_rank(self, name: str) -> bool:
        owner = self.function.owner if self.function else None
        return owner is not None and any(name in CALLED_ON_FIRST_RANK.get(role, ()) for role in owner.roles)

    def _generated(self) -> Value:
        """Return what a call of a generator gives."""
        counts = dict.fromkeys(each for counts, _ in self.yielded for each in counts)
        if len(self.yielded) == 1:
            counts.pop(self.keys.true, None)
        elif any(each.op in BY_CONDITION and each.differs_by & BY_RANK for each in counts):
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
        owner = self.function.owner if self.function else None
        no_rank = self.keys.constant(-1)  # of a call, rather than a number until the rank is known
        for place, parameter in enumerate((*positional, *spec.kwonlyargs)):
            name = parameter.arg
            if place < len(values) and place < len(positional):
                given = values[place]
            elif name in named:
                given = named[name]
            elif name in defaults and (
                not self._suggests(name) or (called and self.evaluate(defaults[name]).key is no_rank)
            ):
                given = self.evaluate(defaults[name])
                if given.key.is_constant and not called:
                    given = Value(self.keys.make("parameter", *self.place(parameter)))
            else:
                given = Value(self.keys.make("at", *self.place(parameter)))
                if name in ("accelerator", "fabric"):
                    given = Value(given.key, frozenset({name}))
                elif owner and owner.roles and (role := role_of_attribute(owner.roles, name)):
                    given = Value(given.key, frozenset({role}))
                elif name == "model" and not called and self.function and gives_loss_to_trainer(self.function):
                    given = Value(given.key, frozenset({"prepared"}))
            self.env[name] = given if given.key is no_rank else self.named(name, given)
        names = {each.arg for each in (*positional, *spec.kwonlyargs)}
        rest, others = tuple(values[len(positional) :]), {name: named[name] for name in named if name not in names}
        if spec.vararg:
            key = self.keys.make("sequence", *(each.key for each in rest))
            self.env[spec.vararg.arg] = Value(key, obj=rest) if called else self._passed_by_library(spec.vararg)
        if spec.kwarg:
            known, by_names = called and "**" not in others, others.get("**")
            pairs = (each for text, value in others.items() for each in (self.keys.constant(text), value.key))
            given = Value(self.keys.make("mapping", *pairs), obj=Record(others))
            if not known and by_names is not None and by_names.key.op == DISTINCT:
                given = by_names
            elif not known:
                given = Value(self.keys.make("at", *self.place(spec.kwarg)))
            self.env[spec.kwarg.arg] = given

    def _passed_by_library(self, rest: ast.arg) -> Value:
        """Return what is known of the arguments that a library passes to a method which takes any."""
        owner, key = self.function.owner if self.function else None, self.keys.make("at", *self.place(rest))
        known = [ROLES_OF_ARGUMENTS[role] for role in owner.roles & ROLES_OF_ARGUMENTS.keys()] if owner else []
        if len(self.parameters) != 1 or not known:
            return Value(key)
        given = (
            Value(self.keys.make("element", key, self.keys.constant(at)), frozenset({role}))
            for at, role in enumerate(known[0])
        )
        return Value(key, obj=tuple(given))

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
                    self.take_attributes(summary, values[0] if values else None)
                    self.take_names(summary)
                    if not known:
                        self.whole.evaluated.pop(node, None)  # its steps are not those of the caller
                    facts = TURNS if summary.kinds else NO_FACTS
                    held = self.whole.results[id(summary)].obj
                    given = held.element if isinstance(held, Generated) else None
                    return Value(self.keys.make("at", *site[:3]), facts, Context(summary, given))
        if function.owner and isinstance(node, FUNCTIONS) and is_abstract(node):
            return self.unknown(node, *values, *named.values())
        if arguments and isinstance(arguments[-1], ast.Starred) and len(values) - len(arguments) in (0, 1):
            values = self._filled_up(function, values)
        every_argument = "**" not in named and ast.Starred not in map(type, arguments)
        path = self.path[-1]
        of_ranks = path.differs_by & BY_RANK and not path.differs_by & LOCAL and function.owner and collects(node)
        within = self.no_sync, self.free, path if of_ranks else None
        summary = self.whole.summary(function, values, named, called=every_argument, within=within)
        self.take_attributes(summary, values[0] if values else None)
        self.take_names(summary)
        self.items.append(Called(summary, site))
        if len(values) - len(arguments) in (0, 1):  # with or without the object of a method
            for argument in (place - len(values) + len(arguments) for place in summary.filled):
                if 0 <= argument < len(arguments):
                    self.fill(arguments[argument])
        result = self.whole.results[id(summary)]
        if (
            isinstance(node, FUNCTIONS)
            and is_distributed_flag(node.name)
            and not (result.key.is_constant or result.key.differs_by & DIFFERS)
        ):
            return self.constant(True)  # what it asks of libraries and of the configuration is so in a run of several
        if (
            isinstance(node, FUNCTIONS)
            and not result.key.differs_by & DIFFERS
            and result.obj is None
            and not result.facts
        ):
            suggested = (
                self.by_name(node.name, called=True)
                if not values and not named and len(node.body) > LONGEST_FLAG
                else None
            )
            return suggested or result
        if isinstance(node, FUNCTIONS) and result.key.differs_by & BY_RANK and is_size_of_group(node.name):
            return Value(self.keys.make("at", *site[:3]))  # found by a rank among the groups, which are of one size
        return self._rank_by_name(node, result) if isinstance(node, FUNCTIONS) else result

    def handed_on(self, function: FunctionRef, node: ast.Call, values: Values, named: Named) -> Value | None:
        """Return the result of a call of a library that a function hands on to, made where the function is called."""
        passed: list[FunctionRef] = []
        for _ in range(MOST_HANDED_ON):
            inner = call_handed_on(function.node)
            if inner is None:
                return None
            around = FunctionEvaluator(self.whole, function.module, {}, function.env, function)
            if any(around.evaluate(each).key is not self.keys.false for each in inner.tests):
                return None
            if not all(around.is_harmless_call(each) for each in inner.others):
                return None
            passed.append(function)
            if inner.parameter is not None:
                return self._handed_to_parameter(function, inner.parameter, passed, node, values, named)
            callee = around.evaluate(inner.call.func)
            if isinstance(callee.obj, Library):
                self.whole.evaluated |= {each.node: each for each in passed}
                return self._invoked(callee, node, values, named)
            if not isinstance(callee.obj, FunctionRef):
                return None
            function = callee.obj
        return None

    def _handed_to_parameter(
        self,
        function: FunctionRef,
        place: int,
        passed: list[FunctionRef],
        node: ast.Call,
        values: Values,
        named: Named,
    ) -> Value | None:
        """Return the result of a function that is an argument of a call, which hands the rest of them on to it."""
        spec = function.node.args
        owned = bool(function.owner) and not (isinstance(function.node, FUNCTIONS) and is_static(function.node))
        count, place = len(spec.posonlyargs) + len(spec.args) - owned, place - owned
        shown = node.args[-len(values) :] if values else []
        known = len(values) >= count and len(shown) == len(values) and ast.Starred not in map(type, node.args)
        if place < 0 or not known or values[place].obj is None:
            return None
        self.whole.evaluated |= {each.node: each for each in passed}
        call = self.complete(node, shown[place], shown[count:], node.keywords)
        return self._invoked(values[place], call, values[count:], named)

    def _filled_up(self, function: FunctionRef, values: Values) -> Values:
        """Return arguments of which the last is a sequence that is not known, with an element for each parameter."""
        spec = function.node.args
        missing = len(spec.posonlyargs) + len(spec.args) - len(values)
        element = replace(values[-1], obj=None)
        return [*values[:-1], *([element] * (missing + 1))] if missing > 0 else values

    def _rank_by_name(self, node: "ast.FunctionDef | ast.AsyncFunctionDef", result: Value) -> Value:
        """Return the rank that a function is named after where it computes one, or asks for one in a group."""
        kind, rank = getter_kind(node.name), rank_in(result.key)
        if not kind or not rank or rank.args[0] in (kind, "spawned"):
            return result
        is_plain = all(each is rank or each.is_constant for each in sides_of(result.key))
        return result if is_plain and not any(map(_asks_in_group, walk(node))) else Value(self.keys.rank(kind))

    def module_value(self, module: Module, name: str) -> Value | None:
        """Return what a name of a module is; only the statement that binds it is evaluated."""
        if name in module.env or module.evaluated:
            return module.env.get(name) or self.from_star(module, name) or self._submodule(module, name)
        if name in module.asked:
            return None
        module.asked.add(name)
        if stmt := module.parsed.bound_by.get(name):
            FunctionEvaluator(self.whole, module, module.env, {}, None).bind_name(name, stmt)
        else:
            for star in module.parsed.stars:
                inner = self.program.imported(star.module or "", star.level, module)
                if inner is None and star.module and star.module not in module.stars:
                    module.stars.append(star.module)
                if inner is not None and (found := self.module_value(inner, name)):
                    module.env[name] = found
                    break
        return module.env.get(name) or self.from_star(module, name) or self._submodule(module, name)

    def _submodule(self, module: Module, name: str) -> Value | None:
        if not module.is_package:
            return None
        inner = self.program.imported(name, 1, module)
        return Value(self.keys.make("module", inner.path), obj=inner) if inner else None

    def exit_program(self, call: ast.Call, values: Values) -> None:
        fails = bool(values) and not _is_success(values[0].key)
        self.items.append(Leave("raise" if fails else "exit", self.site(call)))


def _asks_in_group(node: ast.AST) -> bool:
    """Return whether a node asks for the rank in a group that it names."""
    return isinstance(node, ast.Call) and last_name(node.func) == "get_rank" and bool(node.args or node.keywords)


def _is_success(code: Key) -> bool:
    """Return whether the program ends without an error: with 0 or None, whatever a condition chooses."""
    if code.op in ("if", "one of"):
        return all(_is_success(each) for each in code.args[code.op == "if" :])
    return code.is_constant and code.value in (0, None)
