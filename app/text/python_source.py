"""Parsing of Python source, in one thread at a time.

CPython 3.11 before 3.11.8 and 3.12 before 3.12.2 keep the depth of a syntax tree that is being made for the whole
interpreter. If two threads make one at once, a parse ends in "SystemError: AST constructor recursion depth mismatch"
(gh-106905).
"""

import ast
import sys
import threading

DEEPEST = 2_000  # a limit of recursion at which Python makes every syntax tree that its parser reads
_PARSING = threading.Lock()


def parse_python(text: str) -> ast.Module:
    """Parse a module.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As ``ast.parse``.
    """
    with _PARSING:
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr:
    """Parse one expression.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As ``ast.parse``.
    """
    with _PARSING:
        return ast.parse(text, mode="eval").body


def parse_deep(text: str) -> ast.Module:
    """Parse a module with up to 5,900 ``elif`` in a row: the limit of Python's parser, not that of calls.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As ``ast.parse``.
    """
    with _PARSING:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, DEEPEST))
        try:
            return ast.parse(text)
        finally:
            sys.setrecursionlimit(before)
