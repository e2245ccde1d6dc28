"""DW251: statistics of one rank's part of the data, by which the ranks prepare their data or weigh their losses."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.amounts import BATCH, DISTINCT, PIECES
from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import dotted_name
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..epoch_loops import loop_around
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node
from .running_norms import check_running

REDUCED = {"mean", "std", "var", "median", "quantile", "min", "max", "amin", "amax", "std_mean", "var_mean"}
SUM = "sum"
SUMMED = re.compile(r"reduce|gather|broadcast|sync")  # over the ranks
STATISTIC = re.compile(r"\b(?:sum|mean|std|var|median|quantile|min|max|amin|amax)\(|weight=|enumerate\(|\.fit\w*\(")
STATISTICS = "sum(", "mean(", "std(", "var(", "median(", "quantile(", "min(", "max(", "weight=", "enumerate(", ".fit"
LOSSES = re.compile(r"torch\.nn\.(?:CrossEntropyLoss|BCEWithLogitsLoss|NLLLoss|BCELoss)")
FITTED = re.compile(r"sklearn\.(?:preprocessing|feature_extraction|decomposition|impute)\.")
SHARED = re.compile(r"gather_object|broadcast_object")  # what makes tables of all ranks of those of each
MESSAGE = (
    "{} of this rank's part of the data, which each rank computes for itself: the ranks train one model on data that "
    "they {} differently"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the means, weights and numberings that each rank computes of its own part and trains with."""
    yield from check_running(script, run)
    yield from _measured_again(script, run)
    if not script.is_first_distributed(run) or not script.mentions(STATISTIC, *STATISTICS):
        return
    found: dict[int, tuple[ast.expr, str, str]] = {}
    found_of_some: dict[int, ast.expr] = {}
    for node in nodes_of_kinds(script.source.tree, ast.BinOp, ast.Call, ast.DictComp):
        match node:
            case ast.BinOp(left=left, op=ast.Sub() | ast.Div(), right=right) if _is_of_part(script, left):
                for made in _statistics(script, right):
                    found.setdefault(made.lineno, (made, "a statistic", "scale"))
            case ast.BinOp(op=ast.Sub() | ast.Div(), right=right) if made := _of_some_ranks(script, right):
                found_of_some.setdefault(made.lineno, made)
            case ast.Call(func=function, keywords=[_, *_] as given) if LOSSES.fullmatch(
                script.names.qualified(function)
            ):
                for each in given:
                    if each.arg in ("weight", "pos_weight") and _is_own(script, each.value):
                        found.setdefault(node.lineno, (node, "the weights of the classes are", "weigh"))
            case ast.DictComp(generators=[ast.comprehension(iter=ast.Call() as over)]) if _numbers_own(script, over):
                found.setdefault(node.lineno, (node, "the numbers of the members are", "number"))
            case ast.Call(func=ast.Attribute(value=owner, attr="fit" | "fit_transform"), args=[data, *_]):
                made = [each for each in script.names.origins(owner) if isinstance(each, ast.Call)]
                if any(FITTED.match(script.names.qualified(each.func)) for each in made) and _is_of_part(script, data):
                    found.setdefault(node.lineno, (node, "this is fitted to the values", "prepare"))
            case _:
                pass
    for made in found_of_some.values():
        yield violation_at_node(
            made,
            "only some ranks compute this statistic, and all scale their data by it: the others do so by what "
            "it was before",
            0.8,
        )
    for made, what, effect in found.values():
        yield violation_at_node(
            made,
            MESSAGE.format(what, effect),
            0.75,
        )


