"""Patches that give a call of the user's code an argument: ``DDP(…, find_unused_parameters=True)``."""

import ast
import re

from ...knowledge.schema import CallOption
from ...knowledge.templates import fill_template
from ..text.python_source import parse_expression
from ..training_script.edits import Edit
from .facts import CaseFacts
from .types import FilePatch, Place
from .user_code import UserFile

MODULES = re.compile(r"(?<![\w.])(datetime|os|torch)\.")


def patch_calls(options: list[CallOption], facts: CaseFacts) -> tuple[list[FilePatch], list[Place]]:
    """Return the patches that set the arguments in the user's files, and the calls that they change."""
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits: list[Edit] = []
        for option in options:
            value = fill_template(option.value, facts.values)
            for call in file.calls([option.call]):
                if edit := _edit(file, call, option, _in_words_of(file, value)):
                    edits.append(edit)
                    places.append(file.place(call))
                    edits += _imports(file, value)
        if edits:
            patches.append(file.patched(edits))
    return patches, places


def _edit(file: UserFile, call: ast.Call, option: CallOption, value: str) -> Edit | None:
    """Return the edit of one call, or None if it has the argument already, or its arguments are not known."""
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    given = next((keyword.value for keyword in call.keywords if keyword.arg == option.argument), None)
    if given is None and option.place is not None and option.place < len(call.args):
        given = call.args[option.place]
    if given is not None:
        same = ast.unparse(given) == ast.unparse(parse_expression(value))
        return None if same or not option.replace else file.source.replace(given, value)
    return file.source.add_argument(call, f"{option.argument}={value}")


def _in_words_of(file: UserFile, value: str) -> str:
    """Return the value with the name under which the file imports ``datetime.timedelta``."""
    name = next((alias for alias, full in file.imports.items() if full == "datetime.timedelta"), "")
    return value.replace("datetime.timedelta", name) if name else value


def _imports(file: UserFile, value: str) -> list[Edit]:
    """Return the edits that import the modules that the value needs and the file does not import."""
    value = _in_words_of(file, value)
    missing = [name for name in dict.fromkeys(MODULES.findall(value)) if file.imports.get(name) != name]
    if not missing:
        return []
    body = file.source.tree.body
    after_docstring = [
        node
        for node in body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    first = after_docstring[0].lineno if after_docstring else 1
    return [file.source.insert_line(first, f"import {name}", "") for name in missing]
