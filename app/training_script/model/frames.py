"""The values of expressions in stack frames: each function with the arguments that the frame before passes to it.

A file is evaluated once as a script, which gives the values over all calls. Each step of a stack evaluates one function
again, with the values of its caller. Both may take so many steps, and what they do not reach is judged by its names.
"""

import ast
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..syntax import FUNCTIONS, Function
from .budget import Budget, OverBudget
from .definitions import is_static
from .evaluation import Evaluation
from .evaluator_state import Named, Values
from .functions import FunctionEvaluator
from .keys import BY_RANK, TOUCHED, Key, Rank
from .parsed_modules import ParsedModule
from .program import Program
from .values import Bound, ClassRef, FunctionRef, Instance, Module, Value

MOST_STEPS = 20_000  # of a file, and of each frame
CUT_SHORT = (OverBudget, RecursionError)
NAMED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


class FrameValues:
    """The values in one frame. Those of expressions in other functions are those over all calls."""

    def __init__(self, stacks: "StackEvaluation", module: Module, known: dict[ast.expr, Value]) -> None:
        self._stacks, self._module, self._known = stacks, module, known

    def value(self, expr: ast.expr) -> Value:
        """Return the value of an expression, which need not be one of the script."""
        known = self._known.get(expr)
        if known is None:
            reader = _Reader(self._stacks, self._module, self._known)
            try:
                return reader.evaluate(expr)
            except CUT_SHORT:
                return reader.unknown(expr)
        return known

    def on_rank(self, expr: ast.expr, rank: int, local_rank: int | None, world_size: int) -> Any:
        """Return the value of an expression on a rank.

        Raises:
            LookupError: It does not follow from the rank.
        """
        who = Rank(rank, local_rank, None, world_size, None)
        seen = self._stacks.keys.specialise(self.value(expr).key, who)
        if not seen.is_constant:
            raise LookupError
        return seen.value

    def depends_on_rank(self, expr: ast.expr) -> bool:
        """Return whether a rank goes into a value; what an unknown function makes of something else does not count."""
        differs_by = self.value(expr).key.differs_by
        if differs_by & BY_RANK or not differs_by & TOUCHED:
            return bool(differs_by & BY_RANK)
        calls = (node for node in ast.walk(expr) if isinstance(node, ast.Call))
        return any(self.value(part).key.op == "rank" for call in calls for part in call.args)

    def names_rank(self, expr: ast.expr) -> bool:
        """Return whether a part of an expression itself is a rank, or asks whether the rank has some number."""
        parts = (
            node for node in ast.walk(expr) if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        )
        return any(_is_rank(self.value(part).key) for part in parts)


