"""DW429: losses that are means over the tokens of a rank, whose number differs, averaged by DDP."""

import ast
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK, LOCAL, Key
from ...training_script.model.reach import Run
from ...training_script.nodes import node_at, nodes_below, nodes_of_kinds
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at, violation_at_node
from .counted_divisors import is_divided_by_count

LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")
CRITERIA = ("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss")
FILLS = ("pad_sequence", "pad", "masked_fill", "masked_fill_", "where")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the means that leave out padding, where the script fills up samples of different lengths."""
    if not any(reach.several for reach, _ in run.of(*DDP_CLASSES)):
        return
    yield from _of_criteria(script, run)
    yield from _of_masks(script, run)
    for reach, fact in run.of(*LOSSES):
        ignored = next((each.value for each in fact.node.keywords if each.arg == "ignore_index"), None)
        reduction = fact.named.get("reduction")
        mean = reduction is None or (reduction.key.is_constant and reduction.key.value == "mean")
        graph = bool(fact.values) and "graph" in fact.values[0].facts
        if ignored is None or not mean or not graph or not reach.several or not reach.loops:
            continue
        labels = fact.values[1].key if len(fact.values) > 1 else None
        filled = _filled(script, ignored)
        if filled is not None and (labels is None or labels.differs_by & (BY_RANK | LOCAL)):
            yield from violation_at(
                script,
                reach,
                f"this is the mean over the tokens of a rank that are no padding (line {filled.lineno}), and DDP "
                "averages these means: a token counts more on a rank with few of them",
                0.7,
                related=[RelatedPlace(path=script.source.path, line=filled.lineno, message="filled up here")],
            )


def _of_criteria(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the losses that are made once, of which the mean leaves out padding."""
    trained = [fact.owner for _, fact in run.of(".backward") if fact.owner and "graph" in fact.owner.facts]
    for node in nodes_below(script.source.tree) if trained and run.function is None else ():
        if not isinstance(node, ast.Call) or script.names.qualified(node.func) not in CRITERIA:
            continue
        given = {each.arg: each.value for each in node.keywords}
        reduction = given.get("reduction")
        mean = reduction is None or (isinstance(reduction, ast.Constant) and reduction.value == "mean")
        filled = _filled(script, given["ignore_index"]) if "ignore_index" in given and mean else None
        if filled is not None:
            yield violation_at_node(
                node,
                "this loss is the mean over the tokens of a rank that are no padding (line "
                f"{filled.lineno}), and DDP averages these means: a token counts more among few",
                0.7,
            )


def _of_masks(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the losses that are divided by a sum over a mask of this rank."""
    for reach, fact in run.of(".backward"):
        loss = fact.owner
        if loss and "graph" in loss.facts and reach.several and is_divided_by_count(script, loss.key):
            path, line, column = loss.key.args[2].args[:3] if loss.key.args[2].op == "at" else ("", 0, 0)
            made = node_at(script.source.tree, line, column, ast.Call) if path == script.source.path else None
            divided = _division(script, loss.key)
            yield from violation_at(
                script,
                at_node(script, reach, made),
                "this loss is divided by a number that data of each rank decide, and DDP averages the gradients: a "
                "token counts more on a rank with few of them",
                0.7,
                severity="warning",
                related=[RelatedPlace(path=script.source.path, line=divided.lineno, message="divided here")]
                if divided
                else None,
            )


def _division(script: Script, loss: Key) -> ast.BinOp | None:
    """Return the division in this script that gives a loss."""
    divisions = nodes_of_kinds(script.source.tree, ast.BinOp)
    return next((each for each in divisions if script.evaluated.value(each) is loss), None)


def _filled(script: Script, ignored: ast.expr) -> ast.expr | ast.stmt | None:
    """Return where samples are filled up with the value that a loss leaves out, to a length that is not their own."""
    name = dotted_name(ignored)
    wanted = ast.dump(ignored)
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(slice=index)], value=value) if ast.dump(value) == wanted:
                inner = {type(each) for each in ast.walk(index)}
                if inner & {ast.Slice, ast.Compare} or isinstance(index, ast.Name):
                    return node
            case ast.Call() if last_name(node.func) in FILLS:
                given = [*node.args, *(each.value for each in node.keywords)]
                if any(ast.dump(each) == wanted or (name and dotted_name(each) == name) for each in given):
                    return node
            case _:
                pass
    return None
