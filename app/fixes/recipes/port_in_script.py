"""``port-in-script``: a free port in place of the one that the script names and another process holds."""

import ast
import os
import re

from ...launchers.rewrite import find_free_port
from ...system.sockets import LISTEN, list_tcp_sockets
from ...training_script.edits import Edit
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult


def port_in_script(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the numbers and texts of the user's files that name the port, if it is held now."""
    port = facts.values.get("port", "")
    listeners = [each for each in list_tcp_sockets(os.getpid()) if each.state == LISTEN]
    if not port.isdigit() or int(port) not in {each.local[1] for each in listeners}:
        return RecipeResult()
    free = str(find_free_port())
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        nodes = [
            node for node in ast.walk(file.source.tree) if isinstance(node, ast.Constant) and _names(node, port, file)
        ]
        edits = [_with_port(file, node, port, free) for node in nodes]
        places += [file.place(node, "the port") for node in nodes]
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _names(node: ast.Constant, port: str, file: UserFile) -> bool:
    """Return whether a number or a text of its own, not a part of an f-string, names the port."""
    if isinstance(node.value, str) and not isinstance(file.source.parents.get(node), ast.JoinedStr):
        return re.search(rf"(?<!\d){port}(?!\d)", node.value) is not None
    return type(node.value) is int and str(node.value) == port


def _with_port(file: UserFile, node: ast.Constant, port: str, free: str) -> Edit:
    return file.source.replace(node, re.sub(rf"(?<!\d){port}(?!\d)", free, file.source.code(node)))