def _measured_again(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the statistics of BatchNorm that ``update_bn`` takes of a loader with the rank's part of the data."""
    samplers = {sampler.result.key for _, sampler in run.of(*SAMPLER_CLASSES)}
    loaders = {
        loader.result.key
        for _, loader in run.of(*LOADER_CLASSES)
        if (given := argument(loader, 3, "sampler")) and given.key in samplers
    }
    for reach, fact in run.of("torch.optim.swa_utils.update_bn"):
        loader = argument(fact, 0, "loader")
        after = run.reached[run.reached.index(reach) + 1 :]
        shared = any(each.name.rpartition(".")[2] in ("all_reduce", "broadcast") for each in after)
        if loader and loader.key in loaders and reach.several and not shared:
            yield from violation_at(
                script,
                reach,
                "update_bn measures the statistics of BatchNorm on this rank's part of the data: the ranks have "
                "different ones, and what is saved has those of one part",
                0.75,
            )


def _is_of_part(script: Script, node: ast.expr) -> bool:
    """Return whether a value is made of the rank's part of a dataset, and of no batch."""
    key = script.evaluated.value(node)
    return key is not None and _has_part(key)


def _has_part(key: Key) -> bool:
    found = False
    for part in parts(key) if key.differs_by & BY_RANK else ():
        if part.op in SAME or (part.op == "local" and part.args[0] == BATCH):
            return False
        found = found or (part.op == "item" and is_share(part))
    return found


def is_share(item: Key) -> bool:
    """Return whether an item is the rank's part of something: a slice, or one of its pieces, that the rank decides."""
    held, place = item.args[0], item.args[1]
    return bool(place.differs_by & BY_RANK) and (place.op == "slice" or held.op in PIECES)


def _statistics(script: Script, node: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls that reduce all samples of the rank's part to the statistic that an expression holds."""
    while isinstance(node, ast.BinOp):  # std + 1e-6
        node = node.left
    held = script.evaluated.value(node)
    if held is not None and any(part.op in SAME for part in parts(held)):
        return
    for each in (node, *origins_at(script, node)):
        made = _sum_of_mean(script, each) if isinstance(each, ast.BinOp) else each
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in REDUCED | {SUM}:
            is_function = script.names.qualified(made.func).startswith(("torch.", "numpy."))
            data = made.args[0] if is_function and made.args else made.func.value
            options = [
                *made.args[int(is_function) :],
                *(each.value for each in made.keywords if each.arg in ("dim", "axis")),
            ]
            of_samples = not options or (isinstance(options[0], ast.Constant) and options[0].value == 0)
            if of_samples and _is_of_part(script, data):
                yield made
                return


def _sum_of_mean(script: Script, quotient: ast.BinOp) -> ast.Call | None:
    """Return the sum of which a quotient by a number is the mean, where its function communicates nothing."""
    around = script.names.enclosing_function(quotient)
    if not isinstance(quotient.op, ast.Div) or around is None or SUMMED.search(ast.unparse(around)):
        return None
    for made in (quotient.left, *origins_at(script, quotient.left)):
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == SUM:
            return made
    return None


def _of_some_ranks(script: Script, node: ast.expr) -> ast.Call | None:
    """Return the call that gives a statistic to the ranks on one side of a condition; the others keep a constant."""
    while isinstance(node, ast.BinOp):  # std + 1e-6
        node = node.left
    key = script.evaluated.value(node)
    if (
        key is None
        or key.op != "if"
        or not key.args[0].differs_by & BY_RANK
        or any(part.op in SAME for part in parts(key))
    ):
        return None
    made = [each for each in script.names.origins(node) if isinstance(each, ast.Call)]
    computed = [each for each in made if isinstance(each.func, ast.Attribute) and each.func.attr in REDUCED]
    return computed[0] if len(computed) == 1 and len(made) == 2 else None


def _is_own(script: Script, weights: ast.expr) -> bool:
    """Return whether weights of classes are computed from data of this rank, outside of a loop over batches."""
    key = script.evaluated.value(weights)
    if key is None or not key.differs_by & (LOCAL | BY_RANK) or any(part.op in SAME for part in parts(key)):
        return False
    return _has_part(key) or (bool(key.differs_by & LOCAL) and _comes_from_part(script, weights))


def _comes_from_part(script: Script, node: ast.expr, depth: int = 4) -> bool:
    """Return whether one of the expressions that a value is computed from is the rank's part of a dataset."""
    for made in script.names.origins(node) if depth else ():
        if isinstance(made, ast.expr):
            inner = (each for each in ast.walk(made) if isinstance(each, ast.Name | ast.Attribute | ast.Subscript))
            for each in inner:
                if _is_of_part(script, each) or (each is not node and _comes_from_part(script, each, depth - 1)):
                    return True
    return False


def _numbers_own(script: Script, over: ast.Call) -> bool:
    """Return whether a table numbers the different members of the rank's part of the data."""
    key = script.evaluated.value(over)
    if dotted_name(over.func) != "enumerate" or key is None or script.mentions(SHARED):
        return False
    distinct = key.op == "enumerate" and key.args[0].op == DISTINCT and bool(key.differs_by & LOCAL)
    return distinct and loop_around(script, over) is None  # in a loop they are the members of a batch