class StackEvaluation:
    """One evaluation of the files of a job, as far as its stacks need them. ``tree``: the syntax tree of a path."""

    def __init__(self, tree: Callable[[str], ast.Module | None]) -> None:
        self._tree = tree
        self._whole: Evaluation | None = None
        self._modules: dict[str, Module] = {}
        self._class_of: dict[ast.AST, ast.ClassDef] = {}

    @property
    def keys(self) -> Any:
        assert self._whole
        return self._whole.keys

    def frame(self, path: str, function: ast.AST, caller: "tuple[FrameValues, ast.Call] | None" = None) -> FrameValues:
        """Return the values in a function of a file, over all its calls or for that of ``caller``."""
        module = self._module(path)
        if caller is None or not isinstance(function, Function):
            return FrameValues(self, module, {})
        known: dict[ast.expr, Value] = {}
        before, call = caller
        callee = before.value(call.func).obj
        reference, owner = self._reference(module, function, callee)
        values = [*owner, *(before.value(each) for each in _placed(call.args))]
        named = {each.arg: before.value(each.value) for each in call.keywords if each.arg}
        every = len(values) == len(owner) + len(call.args) and len(named) == len(call.keywords)
        self._run(reference, values, named, known, every)
        return FrameValues(self, module, known)

    def reader(self, module: Module) -> tuple[Evaluation, Module]:
        assert self._whole
        self._whole.budget = Budget(MOST_STEPS)
        return self._whole, module

    def _module(self, path: str) -> Module:
        if path not in self._modules:
            if self._whole is None:
                self._whole = Evaluation(
                    Program(Path(path), lambda known: self._tree(str(known))), "", Budget(MOST_STEPS)
                )
            module = self._whole.program.given(path) or Module(path, ParsedModule(ast.Module([], []), ""))
            self._modules[path] = module
            for node in ast.walk(module.parsed.tree):
                if isinstance(node, ast.ClassDef):
                    self._class_of |= dict.fromkeys(node.body, node)
            self._whole.budget = Budget(MOST_STEPS)
            with suppress(*CUT_SHORT):
                self._whole.run_script(module)
                self._run_the_rest(module)
        return self._modules[path]

    def _run_the_rest(self, module: Module) -> None:
        """Evaluate the functions that nothing calls, each for unknown arguments."""
        assert self._whole
        for node in ast.walk(module.parsed.tree):
            if isinstance(node, FUNCTIONS) and node not in self._whole.evaluated:
                reference, _ = self._reference(module, node, None)
                self._whole.run_function(reference)

    def _reference(self, module: Module, node: Function, callee: object) -> tuple[FunctionRef, Values]:
        """Return the function of a frame as the caller refers to it, else as its file defines it; and its object."""
        assert self._whole
        if isinstance(callee, FunctionRef) and callee.node is node:
            return callee, []
        if isinstance(callee, Bound) and callee.function.node is node:
            return callee.function, [callee.owner]
        if isinstance(node, FUNCTIONS):
            holder = self._class_of.get(node)
            cls = self._class(module, holder) if holder else None
            if cls:
                function = FunctionRef(module, node, cls.env, cls)
                if is_static(node):
                    return function, []
                self._whole.prepare(cls)
                return function, [Value(self._whole.keys.make("instance", id(cls)), obj=Instance(cls))]
        return self._whole.evaluated.get(node) or FunctionRef(module, node, {}), []

    def _class(self, module: Module, node: ast.ClassDef) -> ClassRef | None:
        held = module.env.get(node.name)
        return held.obj if held and isinstance(held.obj, ClassRef) and held.obj.node is node else None

    def _run(
        self, function: FunctionRef, values: Values, named: Named, known: dict[ast.expr, Value], every: bool
    ) -> None:
        """Evaluate a function; ``every``: the arguments are all that the call passes."""
        assert self._whole
        self._whole.budget = Budget(MOST_STEPS)
        evaluator = FunctionEvaluator(self._whole, function.module, {}, function.env, function)
        evaluator.known = known
        with suppress(*CUT_SHORT):
            evaluator.run(values, named, called=every)


class _Reader(FunctionEvaluator):
    """Evaluation of an expression from values that are known."""

    def __init__(self, stacks: StackEvaluation, module: Module, known: dict[ast.expr, Value]) -> None:
        whole, module = stacks.reader(module)
        super().__init__(whole, module, {}, {}, None)
        self.quick = True  # nothing is kept
        self._frame = known

    def evaluate(self, node: ast.expr | None) -> Value:
        if node in self._frame:
            return self._frame[node]
        key = self.whole.values.get(node) if node else None
        return Value(key) if key else super().evaluate(node)


def _placed(arguments: Sequence[ast.expr]) -> list[ast.expr]:
    """Return the arguments whose places are known."""
    starred = next((at for at, each in enumerate(arguments) if isinstance(each, ast.Starred)), len(arguments))
    return list(arguments[:starred])


def _is_rank(key: Key) -> bool:
    """Return whether a value is a rank, or a comparison of a rank with something."""
    if key.op in ("compare", "not", "and", "or"):
        return any(_is_rank(part) for part in key.args if isinstance(part, Key))
    return key.op == "rank"
