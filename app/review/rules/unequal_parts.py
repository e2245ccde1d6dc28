"""DW427 and DW429: sizes that differ between ranks, and averages over parts of different sizes."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.amounts import DISTINCT, is_of_batch
from ...training_script.model.distinct_names import is_of_own
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import DIFFERS, LOCAL, Accumulated, Key, parts
from ...training_script.model.length_differences import differ
from ...training_script.model.lengths import KEEPING, SHAPED, has_rows_of_batch, length, number, samples
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import PAST_WRAPPER, WRAPPED_FORWARD
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.values import Instance, Library, Value
from ...training_script.nodes import nodes_of_kinds
from ...training_script.syntax import call_argument
from ...training_script.torch_classes import DDP_CLASSES, LAYER
from ..handed_values import places_on_way
from ..origins import origins_at
from ..patches.sum_and_number import sum_and_number
from ..rule_context import Script, Violation
from ..violations import violation_at
from .averages import MEANS
from .counted_divisors import held_number, is_divided_by_count
from .values_of_some import is_made_by_some

PREFIX = "torch.distributed."
TRAINS = (".backward", ".step")
OF_LISTS = ("torch.stack", "torch.tensor", "torch.cat", "numpy.mean")
LOADER_WITH_REST = 5  # parts of the key of a loader that gives the last samples, too
# Methods that keep one row for each sample.
OF_EACH = {"argmax", "softmax", "log_softmax", "sigmoid", "detach", "cpu", "float", "contiguous"}
# Collectives that need tensors of one size on all ranks, with the place of the tensor and of the group.
SENT = {
    "all_reduce": (0, "tensor", 2),
    "all_gather": (1, "tensor", 2),
    "all_gather_into_tensor": (1, "input_tensor", 2),
    "broadcast": (0, "tensor", 2),
    "reduce": (0, "tensor", 3),
    "gather": (0, "tensor", 3),
}


def check_size(script: Script, run: Run) -> Iterator[Violation]:
    """DW427: yield the tensors that all ranks send in another size, and the models in DDP with such layers."""
    for reach, fact, given in sent(run, *SENT):
        sizes = [length(given.key, rank) for rank in PAIR]
        place, word, _ = SENT[fact.name.removeprefix(PREFIX)]
        node = call_argument(fact.node, word, place)
        if differ(given.key, length) or is_sized_by_data(given.key) or _is_sized_by_some(run, given.key):
            known = None not in sizes
            how = f" (of two ranks one has {sizes[0]} elements, the other {sizes[1]})" if known else ""
            why = how or ": the data of each rank decide it"
            name = fact.name.removeprefix(PREFIX)
            yield from violation_at(
                script,
                reach,
                f"the tensors that {name} gets from the ranks differ in size{why}",
                0.85,
                related=places_on_way(script, reach, node),
            )
        elif node and (last := _sizes_of_last(script, reach)) and _is_per_sample(script, run, given.key, node):
            yield from violation_at(
                script,
                reach,
                f"the last batch of one rank has {last[0]} samples, that of another {last[1]}: "
                f"{fact.name.removeprefix(PREFIX)} needs tensors of one size",
                0.8,
            )
    for reach, fact in run.of(*DDP_CLASSES):
        model = argument(fact, 0, "module")
        if model and reach.several and any(map(_is_layer_by_data, _layers(model))):
            yield from violation_at(
                script,
                reach,
                "a layer of this model has a size that the data of each rank decide: DDP needs the same parameters "
                "on all ranks",
                0.85,
            )


def _sizes_of_last(script: Script, reach: Reach) -> tuple[int, int] | None:
    """Return the sizes of the last batches of two ranks in a loop around a call, if they are known and differ."""
    for loop in reach.loops if script.is_here(reach) else ():
        held = loop.amount.args[0] if loop.amount.op == "length" and loop.amount.args else loop.amount
        while held.op in ("enumerate", "zip") and held.args:
            held = held.args[0]
        first, second = (samples(loop.amount, rank) for rank in PAIR)
        size = number(held.args[4], PAIR[0]) if held.op == "loader" and len(held.args) == LOADER_WITH_REST else None
        if first is not None and second is not None and size and first % size != second % size:
            return first % size or size, second % size or size
    return None


def _is_per_sample(script: Script, run: Run, whole: Key, tensor: ast.expr) -> bool:
    """Return whether a tensor is a part of a batch, or what a model gives for one."""
    if has_rows_of_batch(whole):
        return True
    made = [each for each in script.names.origins(tensor) if isinstance(each, ast.Call)]
    node = made[0] if len(made) == 1 else tensor
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in OF_EACH:
        node = node.func.value
    if not isinstance(node, ast.Call):
        key = script.evaluated.value(node)
        return key is not None and is_of_batch(key)
    given = script.evaluated.value(node.args[0]) if len(node.args) == 1 else None
    called = any(fact.node is node for _, fact in run.of(WRAPPED_FORWARD, PAST_WRAPPER))
    return given is not None and is_of_batch(given) and called


def is_sized_by_data(tensor: Key) -> bool:
    """Return whether data of a rank decide the size of a tensor: how many different ones there are."""
    if tensor.op != "call" or not tensor.differs_by & LOCAL or len(tensor.args) < 2:
        return False
    name, given = str(tensor.args[0]).removeprefix("torch."), tensor.args[1]
    if tensor.args[0] in KEEPING or name in ("stack", "cat"):
        return is_of_own(given) or (given.op == "built" and _counts_distinct(given.args[1 : 1 + given.args[0]]))
    return name in SHAPED and any(_is_count(part) for part in parts(given))


def _counts_distinct(held: tuple[Key, ...]) -> bool:
    return any(is_of_own(part) for each in held if each.op in (DISTINCT, "enumerate", "zip") for part in parts(each))


def _is_count(key: Key) -> bool:
    """Return whether a number is that of the different data of a rank."""
    return key.op == "length" and any(map(is_of_own, parts(key)))


def _is_sized_by_some(run: Run, tensor: Key) -> bool:
    """Return whether a tensor has a size that only some ranks compute."""
    if tensor.op != "call" or not isinstance(tensor.args[0], str):
        return False
    place = SHAPED.get(tensor.args[0].removeprefix("torch."), len(tensor.args)) + 1
    return any(is_made_by_some(run, part) for part in parts(tensor.args[place])) if place < len(tensor.args) else False


def _layers(model: Value) -> Iterator[Key]:
    """Yield the layers of a model, those of its parts included."""
    pending, seen = [model], set[int]()
    while pending:
        each = pending.pop()
        yield from (part for part in parts(each.key) if part.op == "call")
        if isinstance(each.obj, Instance) and id(each.obj.cls) not in seen:
            seen.add(id(each.obj.cls))
            pending += [held for cls in each.obj.cls.ancestry() for held in cls.attributes.values()]


def _is_layer_by_data(layer: Key) -> bool:
    name = str(layer.args[0])
    if not name.startswith("torch.nn.") or not LAYER.fullmatch(name.rpartition(".")[2]):
        return False
    sizes = [each for each in layer.args[1:] if isinstance(each, Key) and each.differs_by & DIFFERS]
    return any(any(map(_is_count, parts(each))) or differ(each, number) for each in sizes)


def sent(run: Run, *names: str) -> Iterator[tuple[Reach, Noted, Value]]:
    """Yield the collectives that all ranks reach in the group of all, with the tensor that each sends."""
    for reach, fact in run.of(*(PREFIX + name for name in names)):
        place, word, of_group = SENT[fact.name.removeprefix(PREFIX)]
        given, group = argument(fact, place, word), argument(fact, of_group, "group")
        if given and reach.several and (group is None or group.key is run.keys.none):
            yield reach, fact, given


def check_average(script: Script, run: Run) -> Iterator[Violation]:
    """DW429: yield the means over unequal parts that are averaged over the ranks."""
    for reach, fact, given in sent(run, "all_reduce"):
        patch = partial(sum_and_number, script, fact.node) if script.is_here(reach) else None
        summed = [each for each in parts(given.key) if each.accumulated and _is_unequal(each.accumulated)]
        if summed and _is_mean(given.key) and divides_by_ranks(script, fact):
            yield from violation_at(
                script,
                behind(reach, summed[0]),
                "the ranks average means over parts of different sizes: reduce the sum and the number, then divide",
                0.8,
                patch=patch,
            )
        elif (_is_quotient_of_parts(given.key) or _is_mean_of_part(script, reach, fact)) and divides_by_ranks(
            script, fact
        ):
            yield from violation_at(
                script,
                reach,
                "the ranks average quotients, and their parts of the data differ in size: reduce the sum and the "
                "number, then divide",
                0.8,
                patch=patch,
            )
        elif is_divided_by_count(script, held_number(given.key)) and divides_by_ranks(script, fact):
            yield from violation_at(
                script,
                reach,
                "the ranks average quotients, and data of each rank decide the number that it divides by: reduce the "
                "sum and the number, then divide",
                0.7,
                patch=patch,
            )


def _is_quotient_of_parts(key: Key) -> bool:
    """Return whether something is divided by a number that is surely another one on each of two ranks."""
    key = _number_in(key)
    return key.op == "binary" and key.args[0] == "Div" and differ(_number_in(key.args[2]), number)


def _is_mean_of_part(script: Script, reach: Reach, fact: Noted) -> bool:
    """Return whether a tensor is the mean of a part of the data that is surely longer on one of two ranks."""
    node = call_argument(fact.node, "tensor", 0) if script.is_here(reach) else None
    made = origins_at(script, node) if node is not None else []
    averaged = [_averaged(script, each) for each in made]
    return bool(averaged) and all(each is not None and _is_longer_on_one(script, each) for each in averaged)


def _averaged(script: Script, mean: ast.AST) -> ast.expr | None:
    """Return the tensor, or the list, of which a call gives the mean; for a loss, what it compares with."""
    match mean:
        case ast.Call(func=ast.Attribute(value=held, attr="detach" | "clone" | "item"), args=[]):
            return next((_averaged(script, each) for each in origins_at(script, held)), None)
        case ast.Call(func=func, args=[_, target, *_]) if script.names.qualified(func) in MEANS:
            return None if {each.arg for each in mean.keywords} & {"reduction", "weight"} else target
        case ast.Call(func=func, args=[held]) if script.names.qualified(func) == "torch.mean":
            return _of_list(script, held)
        case ast.Call(func=ast.Attribute(value=held, attr="mean"), args=[]):
            return _of_list(script, held)
        case _:
            return None


def _of_list(script: Script, held: ast.expr) -> ast.expr:
    """Return the list that a tensor is made of, or the tensor."""
    for each in origins_at(script, held):
        match each:
            case ast.Call(func=func, args=[ast.Name() as listed]) if script.names.qualified(func) in OF_LISTS:
                return listed
            case _:
                pass
    return held


def _is_longer_on_one(script: Script, held: ast.expr) -> bool:
    """Return whether the elements that a mean is of, or those of the batches of which it is one, are of unequal parts.

    The means of batches are as many on a rank as it has batches, the last of which may be smaller.
    """
    key = script.evaluated.value(held)
    accumulated = next((part.accumulated for part in parts(key) if part.accumulated), None) if key else None
    return key is not None and (differ(key, length) or (accumulated is not None and _is_unequal(accumulated)))


def _number_in(tensor: Key) -> Key:
    """Return the number that a tensor is made of."""
    while tensor.op == "call" and tensor.args[0] in ("torch.tensor", "torch.as_tensor") and len(tensor.args) > 1:
        tensor = tensor.args[1]
    return tensor


def _is_unequal(accumulated: Accumulated) -> bool:
    return differ(accumulated.rounds, samples) or differ(accumulated.rounds, number)


def behind(reach: Reach, summed: Key) -> Reach:
    """Return a fact as the first of the calls that lead to it behind the loop that sums something up."""
    _, path, line, *_ = summed.args
    calls = [(site.line, number) for number, site in enumerate(reach.calls) if site.path == path and site.line > line]
    if not calls or (reach.fact.site.path == path and line < reach.fact.site.line < min(calls)[0]):
        return reach
    place = min(calls)[1]
    return reach._replace(fact=reach.fact._replace(site=reach.calls[place]), calls=reach.calls[:place])


def _is_mean(key: Key) -> bool:
    """Return whether a value is something summed up in a loop, divided by a number."""
    return any(
        part.op == "binary" and part.args[0] == "Div" and any(inner.accumulated for inner in parts(part))
        for part in parts(key)
    )


def divides_by_ranks(script: Script, reduction: Noted) -> bool:
    """Return whether the function around a reduction divides something by the number of ranks."""
    op = argument(reduction, 1, "op")
    if op and isinstance(op.obj, Library) and op.obj.name.endswith("AVG"):
        return True
    around = script.names.enclosing_function(reduction.node) or script.source.tree
    for node in nodes_of_kinds(around, ast.BinOp, ast.AugAssign, ast.Call):
        match node:
            case ast.BinOp(op=ast.Div(), right=number) | ast.AugAssign(op=ast.Div(), value=number):
                divided = script.is_world_size(number)
            case ast.Call(func=ast.Attribute(attr="div_" | "div"), args=[number, *_]):
                divided = script.is_world_size(number)
            case _:
                divided = False
        if divided:
            return True
    return False
