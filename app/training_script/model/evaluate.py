"""Evaluate a program: each function once for each kind of its arguments, to its result and its steps in order.

Values are symbolic (``keys``), so that one evaluation serves all ranks. Branches are joined, loops are evaluated twice:
first to see what a round changes, then with what it may find changed. Nothing of the program is executed.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ..rank_names import one_rank_decorator
from ..syntax import FUNCTIONS, last_name
from .expressions import ExpressionEvaluator
from .items import Attempt, Branch, Called, Item, Leave, Rounds, Summary
from .keys import Key, Keys
from .library_calls import UNIFORM_ERRORS
from .program import Bound, ClassRef, FunctionRef, Instance, Library, Module, Program, Value, is_elements
from .sequences import Site

MOST_STEPS = 60_000  # statements of one evaluation
MOST_CONTEXTS = 4  # kinds of arguments for which a function is evaluated apart
MOST_DEPTH = 25  # of calls
LONGEST_FLAG = 3  # statements of a function whose result is rather known than suggested by its name
Env = dict[str, Value]


class OverBudget(Exception):
    """The program needs more steps than are allowed."""


class Evaluation:
    """One evaluation of a program: what all functions share."""

    def __init__(self, program: Program) -> None:
        self.program, self.keys = program, Keys()
        self.steps = 0
        self.depth = 0
        self.seeded = False
        self.evaluated: set[ast.AST] = set()
        self.contexts: dict[ast.AST, int] = {}
        self.summaries: dict[tuple[Any, ...], Summary] = {}
        self.results: dict[int, Value] = {}

    def run_script(self, module: Module) -> list[Item]:
        """Evaluate the statements of a script and return its steps."""
        module.evaluated = True
        module.env["__name__"] = Value(self.keys.constant("__main__"))
        evaluator = FunctionEvaluator(self, module, module.env, {}, None)
        evaluator.hoist(module.tree.body)
        evaluator.block(module.tree.body)
        return evaluator.items

    def run_function(self, function: FunctionRef) -> Summary:
        """Evaluate a function of which no call is known."""
        owner = None
        if function.owner and isinstance(function.node, FUNCTIONS) and not is_static(function.node):
            self.prepare(function.owner)
            owner = Value(self.keys.make("instance", id(function.owner)), obj=Instance(function.owner))
        return self.summary(function, [owner] if owner else [], {})

    def prepare(self, cls: ClassRef) -> None:
        """Evaluate the constructor of a class, so that the attributes of its objects are known."""
        if cls.prepared:
            return
        cls.prepared = True
        if found := cls.find("__init__"):
            self.run_function(FunctionRef(found[0].module, found[1], found[0].env, cls))

    def summary(self, function: FunctionRef, values: list[Value], named: dict[str, Value]) -> Summary:
        """Return what a function does with such arguments."""
        node = function.node
        signature = (
            node,
            *(_kind(value) for value in values),
            *((name, _kind(value)) for name, value in named.items()),
        )
        if signature in self.summaries:
            return self.summaries[signature]
        if self.contexts.get(node, 0) >= MOST_CONTEXTS:
            known = next((made for key, made in self.summaries.items() if key[0] is node and made.complete), None)
            if known:
                return known
        self.contexts[node] = self.contexts.get(node, 0) + 1
        made = self.summaries[signature] = Summary()
        self.results[id(made)] = Value(self.keys.make("recursive", id(node)))
        if self.depth >= MOST_DEPTH:
            return made
        self.depth += 1
        try:
            self.evaluated.add(node)
            evaluator = FunctionEvaluator(self, function.module, {}, function.env, function)
            made.items, self.results[id(made)] = evaluator.run(values, named)
            made.complete = True
        finally:
            self.depth -= 1
        return made


def _kind(value: Value) -> tuple[Any, ...]:
    obj = value.obj
    identity: object = len(obj) if is_elements(obj) else obj if isinstance(obj, Library) else id(obj)
    if isinstance(obj, Instance):
        identity = id(obj.cls)
    elif isinstance(obj, FunctionRef):
        identity = obj.node
    elif isinstance(obj, Bound):
        identity = (obj.function.node, id(obj.owner.key))
    elif obj is not None and type(obj).__name__ == "Method":
        identity = "method"
    key = value.key if value.key.spread or value.key.is_constant or value.key.op == "world" else None
    return id(key) if key else None, value.facts, identity


def is_static(node: "ast.FunctionDef | ast.AsyncFunctionDef") -> bool:
    return any(last_name(each) == "staticmethod" for each in node.decorator_list)


class FunctionEvaluator(ExpressionEvaluator):
    """Evaluation of one function body."""

    def __init__(
        self,
        whole: Evaluation,
        module: Module,
        env: dict[str, Value],
        outer: dict[str, Value],
        function: FunctionRef | None,
    ) -> None:
        super().__init__(whole.keys, whole.program, module, env, outer)
        self.whole, self.function = whole, function
        self.seeded = whole.seeded
        self.returned: list[tuple[Key, Value]] = []  # with the condition under which each is reached
        self.path: list[Key] = []
        self.free = False
        self.quick = False  # the first of two evaluations of a loop
        self.globals: set[str] = set()

    # ---- functions

    def run(self, values: list[Value], named: dict[str, Value]) -> tuple[list[Item], Value]:
        """Evaluate the function with these arguments; return its steps and its result."""
        assert self.function is not None
        node = self.function.node
        self._bind_parameters(node, values, named)
        if isinstance(node, ast.Lambda):
            return self.items, self.evaluate(node.body)
        self.hoist(node.body)
        self.block(node.body)
        items: list[Item] = self.items
        for decorator in node.decorator_list:
            who = one_rank_decorator(last_name(decorator.func if isinstance(decorator, ast.Call) else decorator))
            if who and items:
                test = self.keys.is_first("local" if who == "first local" else "global")
                items = [Branch(test, self.site(node)._replace(end_line=node.lineno), items, [])]
        result = self.constant(None)
        for condition, value in reversed(self.returned):
            result = value if condition is self.keys.true else self.joined(condition, value, result)
        return items, result

    def _bind_parameters(self, node: Any, values: list[Value], named: dict[str, Value]) -> None:
        spec: ast.arguments = node.args
        positional = [*spec.posonlyargs, *spec.args]
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
                if given.key.is_constant:
                    given = Value(self.keys.make("parameter", *self.site(parameter)[:3]))
            else:
                given = Value(self.keys.make("at", *self.site(parameter)[:3]))
                if name in ("accelerator", "fabric"):
                    given = Value(given.key, frozenset({name}))
            self.env[name] = self.named(name, given)
        for extra in (spec.vararg, spec.kwarg):
            if extra:
                self.env[extra.arg] = Value(self.keys.make("at", *self.site(extra)[:3]))

    def _suggests(self, name: str) -> bool:
        return self.by_name(name) is not None

    def call_function(self, function: FunctionRef, values: list[Value], named: dict[str, Value], site: Site) -> Value:
        node = function.node
        if isinstance(node, FUNCTIONS):
            for decorator in node.decorator_list:
                if last_name(decorator) in ("contextmanager", "asynccontextmanager"):
                    return Value(self.keys.make("at", *site[:3]))
        summary = self.whole.summary(function, values, named)
        self.items.append(Called(summary, site))
        result = self.whole.results[id(summary)]
        if isinstance(node, FUNCTIONS) and not result.key.spread and result.obj is None and not result.facts:
            suggested = (
                self.by_name(node.name, called=True) if not values and not named and len(node.body) > 3 else None
            )
            return suggested or result
        return result

    def instantiate(self, cls: ClassRef, values: list[Value], named: dict[str, Value], site: Site) -> Value:
        instance = Value(self.keys.make("instance", id(cls)), obj=Instance(cls))
        cls.prepared = True
        if found := cls.find("__init__"):
            summary = self.whole.summary(
                FunctionRef(found[0].module, found[1], found[0].env, cls), [instance, *values], named
            )
            self.items.append(Called(summary, site))
        if any(name.endswith(("Trainer", "SFTTrainer")) for name in cls.library_bases()):
            return instance._replace(facts=frozenset({"trainer"}))
        return instance

    def attribute_of_instance(self, instance: Instance, name: str) -> Value | None:
        cls = instance.cls
        if found := cls.find(name):
            owner = Value(self.keys.make("instance", id(cls)), obj=instance)
            function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
            if any(last_name(each) in ("property", "cached_property") for each in found[1].decorator_list):
                return self.call_function(function, [owner], {}, self.site(found[1]))
            return Value(
                self.keys.make("bound", id(found[1])),
                obj=Bound(function, owner) if not is_static(found[1]) else function,
            )
        self.whole.prepare(cls)
        for each in cls.ancestry():
            if name in each.attributes:
                return each.attributes[name]
        return None

    def module_value(self, module: Module, name: str) -> Value | None:
        """Return what a name of a module is; only the statement that binds it is evaluated."""
        if name in module.env or module.evaluated:
            return module.env.get(name) or self._submodule(module, name)
        if name in module.asked:
            return None
        module.asked.add(name)
        evaluator = FunctionEvaluator(self.whole, module, module.env, {}, None)
        if stmt := module.bound_by.get(name):
            evaluator.block([stmt])
        else:
            for star in [each for bound, each in module.bound_by.items() if bound.startswith("*")]:
                assert isinstance(star, ast.ImportFrom)
                inner = self.program.imported(star.module or "", star.level, module)
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

    # ---- statements

    def hoist(self, body: Sequence[ast.stmt]) -> None:
        """Make the functions and classes of a block known: a function may call one that is defined later."""
        for stmt in body:
            if isinstance(stmt, FUNCTIONS):
                self._define(stmt)
            elif isinstance(stmt, ast.ClassDef):
                self._ClassDef_statement(stmt)

    def _define(self, stmt: "ast.FunctionDef | ast.AsyncFunctionDef") -> None:
        at_module = self.env is self.module.env
        scope = {} if at_module else self._live_scope()
        key = self.keys.make("function", self.module.path, stmt.lineno)
        self.env[stmt.name] = Value(key, obj=FunctionRef(self.module, stmt, scope))

    def _live_scope(self) -> dict[str, Value]:
        return self.env if not self.outer else {**self.outer, **self.env}

    def _ClassDef_statement(self, stmt: ast.ClassDef) -> None:
        known = self.env.get(stmt.name)
        if known and isinstance(known.obj, ClassRef) and known.obj.node is stmt:
            return
        bases = [self.evaluate(base) for base in stmt.bases]
        cls = ClassRef(self.module, stmt, bases, {} if self.env is self.module.env else self._live_scope())
        for each in stmt.body:
            if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name):
                cls.attributes[each.targets[0].id] = self.named(each.targets[0].id, self.evaluate(each.value))
        self.env[stmt.name] = Value(self.keys.make("class", self.module.path, stmt.lineno), obj=cls)

    def block(self, stmts: Sequence[ast.stmt]) -> bool:
        """Evaluate statements; return whether the block leaves in any case."""
        for stmt in stmts:
            self.whole.steps += 1
            if self.whole.steps > MOST_STEPS:
                raise OverBudget
            method = getattr(self, f"_{type(stmt).__name__}_statement", None)
            if method is None:
                for child in ast.iter_child_nodes(stmt):
                    if isinstance(child, ast.expr):
                        self.evaluate(child)
            elif method(stmt):
                return True
            if self.items and isinstance(self.items[-1], Leave) and self.items[-1].kind in ("exit", "raise"):
                return True
        return False

    def _FunctionDef_statement(self, stmt: ast.FunctionDef) -> None:
        self._define(stmt)

    def _AsyncFunctionDef_statement(self, stmt: ast.AsyncFunctionDef) -> None:
        self._define(stmt)

    def _Import_statement(self, stmt: ast.Import) -> None:
        for alias in stmt.names:
            first = alias.name.partition(".")[0]
            shown = alias.name if alias.asname else first
            module = self.program.imported(shown, 0, self.module)
            self.env[alias.asname or first] = self._imported(shown, module)

    def _imported(self, name: str, module: Module | None) -> Value:
        if module is not None:
            return Value(self.keys.make("module", module.path), obj=module)
        return Value(self.keys.make("library", name), obj=Library(name))

    def _ImportFrom_statement(self, stmt: ast.ImportFrom) -> None:
        module = self.program.imported(stmt.module or "", stmt.level, self.module)
        for alias in stmt.names:
            name = alias.asname or alias.name
            full = f"{stmt.module}.{alias.name}" if stmt.module else alias.name
            if module is None:
                inner = self.program.imported(full, stmt.level, self.module)
                self.env[name] = self._imported(full, inner)
            elif alias.name == "*":
                for bound in module.bound_by:
                    if not bound.startswith(("_", "*")) and (each := self.module_value(module, bound)):
                        self.env[bound] = each
            else:
                found = self.module_value(module, alias.name)
                if found is None:
                    folder = self.program.imported(full, stmt.level, self.module)
                    found = (
                        self._imported("", folder) if folder else Value(self.keys.make("name", module.path, alias.name))
                    )
                self.env[name] = self.named(name, found)

    def _Global_statement(self, stmt: ast.Global) -> None:
        self.globals.update(stmt.names)

    def _Assign_statement(self, stmt: ast.Assign) -> None:
        value = self.evaluate(stmt.value)
        for target in stmt.targets:
            self.bind(target, value)

    def _AnnAssign_statement(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is not None:
            self.bind(stmt.target, self.evaluate(stmt.value))

    def _AugAssign_statement(self, stmt: ast.AugAssign) -> None:
        load = ast.copy_location(ast.BinOp(left=_as_load(stmt.target), op=stmt.op, right=stmt.value), stmt)
        self.bind(stmt.target, self._BinOp(load))

    def bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.env[name] = self.named(name, value)
                if name in self.globals:
                    self.module.env[name] = self.env[name]
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                known = value.obj if is_elements(value.obj) and len(value.obj) == len(elements) else None
                for place, element in enumerate(elements):
                    if isinstance(element, ast.Starred):
                        element = element.value
                    part = Value(self.keys.make("item", value.key, self.keys.constant(place)), value.facts)
                    self.bind(element, known[place] if known else part)
            case ast.Attribute(value=owner, attr=name):
                self._store(self.evaluate(owner), name, self.named(name, value))
            case ast.Subscript(value=owner, slice=ast.Constant(value=str() as name)):
                self._store(self.evaluate(owner), name, self.named(name, value))
            case ast.Subscript(value=owner):
                held = self.evaluate(owner)
                if isinstance(owner, ast.Name) and owner.id in self.env and value.key.spread:
                    self.env[owner.id] = Value(self.keys.make("changed", held.key, value.key), held.facts)
            case _:
                pass

    def _store(self, owner: Value, name: str, value: Value) -> None:
        if isinstance(owner.obj, Instance):
            known = owner.obj.cls.attributes.get(name)
            if known is not None and known.key is not value.key:
                if known.key.is_constant and not value.key.is_constant:
                    known = None
                elif value.key.is_constant and known.facts:
                    value = known
            if known is not None and known.key is not value.key:
                key = self.keys.make("one of", known.key, value.key)
                value = Value(key, known.facts | value.facts, value.obj or known.obj)
            owner.obj.cls.attributes[name] = value
        else:
            self.env[f"{id(owner.key)}.{name}"] = value

    def _Expr_statement(self, stmt: ast.Expr) -> None:
        value = stmt.value
        if isinstance(value, ast.BoolOp | ast.IfExp) or not isinstance(value, ast.Constant):
            self.evaluate(value)

    def _Return_statement(self, stmt: ast.Return) -> bool:
        value, condition = self.evaluate(stmt.value), self.keys.true
        for test in self.path:
            condition = self.keys.make("and", condition, test)
        self.returned.append((condition, value))
        self.items.append(Leave("return", self.site(stmt)))
        return True

    def _Raise_statement(self, stmt: ast.Raise) -> bool:
        if stmt.exc:
            self.evaluate(stmt.exc)
        self.items.append(Leave("raise", self.site(stmt)))
        return True

    def _Break_statement(self, stmt: ast.Break) -> bool:
        self.items.append(Leave("break", self.site(stmt)))
        return True

    def _Continue_statement(self, stmt: ast.Continue) -> bool:
        self.items.append(Leave("next", self.site(stmt)))
        return True

    def _If_statement(self, stmt: ast.If) -> bool:
        test = self.evaluate(stmt.test).key
        if test.is_constant and not self.quick:
            return self.block(stmt.body if test.value else stmt.orelse)
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.test.end_lineno or stmt.lineno)
        return self._branch(test, site, lambda: self.block(stmt.body), lambda: self.block(stmt.orelse))

    def _branch(self, test: Key, site: Site, then: "Callable[[], bool]", other: "Callable[[], bool]") -> bool:
        before, outside, calls = dict(self.env), self.items, self.unknown_calls
        self.items = []
        self.path.append(test)
        leaves_then = then()
        env_then, items_then, calls_then = dict(self.env), self.items, self.unknown_calls
        self._restore(before)
        self.items = []
        self.path[-1] = self.keys.make("not", test)
        leaves_other = other()
        self.path.pop()
        items_other, self.items = self.items, outside
        if items_then or items_other:
            unknown = calls_then > calls, self.unknown_calls > calls_then
            self.items.append(Branch(test, site, items_then, items_other, unknown))
        if leaves_then and not leaves_other:
            return False
        if leaves_other and not leaves_then:
            self._restore(env_then)
            return False
        for name in {*env_then, *self.env}:
            first, second = env_then.get(name), self.env.get(name)
            if first is None or second is None:
                self.env[name] = first or second or self.constant(None)
            elif first is not second:
                self.env[name] = self.joined(test, first, second)
        return leaves_then and leaves_other

    def _restore(self, env: dict[str, Value]) -> None:
        self.env.clear()
        self.env.update(env)

    def _Match_statement(self, stmt: ast.Match) -> bool:
        subject = self.evaluate(stmt.subject)

        def cases(rest: list[ast.match_case]) -> bool:
            if not rest:
                return False
            case = rest[0]
            if isinstance(case.pattern, ast.MatchValue):
                test = self.keys.make("compare", "Eq", subject.key, self.evaluate(case.pattern.value).key)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None:
                return self.block(case.body)
            else:
                test = self.keys.make("matches", subject.key, *self.site(case.pattern)[:3])
            return self._branch(test, self.site(case.pattern), lambda: self.block(case.body), lambda: cases(rest[1:]))

        return cases(stmt.cases)

    def _With_statement(self, stmt: ast.With | ast.AsyncWith) -> bool:
        no_sync, free = self.no_sync, self.free
        one_rank = None
        entered: list[tuple[Value, ast.expr]] = []
        for item in stmt.items:
            context = item.context_expr
            name = last_name(context)
            value = self.evaluate(context)
            if isinstance(value.obj, Instance):
                self._enter(value, "__enter__", context)
                entered.append((value, context))
            if name == "no_sync":
                self.no_sync = True
            if name in ("join", "Join"):
                self.free = True
            if item.optional_vars is not None:
                self.bind(item.optional_vars, self.unknown(context))
            one_rank = one_rank or (one_rank_decorator(name) if isinstance(context, ast.Call) else None)
        leaves = self.block(stmt.body)
        for value, context in reversed(entered):
            self._enter(value, "__exit__", context)
        self.no_sync, self.free = no_sync, free
        return leaves

    def _enter(self, value: Value, method: str, context: ast.expr) -> None:
        found = value.obj.cls.find(method)
        if found:
            function = FunctionRef(found[0].module, found[1], found[0].env, found[0])
            self.call_function(function, [value], {}, self.site(context))

    _AsyncWith_statement = _With_statement

    def _Try_statement(self, stmt: ast.Try) -> bool:
        outside, before = self.items, dict(self.env)
        self.items = []
        leaves = self.block(stmt.body) or self.block(stmt.orelse)
        body, env = self.items, dict(self.env)
        goes_on = [each for each in stmt.handlers if not _always_leaves(each.body)]
        handled: list[Item] = []
        for handler in stmt.handlers:
            self._restore({**before, **env})
            if handler.name:
                self.env[handler.name] = Value(self.keys.local("an error", *self.site(handler)[:3]))
            self.items = []
            self.block(handler.body)
            if handler in goes_on:
                test = self.keys.local("an error", *self.site(handler)[:3])
                handled = [Branch(test, self.site(handler), self.items, handled)] if handled else self.items
                if not _uniform(handler):
                    for name, value in self.env.items():
                        if name in env and value is not env[name]:
                            env[name] = self.joined(self.unknown(handler).key, value, env[name])
                else:
                    env = {**self.env, **env}
        self.items = outside
        self.items += [Attempt(body, handled)] if goes_on else body
        self._restore(env)
        if stmt.finalbody:
            leaves = self.block(stmt.finalbody) or leaves
        return leaves and not goes_on

    def _For_statement(self, stmt: ast.For | ast.AsyncFor) -> None:
        iterable = self.evaluate(stmt.iter)
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.iter.end_lineno or stmt.lineno)
        functions = iterable.obj if is_elements(iterable.obj) else ()
        if (
            functions
            and all(isinstance(each.obj, FunctionRef | Instance | Bound) for each in functions)
            and not self.quick
        ):
            for each in functions:
                self.bind(stmt.target, each)
                self.block(stmt.body)
            return
        element = self.element(iterable, stmt.iter)

        def round_() -> None:
            self.bind(stmt.target, element)
            self.block(stmt.body)

        self._rounds(self.count(iterable, stmt.iter), site, round_, stmt.orelse, test_led=False)

    _AsyncFor_statement = _For_statement

    def _While_statement(self, stmt: ast.While) -> bool:
        site = Site(self.module.path, stmt.lineno, stmt.col_offset + 1, stmt.test.end_lineno or stmt.lineno)
        test: list[Any] = []

        def round_() -> None:
            test.append(self.evaluate(stmt.test).key)
            self.block(stmt.body)

        self._rounds(lambda: self.keys.make("while", test[-1]), site, round_, stmt.orelse, test_led=True)
        return False

    def _rounds(
        self,
        count: "Key | Callable[[], Key]",
        site: Site,
        round_: "Callable[[], None]",
        orelse: Sequence[ast.stmt],
        *,
        test_led: bool,
    ) -> None:
        """Evaluate a loop: once to see what changes, once more with what a round may find."""
        outside, before, quick = self.items, dict(self.env), self.quick
        if not quick:
            self.items, self.quick, returned = [], True, list(self.returned)
            round_()
            self.quick, self.returned = False, returned
            for name, value in before.items():
                after = self.env.get(name)
                if after is not None and after is not value and after.key is not value.key:
                    before[name] = self._changing(name, site, value, after)
            self._restore(before)
        self.items = []
        round_()
        body, self.items = self.items, outside
        for name, value in before.items():
            after = self.env.get(name)
            if after is not None and after is not value and after.key is not value.key:
                self.env[name] = self._changing(name, site, value, after)
        outside, self.items = self.items, []
        self.block(orelse)
        rest, self.items = self.items, outside
        self.items.append(Rounds(count if isinstance(count, Key) else count(), site, body, rest, self.free, test_led))

    def _changing(self, name: str, site: Site, value: Value, after: Value) -> Value:
        """Return a value that rounds of a loop change: the same where both are, and of what changes it."""
        spread = value.key.spread | after.key.spread
        key = self.keys.make("changing", name, *site[:2], spread=spread & 2)
        if spread & 1:
            key = self.keys.make("changing", name, *site[:2], value.key, after.key)
        return Value(key, value.facts | after.facts, after.obj if after.obj == value.obj else value.obj or after.obj)


def _as_load(target: ast.expr) -> ast.expr:
    match target:
        case ast.Name(id=name):
            return ast.copy_location(ast.Name(id=name, ctx=ast.Load()), target)
        case ast.Attribute(value=value, attr=name):
            return ast.copy_location(ast.Attribute(value=value, attr=name, ctx=ast.Load()), target)
        case ast.Subscript(value=value, slice=index):
            return ast.copy_location(ast.Subscript(value=value, slice=index, ctx=ast.Load()), target)
    return target


def _always_leaves(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(stmt, ast.Raise | ast.Return) or _exits(stmt) for stmt in body)


def _exits(stmt: ast.stmt) -> bool:
    return (
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and last_name(stmt.value) in ("exit", "_exit", "quit")
    )


def _uniform(handler: ast.ExceptHandler) -> bool:
    """Return whether the error of a handler is the same on every rank."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    return bool(caught) and all(last_name(each) in UNIFORM_ERRORS for each in caught)
