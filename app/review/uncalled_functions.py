"""Functions that nothing in their project calls: what is wrong in them harms no run until something does."""

import ast
import os
import re
from pathlib import Path

from ..errors import UserError
from ..system.files import read_regular_file
from ..training_script.model.libraries_in_use import libraries_in_use
from ..training_script.model.users import runs_as_script
from ..training_script.nodes import walk
from ..training_script.project_imports import MOST_ABOVE, is_project_top
from ..training_script.syntax import FUNCTIONS, Function, contains_line
from .files import NOT_OURS
from .rule_context import Script

MOST_FILES = 2_000  # of a project; of a larger one it is not known what they call
MOST_ENTRIES = 50_000  # of its directories, which may hold a data set
LARGEST_BYTES = 1_000_000  # of a file
ENDINGS = (".py", ".ipynb", ".yaml", ".yml", ".toml", ".cfg", ".gin", ".sh")
PACKAGE = "__init__.py"  # whose imports hand functions on
WORD = re.compile(r"\w+")
COMMENT = re.compile(r"^\s*#.*|^\s*(?:async )?def \w+", re.MULTILINE)
IMPORT = re.compile(r"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]+(?:\([^)]*\)|[^\n]*)", re.MULTILINE)
# Ways to call a function without its name.
BY_NAME = re.compile(r"\bglobals\(\)|\bgetattr\((?!\w+, [\"'])|\bFire\(")


def is_called_nowhere(script: Script, line: int) -> bool:
    """Return whether a line is in a function or a method whose name nothing in the project uses.

    A file on its own tells this of a script only: the functions of a module are for others.
    """
    function = _outermost(script.source.tree, line)
    if function is None or function.decorator_list or function.name == "main" or function.name.startswith("__"):
        return False
    if script.mentions(BY_NAME) or function.name in _used(script.source.tree, function):
        return False
    path = Path(script.source.path)
    above = path.parents[:MOST_ABOVE] if path.is_absolute() else ()
    top = next((each for each in above if is_project_top(each)), None)
    if top is None:
        return runs_as_script(script.source.text)
    words = _words_of(top)
    return words is not None and function.name not in words


def _outermost(tree: ast.Module, line: int) -> Function | None:
    """Return the function of a module around a line, or the method of one of its classes that is based on no other."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS) and contains_line(node, line):
            return node
        if isinstance(node, ast.ClassDef) and contains_line(node, line) and not (node.bases or node.decorator_list):
            return next((each for each in node.body if isinstance(each, FUNCTIONS) and contains_line(each, line)), None)
    return None


def _used(tree: ast.Module, function: Function) -> set[str]:
    """Return the names that a file uses outside of a function, those in texts too."""
    inside = set(map(id, walk(function)))
    return {word for node in walk(tree) if id(node) not in inside for word in _words(node)}


def _words(node: ast.AST) -> list[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name]
        case ast.Constant(value=str(text)):
            return WORD.findall(text)
        case _:
            return []


def _words_of(top: Path) -> frozenset[str] | None:
    """Return the words of all files of a project, apart from comments, imports and names that are defined."""
    known = libraries_in_use().words
    if top not in known:
        files = _files(top)
        words = set[str]()
        for file in files or ():
            text = _text(file)
            text = text if file.name == PACKAGE or file.suffix != ".py" else IMPORT.sub("", text)
            words.update(WORD.findall(COMMENT.sub("", text)))
        known[top] = None if files is None else frozenset(words)
    return known[top]


def _files(top: Path) -> list[Path] | None:
    """Return the files of a project that may name its functions, or None if it is too large."""
    found, entries = list[Path](), 0
    for folder, folders, names in os.walk(top):
        folders[:] = [each for each in folders if each not in NOT_OURS]
        found += [Path(folder, name) for name in names if name.endswith(ENDINGS)]
        entries += len(folders) + len(names)
        if len(found) > MOST_FILES or entries > MOST_ENTRIES:
            return None
    return found


def _text(file: Path) -> str:
    try:
        return read_regular_file(file, LARGEST_BYTES, "").decode("utf-8", "replace")
    except (OSError, UserError):
        return ""
