"""The functions around places in files."""

import ast
from pathlib import Path

from ..nodes import nodes_of_kinds
from ..syntax import FUNCTIONS, Function
from .parsed_modules import PARSED_MODULES
from .sequences import Site


def innermost_function(tree: ast.AST, line: int) -> Function | None:
    """Return the innermost function around a line, or None."""
    functions = nodes_of_kinds(tree, *FUNCTIONS)
    around = (each for each in functions if each.lineno <= line <= (each.end_lineno or each.lineno))
    return max(around, key=lambda each: each.lineno, default=None)


def function_in_module(site: Site) -> Function | None:
    """Return the innermost function around a place in a module that was read for its importer, or None."""
    module = PARSED_MODULES.get(Path(site.path))
    return innermost_function(module.tree, site.line) if module else None
