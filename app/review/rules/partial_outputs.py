"""DW438: outputs of a layer that is split over the ranks, each with the whole bias, that are summed up."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run, alternatives, argument
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import call_argument
from ..patches.bias_after_sum import bias_after_sum
from ..rule_context import Script, Violation
from ..violations import at_node, violation_at

LINEAR, LAYER = "torch.nn.functional.linear", "torch.nn.Linear"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the sums over the ranks of what a layer with a part of its input features gives, bias included."""
    for reach, fact in run.of("torch.distributed.all_reduce"):
        sent, given = argument(fact, 0, "tensor"), call_argument(fact.node, "tensor", 0)
        if sent is None or given is None or not script.is_here(reach) or not reach.several or "op" in fact.named:
            continue
        if len(fact.values) == 1 and (_adds_bias(sent.key) or _is_of_layer(script, given)):
            yield from violation_at(
                script,
                at_node(script, reach, _product_elsewhere(script, sent.key, fact.node)),
                "each rank adds the whole bias to its part of this product: the sum over the ranks has it once for "
                "each rank",
                0.85,
                patch=partial(bias_after_sum, script, fact.node),
            )


def _product_elsewhere(script: Script, product: Key, summed: ast.Call) -> ast.Call | None:
    """Return the call that gives a product, if it is in another function than the sum over the ranks."""
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    products = (node for node in calls if script.names.qualified(node.func) == LINEAR)
    made = next((node for node in products if _is_value(script, node, product)), None)
    inside = script.names.enclosing_function(summed)
    return made if made and script.names.enclosing_function(made) is not inside else None


def _is_value(script: Script, node: ast.expr, value: Key) -> bool:
    key = script.evaluated.value(node)
    return key is not None and value in alternatives(key)


def _adds_bias(output: Key) -> bool:
    """Return whether a value is the product with a part of a weight, with a bias that is the same on all ranks."""
    if output.op != "call" or output.args[0] != LINEAR or len(output.args) != 4:
        return False
    _, _, weight, bias = output.args
    return _is_split(weight) and not bias.is_constant and not _is_split(bias)


def _is_of_layer(script: Script, output: ast.expr) -> bool:
    """Return whether a tensor is made by a layer with a bias, of which each rank has a part of the input features."""
    made = [each for each in script.names.origins(output) if isinstance(each, ast.Call)]
    layer = script.evaluated.value(made[0].func) if len(made) == 1 else None
    if layer is None or layer.op != "call" or layer.args[0] != LAYER or len(layer.args) != 3:
        return False  # without a third argument it has a bias
    features, outputs = layer.args[1:]
    return _is_split(features) and not _is_split(outputs)


def _is_split(key: Key) -> bool:
    return any(part.op in ("world", "rank") for part in parts(key))
