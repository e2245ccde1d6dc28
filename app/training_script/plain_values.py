"""Plain values in a script: constants by name, defaults of its options, arguments of calls."""

import ast
from typing import Any

from .source import ScriptSource
from .syntax import last_name


class PlainValues:
    """The names of a script that hold one plain value: assigned in it, or the default of a command line option."""

    def __init__(self, source: ScriptSource) -> None:
        self._values: dict[str, Any] = {}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._keep(node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self._keep(node.target.id, node.value)
            elif isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
                self._keep_option(node)

    def value(self, node: ast.expr) -> Any:
        """Return the plain value of an expression.

        Raises:
            ValueError, TypeError: It has none.
        """
        if isinstance(node, ast.Name) and node.id in self._values:
            return self._values[node.id]
        if isinstance(node, ast.Attribute) and f".{node.attr}" in self._values:
            return self._values[f".{node.attr}"]
        return ast.literal_eval(node)

    def arguments(self, call: ast.Call) -> tuple[list[Any], dict[str, Any]] | None:
        """Return the positional and keyword arguments of a call, or None if any is not a plain value."""
        if any(each.arg is None for each in call.keywords):
            return None
        try:
            args = [self.value(each) for each in call.args]
            keywords = {each.arg: self.value(each.value) for each in call.keywords if each.arg}
        except (ValueError, TypeError):
            return None
        return args, keywords

    def _keep(self, name: str, node: ast.expr) -> None:
        try:
            self._values[name] = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError):
            self._values.pop(name, None)  # assigned something else later

    def _keep_option(self, call: ast.Call) -> None:
        """Keep the default of an option as ``args.name``."""
        flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        default = next((each.value for each in call.keywords if each.arg == "default"), None)
        if flags and default is not None:
            self._keep("." + max(flags, key=len).lstrip("-").replace("-", "_"), default)


def calls_by_line(node: ast.AST) -> list[ast.Call]:
    """Return the calls below ``node`` in the order of their lines."""
    return sorted((each for each in ast.walk(node) if isinstance(each, ast.Call)), key=lambda each: each.lineno)
