"""DW494: attributes for a rank, a device or a GPU that no statement of their class sets."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.nodes import nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, contains_line, dotted_name, last_name
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at_node

OF_RANK = re.compile(
    r"(?:\w+_)?(?:rank|ranks|gpu|gpu_id|gpus|device|device_id|world_size|is_main|is_master|is_main_process)"
)
FIX, OF_GPU = "read-set-attribute", {"gpu", "gpu_id", "device_id", "local_rank"}
# Ways to set attributes that do not name them.
BY_NAME = {"setattr", "vars", "__dict__", "__setattr__", "__getattr__", "__getattribute__", "__slots__"}


def check(script: Script) -> list[Violation]:
    """Return the reads of ``self.rank`` and the like in classes where nothing sets it."""
    tree = script.source.tree
    read = [node.lineno for node in nodes_of_kinds(tree, ast.Attribute) if _is_of_rank(node)]
    if not read or not script.has_ranks:
        return []
    classes = nodes_of_kinds(tree, ast.ClassDef)
    reading = [each for each in classes if any(contains_line(each, line) for line in read)]
    return [each for node in reading for each in _of(script, node)]


def _of(script: Script, cls: ast.ClassDef) -> Iterator[Violation]:
    if cls.decorator_list or cls.keywords or any(last_name(base) != "object" for base in cls.bases):
        return
    if not _is_made(script, cls):
        return  # a class above it, or one that it is mixed into, may set the attribute
    nodes = walk(cls)
    if any(_name(node) in BY_NAME for node in nodes):
        return
    known = {each.name for each in cls.body if isinstance(each, (*FUNCTIONS, ast.ClassDef))}
    known |= {node.id for stmt in cls.body for node in walk(stmt) if isinstance(node, ast.Name)}
    known |= _set_anywhere(script)
    missing = set[str]()
    for node in nodes:
        if not isinstance(node, ast.Attribute) or not _is_of_rank(node):
            continue
        name = node.attr
        if name in known or name in missing or _is_tried(script, node):
            continue
        missing.add(name)
        yield violation_at_node(
            node,
            f"nothing sets `self.{name}`: every rank that comes here ends with an AttributeError",
            0.85,
            patch=partial(_read_other, script, cls, node),
        )


def _is_of_rank(node: ast.Attribute) -> bool:
    """Return whether an attribute of ``self`` is read that is named after a rank, a device or a GPU."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
            return bool(OF_RANK.fullmatch(name))
        case _:
            return False


def _read_other(script: Script, cls: ast.ClassDef, read: ast.Attribute) -> Patch:
    """Return the patch that reads the only attribute for the GPU of this process that the constructor surely sets."""
    body = next((each.body for each in cls.body if isinstance(each, FUNCTIONS) and each.name == "__init__"), [])
    targets = {
        target.attr
        for stmt in body
        for target in (stmt.targets if isinstance(stmt, ast.Assign) else ())
        if isinstance(target, ast.Attribute) and dotted_name(target.value) == "self"
    }
    others = targets & OF_GPU
    if read.attr not in OF_GPU or len(others) != 1:
        return no_patch(FIX, "read the attribute that the constructor sets, or set this one there")
    edits = [script.source.replace(read, f"self.{other}") for other in others]
    return Patch(id=FIX, safety="unsafe", why_unsafe="another value may be meant", edits=edits)


def _is_made(script: Script, cls: ast.ClassDef) -> bool:
    """Return whether the script makes objects of a class with a constructor, and no other class inherits it."""
    constructed = any(isinstance(each, FUNCTIONS) and each.name == "__init__" for each in cls.body)
    tree = script.source.tree
    return (
        constructed
        and not any(cls.name in map(last_name, each.bases) for each in nodes_of_kinds(tree, ast.ClassDef))
        and any(last_name(each.func) == cls.name for each in nodes_of_kinds(tree, ast.Call))
    )


def _name(node: ast.AST) -> str:
    if isinstance(node, FUNCTIONS):
        return node.name
    return last_name(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _set_anywhere(script: Script) -> set[str]:
    """Return the names of the attributes that the script sets on any object."""
    return {
        node.attr for node in nodes_of_kinds(script.source.tree, ast.Attribute) if not isinstance(node.ctx, ast.Load)
    }


def _is_tried(script: Script, node: ast.AST) -> bool:
    """Return whether an error at a node is caught, or the script asks for the attribute before."""
    at: ast.AST | None = node
    while at is not None:
        test = getattr(at, "test", None)
        asks = test is not None and any(_name(each) in ("hasattr", "getattr") for each in ast.walk(test))
        if asks or isinstance(at, ast.Try):
            return True
        at = script.source.parents.get(at)
    return False
