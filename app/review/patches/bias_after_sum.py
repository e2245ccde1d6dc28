"""The patch that adds a bias once, to the sum over the ranks of the products."""

import ast

from ...training_script.syntax import call_argument, dotted_name
from ..rule_context import Patch, Script, no_patch

FIX = "add-bias-to-sum"
BY_HAND = "multiply without the bias, sum up over the ranks, and add the bias to the sum"
LINEAR = "torch.nn.functional.linear"
WHY_UNSAFE = "a bias that was trained so is a fraction of the one that is wanted"


def bias_after_sum(script: Script, reduction: ast.Call) -> Patch:
    """Return the patch of a product with a bias that a name holds and the next statement sums up."""
    source, summed = script.source, call_argument(reduction, "tensor", 0)
    made = script.names.origins(summed) if isinstance(summed, ast.Name) else []
    product = made[0] if len(made) == 1 else None
    if not isinstance(product, ast.Call) or not isinstance(summed, ast.Name):
        return no_patch(FIX, BY_HAND)
    given, keywords = list(product.args), {each.arg: each.value for each in product.keywords}
    bias = call_argument(product, "bias", 2)
    weight = call_argument(product, "weight", 1)
    known = script.names.qualified(product.func) == LINEAR and keywords.keys() <= {"bias", "weight"} and given
    stmt, sum_ = script.source.statement_of(product), script.source.statement_of(reduction)
    block = source.block_of(stmt)
    match stmt:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is product and name == summed.id:
            follows = sum_ in block and block.index(sum_) == block.index(stmt) + 1
        case _:
            follows = False
    last = sum_.end_lineno or sum_.lineno
    apart = isinstance(sum_, ast.Expr) and sum_.value is reduction and source.alone(sum_) and last < len(source.starts)
    handle = call_argument(reduction, "async_op", 3)
    if not (known and follows and apart and bias is not None and weight is not None and dotted_name(bias)) or handle:
        return no_patch(FIX, BY_HAND)
    code = f"{source.code(product.func)}({source.one_line(given[0])}, {source.one_line(weight)})"
    line = f"{summed.id} = {summed.id} + {dotted_name(bias)}"
    edits = [source.replace(product, code), source.insert_line(last + 1, line, source.indent(sum_.lineno))]
    return Patch(id=FIX, safety="unsafe", why_unsafe=WHY_UNSAFE, edits=edits)
