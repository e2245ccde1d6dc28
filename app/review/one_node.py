"""Scripts that run on one node only: there the global rank is the local rank, and one rank of a node is one of all."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path

from ..errors import UserError
from ..training_script.model.keys import rank_in
from ..training_script.model.libraries_in_use import libraries_in_use
from ..training_script.model.noted_calls import INIT
from ..training_script.model.signatures import place_of
from ..training_script.nodes import nodes_below
from ..training_script.project_imports import read_module
from ..training_script.rank_names import WORLD_SIZE
from ..training_script.syntax import call_argument, dotted_name
from .rule_context import Script

THIS_HOST = re.compile(r"(?:\w+://)?(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::.*)?")
OF_NODES = re.compile(
    r"nnodes|num_nodes|node_rank|NODE_RANK|GROUP_RANK|SLURM_|LOCAL_WORLD_SIZE|MASTER_ADDR|machine_rank"
)
MAKES_GROUP = re.compile(r"\binit_process_group\(")
MOST_FILES = 500  # of a package
STARTED_ON_ONE = re.compile(r"--standalone\b|--nnodes[= ]1\b")  # as its documentation says


def is_for_one_node(script: Script) -> bool:
    """Return whether the script runs on one node only, as far as it shows this itself, or the starts of its package."""
    return _says_one_node(script) or _is_started_on_one_node(script)


def _says_one_node(script: Script) -> bool:
    return bool(STARTED_ON_ONE.search(script.source.text)) or any(
        _shows_one_node(script, node) for node in nodes_below(script.source.tree)
    )


def shows_several_nodes(script: Script) -> bool:
    """Return whether the script asks for more than the ranks of one node: a global rank, or the number of a node."""
    if script.evaluated.keys.kinds_read & {"global", "node"}:
        return True
    return script.mentions(OF_NODES)


def _is_started_on_one_node(script: Script) -> bool:
    """Return whether a script makes no process group, and all modules of its package that make one are for one node."""
    path = Path(script.source.path)
    package = _top_package(path)
    if package is None or not path.is_absolute() or script.mentions(MAKES_GROUP):
        return False
    known = libraries_in_use().on_one_node
    if package not in known:
        known[package] = False  # for a module that is asked for again meanwhile
        says = map(_says_one_node, _starts(package))
        known[package] = next(says, False) and all(says)
    return known[package]


def _top_package(path: Path) -> Path | None:
    packages = takewhile(lambda folder: (folder / "__init__.py").exists(), path.parents)
    return next(iter([*packages][::-1]), None)


def _starts(package: Path) -> Iterator[Script]:
    """Yield the modules of a package that make a process group; none of a package with too many files."""
    files = [*islice(package.rglob("*.py"), MOST_FILES + 1)]
    for file in files if len(files) <= MOST_FILES else ():
        text = read_module(file)
        if text and MAKES_GROUP.search(text):
            with suppress(UserError):
                yield Script(text, str(file))


def _shows_one_node(script: Script, node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=left, comparators=[right]):
            texts = ast.unparse(left), ast.unparse(right)
            pairs = (texts, texts[::-1])
            return any("device_count" in one and WORLD_SIZE.search(other) for one, other in pairs)
        case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            return {_rank_kind(script, left), _rank_kind(script, right)} == {"local", "global"}
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value="MASTER_ADDR"))], value=value):
            return _is_this_host(value) and not _is_conditional(script, node)
        case ast.Assign(targets=[target], value=value) if WORLD_SIZE.fullmatch(dotted_name(target).rpartition(".")[2]):
            return "device_count()" in ast.unparse(value)
        case ast.Call() if script.names.qualified(node.func).endswith("init_process_group"):
            method, rank = (call_argument(node, name, place_of(INIT, name)) for name in ("init_method", "rank"))
            return _is_spawned_rank(script, rank) or bool(method and _is_this_host(method))
        case ast.Subscript(slice=ast.Constant(value="CUDA_VISIBLE_DEVICES"), ctx=ast.Store()):
            return True
        case ast.ClassDef(bases=bases):
            return any(dotted_name(base).endswith(("TestCase", "TestBase")) for base in bases)
        case ast.Import(names=[ast.alias(name="pytest" | "unittest"), *_]):
            return True
    return False


def _rank_kind(script: Script, node: ast.expr) -> str:
    """Return what kind of a rank an expression is, "" if it is none."""
    value = script.evaluated.value(node)
    rank = rank_in(value) if value else None
    return rank.args[0] if rank else ""


def _is_this_host(value: ast.expr) -> bool:
    """Return whether a text is the address of the host itself."""
    match value:
        case ast.JoinedStr(values=[text, *_]) | ast.BinOp(left=text, op=ast.Add() | ast.Mod()):
            pass
        case ast.Call(func=ast.Attribute(value=text, attr="format")):
            pass
        case _:
            text = value
    return isinstance(text, ast.Constant) and isinstance(text.value, str) and bool(THIS_HOST.fullmatch(text.value))


def _is_conditional(script: Script, node: ast.AST) -> bool:
    """Return whether a statement is below a condition, as a default of what a launcher sets."""
    above = script.source.parents.get(node)
    while above is not None and not isinstance(above, ast.If | ast.Try):
        above = script.source.parents.get(above)
    return above is not None and "__name__" not in ast.unparse(getattr(above, "test", above))


def _is_spawned_rank(script: Script, rank: ast.expr | None) -> bool:
    value = script.evaluated.value(rank) if rank else None
    given = rank_in(value) if value else None
    return bool(given and given.args[0] in ("local", "spawned") and given.args[1] and script.names.spawned)
