"""DW317 and DW318: data of Lightning that the trainer does not share out, or that only one rank of a node has."""

import ast
import re
from collections.abc import Iterator

from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, last_name, nodes_of_body
from ..rule_context import Script, Violation
from ..violations import violation_at_node
from .local_logs import SEVERAL

SHARES_OUT = ("use_distributed_sampler", "replace_sampler_ddp")
SHARED = re.compile(
    r"\b(?:batch_)?sampler\s*=|IterableDataset|Sampler\(|get_rank|global_rank|wds\.|webdataset|world_size"
)
PREPARES = "prepare_data"


def check_sampler(script: Script) -> list[Violation]:
    """DW317: return the loaders that each rank reads whole, because the trainer leaves them as they are."""
    if not any(map(script.mentions, SHARES_OUT)) or script.mentions(SHARED) or not script.mentions(SEVERAL):
        return []
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    loaders = [each for each in calls if last_name(each.func) == "DataLoader"]
    return [
        violation_at_node(
            flag.value,
            f"the trainer does not share out the data, and no loader (line {loaders[0].lineno}) has a sampler that "
            "does: every rank trains on all of them",
            0.8,
        )
        for call in calls
        for flag in call.keywords
        if flag.arg in SHARES_OUT and isinstance(flag.value, ast.Constant) and flag.value.value is False and loaders
    ][:1]


def check_prepared(script: Script) -> list[Violation]:
    """DW318: return the attributes that prepare_data sets, which only one rank of a node calls."""
    if not script.mentions(f"def {PREPARES}(") or not script.mentions(SEVERAL):
        return []
    return [each for cls in nodes_of_kinds(script.source.tree, ast.ClassDef) for each in _of_class(cls)]


def _of_class(cls: ast.ClassDef) -> Iterator[Violation]:
    if not any(last_name(base) in ("LightningDataModule", "LightningModule") for base in cls.bases):
        return
    methods = [each for each in cls.body if isinstance(each, FUNCTIONS)]
    prepares = next((each for each in methods if each.name == PREPARES), None)
    if prepares is None:
        return
    others = {name: node for each in methods if each is not prepares for name, node in _stored(each)}
    read = {
        node.attr
        for method in methods
        if method is not prepares
        for stmt in method.body
        for node in nodes_of_body(stmt)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_own(node)
    }
    for name, node in _stored(prepares):
        if name in read and name not in others:
            yield violation_at_node(
                node,
                f"prepare_data runs on one rank of each node, and sets `{name}` there only: the others have no such "
                "attribute; set it in setup",
                0.85,
            )
            return


def _stored(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.Attribute]]:
    """Yield the attributes of its object that a method sets."""
    for stmt in method.body:
        for node in nodes_of_body(stmt):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node):
                yield node.attr, node


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"
