"""The state of the evaluation of one function, and the places and simple values that all its parts make."""

import ast
from collections.abc import Sequence

from .function_steps import Item
from .keys import Key
from .sequences import Site
from .shared_state import Shared
from .values import (
    Attribute,
    ClassRef,
    FunctionRef,
    Instance,
    Library,
    Module,
    Value,
)

PLACED = (ast.expr, ast.stmt)
# Whether a call is in a context of ``no_sync``, whether in one of ``join``, and a condition around it.
Within = tuple[bool, bool, Key | None]
OUTSIDE: Within = False, False, None
Values = list[Value]
Named = dict[str, Value]


class EvaluatorState:
    """State of the evaluation of one function, with what the classes of expressions and statements provide."""

    __slots__ = (  # more attributes than an instance can hold in place
        "again",
        "budget",
        "env",
        "filled",
        "first_set",
        "free",
        "function",
        "globals",
        "items",
        "keys",
        "known",
        "left_rounds",
        "left_with",
        "loops",
        "module",
        "no_grad",
        "no_sync",
        "nonlocals",
        "on_demand",
        "outer",
        "parameters",
        "path",
        "program",
        "quick",
        "reads",
        "rebound",
        "returned",
        "seen",
        "set_here",
        "sets",
        "settled",
        "shared",
        "skipped",
        "stored",
        "unknown_calls",
        "yielded",
    )

    def __init__(self, shared: Shared, module: Module, env: dict[str, Value], outer: dict[str, Value]) -> None:
        self.shared, self.module = shared, module
        self.keys, self.program, self.budget = shared.keys, shared.program, shared.budget
        self.env, self.outer = env, outer
        self.items: list[Item] = []
        self.no_sync = False
        self.no_grad = False
        self.free = False  # in a context in which ranks may run different numbers of rounds
        self.on_demand = False  # where something is made that is kept then
        self.quick = False  # the first evaluation of a loop
        self.again = False  # a second evaluation of the loop may give something else
        self.seen: list[tuple[ast.expr, Value]] = []  # the values of expressions in the first evaluation of a loop
        self.path: list[Key] = [shared.keys.true]  # the conditions around the statement, each with those before it
        self.returned: list[tuple[Key, Value]] = []  # with the condition under which each is reached
        self.loops: list[Value] = []  # what the loops around the statement go over
        self.yielded: list[tuple[tuple[Key, ...], Value]] = []  # what decides how many times, and the element
        self.skipped: list[Key] = []  # under what rounds of the loops around have gone on to the next
        self.left_rounds: list[dict[str, Value]] = []  # the names where break and continue leave a round
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.left_with: list[tuple[Key, dict[str, Value]]] = []  # these names where the function returns
        self.rebound: dict[tuple[int, str], Value] = {}  # names of the functions around, by the scope of these
        self.parameters: list[str] = []
        self.stored: dict[str, Value] = {}  # attributes that a constructor has set
        self.settled: dict[str, Value] = {}  # what attributes of its object hold where it ends
        self.sets: set[str] = set()  # the names of attributes that the function or one that it calls sets
        self.reads: dict[tuple[ClassRef, str], int] = {}  # attributes of the program's classes, see ``Summary``
        self.set_here: dict[str, Attribute] = {}  # by their names in ``env``: what statements of the function have set
        self.first_set: set[str] = set()  # of these, those that nothing had set before
        self.filled: set[int] = set()  # places of parameters that a collective fills
        self.unknown_calls = 0
        self.known: dict[ast.expr, Value] | None = None  # the values of one call, where they are asked for
        self.function: FunctionRef | None = None

    # ---- provided by the classes of expressions, statements and functions

    def call_function(
        self, function: FunctionRef, values: Values, named: Named, site: Site, arguments: Sequence[ast.expr] = ()
    ) -> Value:
        raise NotImplementedError

    def handed_on(self, function: FunctionRef, node: ast.Call, values: Values, named: Named) -> Value | None:
        raise NotImplementedError

    def instantiate(self, cls: ClassRef, values: Values, named: Named, site: Site) -> Value:
        raise NotImplementedError

    def ordered(self, held: Value, node: ast.Call, named: Named) -> Value:
        raise NotImplementedError

    def length_of(self, held: Value, node: ast.AST) -> Value:
        raise NotImplementedError

    def attribute_of_instance(self, instance: Instance, name: str) -> Value | None:
        raise NotImplementedError

    def method_of(self, cls: ClassRef, node: "ast.FunctionDef | ast.AsyncFunctionDef") -> FunctionRef:
        raise NotImplementedError

    def as_text(self, value: Value, node: ast.expr) -> None:
        raise NotImplementedError

    def _invoked(self, callee: Value, node: ast.Call, values: Values, named: Named) -> Value:
        raise NotImplementedError

    def exit_program(self, call: ast.Call, values: Values) -> None:
        raise NotImplementedError

    def evaluate(self, node: ast.expr | None) -> Value:
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Value) -> None:
        raise NotImplementedError

    def module_value(self, module: Module, name: str) -> Value | None:
        raise NotImplementedError

    # ---- values

    def site(self, node: ast.AST) -> Site:
        if isinstance(node, PLACED):
            return Site(self.module.path, node.lineno, node.col_offset + 1, node.end_lineno or node.lineno)
        line = getattr(node, "lineno", 1)
        return Site(
            self.module.path, line, getattr(node, "col_offset", 0) + 1, getattr(node, "end_lineno", line) or line
        )

    def place(self, node: ast.AST) -> tuple[str, int, int]:
        """Return the path, the line and the column of a node."""
        if isinstance(node, ast.expr):
            return self.module.path, node.lineno, node.col_offset + 1
        return self.module.path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1

    def constant(self, value: object) -> Value:
        key = self.keys.constant(value)
        known = self.shared.constants.get(key)
        if known is None:
            known = self.shared.constants[key] = Value(key)
        return known

    def library(self, name: str) -> Value:
        """Return something of a library by its qualified name."""
        known = self.shared.libraries.get(name)
        if known is None:
            known = self.shared.libraries[name] = Value(self.keys.make("library", name), obj=Library(name))
        return known

    def qualified(self, value: Value) -> str:
        return value.obj.name if isinstance(value.obj, Library) else ""
