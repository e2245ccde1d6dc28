"""Evaluate a program: each function once for each kind of its arguments, to its result and its steps in order.

Values are symbolic (``keys``), so that one evaluation serves all ranks. Branches are joined. Loops are evaluated first
to see what a round changes, then, if it changes anything, with what it may find changed. Nothing of the program is
executed.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ..nodes import walk
from ..syntax import FUNCTIONS
from .argument_kinds import flags_of, kind
from .budget import Budget, OverBudget
from .definitions import is_harmless, is_static
from .evaluator_state import OUTSIDE, Within
from .function_steps import Item, Summary
from .functions import FunctionEvaluator
from .objects import SharedFunctions
from .program import Program
from .values import ClassRef, FunctionRef, Instance, Module, Value

MOST_FLAGS = 3  # combinations of arguments that are True, False or None
MOST_CONTEXTS = 4  # kinds of arguments for which a function is evaluated apart
MOST_DEPTH = 25  # of calls
AT_HOME = nullcontext()


class Evaluation(SharedFunctions):
    """One evaluation of a program: what all functions share."""

    def __init__(self, program: Program, text: str, budget: Budget) -> None:
        super().__init__(program, text, budget)
        self.depth = 0
        self.script: Module | None = None
        self.abroad = False  # in a function of another file, which may take a share of the steps
        self.unfinished: set[ast.AST] = set()  # functions for which such a share was not enough
        self.contexts: Counter[Any] = Counter()
        self.alike: dict[tuple[Any, ...], Summary] = {}  # of a function with such flags, or of a function
        self.summaries: dict[tuple[Any, ...], Summary] = {}
        self.renewed: set[tuple[Any, ...]] = set()  # the summaries that were made a second time
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
        """Evaluate a function of which no call is known, as its decorators make it."""
        owner = None
        named = function.module.env.get(getattr(function.node, "name", ""))
        made = named.obj if named and not function.owner else None
        if isinstance(made, FunctionRef) and made.wraps and made.wraps.node is function.node:
            function = made
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
        kinds = ((name, kind(function.env[name])) for name in names if name in function.env)
        return (function.decorated, *kinds)

    def forget(self) -> None:
        """Empty what refers to itself."""
        self.program.forget()
        self.keys.forget()
        for cls in self.defined:
            cls.forget()
        for names in self.scopes:
            names.clear()
        self.names_of_scopes.clear()
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
        self,
        function: FunctionRef,
        values: list[Value],
        named: dict[str, Value],
        *,
        called: bool = True,
        within: Within = OUTSIDE,
    ) -> Summary:
        """Return what a function does with such arguments; ``called``: they are all that a call passes."""
        node = function.node, self._closure(function), within
        signature = (
            node,
            called,
            tuple(map(kind, values)),
            tuple([(name, kind(value)) for name, value in named.items()]),
        )
        known = self.summaries.get(signature)
        if known is not None and (signature in self.renewed or not known.is_outdated):
            return known
        flags = node, flags_of(values), tuple(named), flags_of(named.values())
        if known is not None:
            self.renewed.add(signature)
            self.contexts[flags] -= 1
            self.contexts[node] -= 1
        many = self.contexts[flags] >= MOST_CONTEXTS or self.contexts[node] >= MOST_CONTEXTS * MOST_FLAGS
        if many and not any(type(value.obj) is FunctionRef and value.obj.decorated for value in values):
            alike = self.alike.get(flags) or self.alike.get(node)
            if alike:
                return alike
        self.contexts[flags] += 1
        self.contexts[node] += 1
        made = self.summaries[signature] = Summary()
        self.results[id(made)] = Value(self.keys.make("recursive", id(function.node)))
        if self.depth >= MOST_DEPTH or function.node in self.unfinished:
            return made
        self.depth += 1
        had_group = self.has_group
        self.evaluated[function.node] = function
        try:
            begins_abroad = not self.abroad and self.script is not None and function.module is not self.script
            with self._steps_abroad(function) if begins_abroad else AT_HOME:
                evaluator = FunctionEvaluator(self, function.module, {}, function.env, function)
                evaluator.no_sync, evaluator.free, condition = within
                evaluator.path = [condition] if condition else evaluator.path
                made.items, self.results[id(made)] = evaluator.run(values, named, called=called)
                made.filled, made.returned = evaluator.filled, [value for _, value in evaluator.returned]
                made.stored, made.sets, made.settled = evaluator.stored, evaluator.sets, evaluator.settled
                made.rebound, made.reads = evaluator.rebound, evaluator.reads
                made.complete, made.makes_group = True, self.has_group and not had_group
                decorators = () if function.decorated else getattr(function.node, "decorator_list", ())
                made.wrapped = any(not is_harmless(each) for each in decorators)
                self.alike[flags] = self.alike[node] = made
        finally:
            self.depth -= 1
        return made

    @contextmanager
    def _steps_abroad(self, function: FunctionRef) -> Iterator[None]:
        """Take the steps of a call into another file from those for such calls; it ends where they do."""
        outside, self.abroad = self.budget, True
        try:
            with outside.part_abroad() as self.budget:
                yield
        except OverBudget:
            self.unfinished.add(function.node)
        finally:
            self.abroad, self.budget = False, outside


def _names(node: ast.AST) -> frozenset[str]:
    """Return the names that a function reads."""
    return frozenset(each.id for each in walk(node) if isinstance(each, ast.Name))
