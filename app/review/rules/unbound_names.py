"""DW479: names of the libraries for several ranks that nothing in the file imports."""

import ast
import builtins
from collections.abc import Iterator

from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS
from ..rule_context import Script, Violation
from ..violations import violation_at_node

# Names under which scripts import what several ranks need; a script for one process comes by without them.
OF_SEVERAL = (
    *("dist", "hvd", "deepspeed", "DDP", "FSDP", "DistributedDataParallel", "FullyShardedDataParallel"),
    *("DistributedSampler", "DDPStrategy", "FSDPStrategy", "DeepSpeedStrategy", "DDPPlugin", "fully_shard"),
    *("init_process_group", "destroy_process_group", "DistributedDataParallelKwargs", "InitProcessGroupKwargs"),
)
# What may bind a name that no statement binds, or expects that it is missing.
BINDS = ("import *", "globals()", "exec(", "NameError", "setattr(builtins", "__builtins__")


def check(script: Script) -> list[Violation]:
    """DW479: return the first call by each such name that no statement of the file binds."""
    if not any(map(script.mentions, OF_SEVERAL)) or any(map(script.mentions, BINDS)):
        return []
    called: dict[str, ast.Name] = {}
    for call in nodes_of_kinds(script.source.tree, ast.Call):
        name = _first_name(call.func)
        if name is not None and name.id in OF_SEVERAL:
            called.setdefault(name.id, name)
    missing = called.keys() - _imported(script.source.tree) if called else set[str]()
    missing = missing - _bound(script.source.tree) if missing else missing
    return [
        violation_at_node(
            called[name],
            f"nothing in this file imports `{name}`: the ranks that come here end with a NameError, and one process "
            "alone may not come here",
            0.85,
        )
        for name in sorted(missing)
    ]


def _first_name(node: ast.expr) -> ast.Name | None:
    """Return the name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _imported(tree: ast.Module) -> set[str]:
    imports = nodes_of_kinds(tree, ast.Import, ast.ImportFrom)
    return {name for node in imports for name in _names_bound(node)}


def _bound(tree: ast.Module) -> set[str]:
    return {*vars(builtins), *(name for node in nodes_below(tree) for name in _names_bound(node))}


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds, in whatever scope."""
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (each.asname or each.name.partition(".")[0] for each in names)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.ClassDef(name=name) | ast.arg(arg=name):
            yield name
        case (
            ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name)
        ):
            yield name
        case _ if isinstance(node, FUNCTIONS):
            yield node.name
        case _:
            pass
