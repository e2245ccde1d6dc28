"""Names of the module and of functions around: what a function that assigns them leaves there."""

import ast

from msgspec.structs import replace

from .expressions import ExpressionEvaluator
from .function_steps import Summary
from .keys import DIFFERS
from .values import Value


class OuterNameEvaluator(ExpressionEvaluator):
    """The names that one function assigns although they are not its own."""

    def live_scope(self) -> dict[str, Value]:
        """Return the names that a function sees which is defined here."""
        scope = self.env if not self.outer else {**self.outer, **self.env}
        self.shared.scopes.append(scope)
        self.shared.names_of_scopes[id(scope)] = self.env
        return scope

    def _Global_statement(self, stmt: ast.Global) -> None:
        self.globals.update(stmt.names)

    def bind_global(self, name: str, value: Value) -> None:
        """Bind a name of the module: whether it is still None elsewhere is not known, but the same on all ranks."""
        before = self.module.env.get(name)
        kept = before is not None and (before.key is self.keys.none or before.key.op == "name")
        if kept and not value.key.differs_by & DIFFERS and value.key.op not in ("constant", "world"):
            value = replace(value, key=self.keys.make("name", self.module.path, name))
        self.shared.count_stores += before is None or before.key is not value.key
        self.module.env[name] = value

    def _Nonlocal_statement(self, stmt: ast.Nonlocal) -> None:
        self.nonlocals.update(stmt.names)
        for name in stmt.names:
            if name not in self.env and (held := self.outer.get(name)):
                self.env[name] = held

    def leave_names(self) -> None:
        """Note what the names of the functions around hold where the function returns."""
        if self.nonlocals:
            held = {name: self.env[name] for name in self.nonlocals if name in self.env}
            self.left_with.append((self.path[-1], held))

    def settle_names(self) -> None:
        """Keep what the function leaves in the names of the functions around, over all its ends."""
        for name in self.nonlocals:
            value = self.env.get(name)
            for condition, names in reversed(self.left_with):
                if held := names.get(name):
                    is_last = value is None or condition is self.keys.true
                    value = held if is_last or value is None else self.joined(condition, held, value)
            if value is not None and value is not self.outer.get(name):
                self.rebound[id(self.outer), name] = value

    def take_names(self, called: Summary) -> None:
        """Bind the names of functions around that a call assigns."""
        for (scope, name), value in called.rebound.items():
            names = self.shared.names_of_scopes.get(scope)
            if names is not None:
                names[name] = value
            if names is not self.env:
                self.rebound[scope, name] = value
