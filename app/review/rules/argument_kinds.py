"""DW460: arguments of calls by which ranks communicate that are of another kind, missing or unknown."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key
from ...training_script.model.noted_calls import INIT
from ...training_script.model.reach import Run, argument
from ...training_script.model.signatures import (
    CALLS,
    EXCLUSIVE,
    NEED_ONE,
    OF_RESULTS,
    OF_ROLES,
    ONE_OF,
    WHOLE,
    Parameter,
    parameters_of,
)
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name, match_arguments
from ..origins import origins_at
from ..patches.fit_arguments import fitted
from ..rule_context import Patch, Script, Violation
from ..value_kinds import (
    ARRAY,
    DISTRIBUTED,
    FLOAT,
    GENERATOR,
    GROUP,
    INNER,
    LAMBDA,
    LIST,
    MAPPING,
    MODULE,
    NOTHING,
    NUMBER,
    OPERATION,
    SET,
    TENSOR,
    TEXT,
    TUPLE,
    UNKNOWN,
    Kinds,
    only,
)
from ..violations import at_node, violation_at, violation_at_node

NO_LIST = frozenset({TUPLE, NUMBER, FLOAT, TEXT, MAPPING, GENERATOR, TENSOR})
# Kind of parameter: what it takes, in words, and the kinds of values that it surely does not take.
TAKES: dict[str, tuple[str, frozenset[str]]] = {
    "tensor": (
        "a tensor",
        frozenset(
            {NUMBER, FLOAT, TEXT, LIST, TUPLE, SET, MAPPING, GENERATOR, GROUP, OPERATION, ARRAY, MODULE, NOTHING}
        ),
    ),
    "tensors": ("a list of tensors", frozenset({TENSOR, TUPLE, NUMBER, FLOAT, TEXT, MAPPING, GENERATOR, ARRAY})),
    "objects": ("a list", NO_LIST),
    "boxed": ("a list", NO_LIST),
    "sent": ("a list", frozenset({NUMBER, FLOAT, MAPPING, GENERATOR})),
    "operation": ("a ReduceOp", frozenset({GROUP, NUMBER, FLOAT, TEXT, LIST, NOTHING})),
    "group": ("a process group", frozenset({NUMBER, TEXT, LIST, TUPLE, OPERATION})),
    "duration": ("a timedelta", frozenset({NUMBER, FLOAT, TEXT})),
    "seconds": ("a timedelta, or seconds as a float", frozenset({NUMBER, TEXT})),
    "number": ("a whole number", frozenset({TEXT, FLOAT, LIST, TUPLE, MAPPING})),
    "numbers": ("a list", frozenset({NUMBER, FLOAT, TEXT})),
    "data": ("a text or bytes", frozenset({NUMBER, FLOAT, NOTHING, LIST, MAPPING})),
    "mapping": ("a dict of tensors and values", frozenset({MODULE, LIST, TENSOR, TEXT, GENERATOR})),
    "parameters": ("parameters", frozenset({MODULE, MAPPING, TENSOR, TEXT})),
    "keys": ("a list of keys", frozenset({TEXT})),
    "store": ("a store", frozenset({NUMBER, TEXT, GROUP})),
    "text": ("a text", frozenset({NUMBER, LIST})),
    "tuple": ("a tuple", frozenset({NUMBER, FLOAT, TEXT})),
    "module": ("a module", frozenset({GENERATOR, MAPPING, LIST, TENSOR})),
    "process": ("a function that a new process can import by its name", frozenset({LAMBDA, INNER})),
    "message": ("dist.isend or dist.irecv", frozenset[str]()),
    "hook": ("a function that returns a future", frozenset[str]()),
}
DISTRIBUTES = re.compile(r"\bdistribute_tensor\b")
MESSAGES = ("torch.distributed.send", "torch.distributed.recv")
OF_ADDRESS = ("tcp://", "file://")
ARGUMENTS_OF_SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.spawn.spawn")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW460: yield the arguments that a call does not take."""
    kinds = Kinds(script)
    for reach, fact in run.of(*CALLS):
        call = fact.node
        if not script.is_here(reach) or reach.attempted or any(isinstance(each, ast.Starred) for each in call.args):
            continue
        if any(each.arg is None for each in call.keywords):
            continue
        if not _is_meant(run, fact):
            continue
        parameters = parameters_of(fact.name)
        given = match_arguments([each.name for each in parameters if not each.by_name], call.args, call.keywords)
        found = list(_unfit(script, kinds, fact, parameters, given)) or list(_unmatched(fact, parameters, given))
        found += _of_spawn(script, call, given) if fact.name in ARGUMENTS_OF_SPAWN else []
        for message, at, patch in found[:1]:
            yield from violation_at(script, at_node(script, reach, at), message, 0.9, patch=patch)


def check_operands(script: Script, run: Run) -> Iterator[Violation]:
    """DW460: yield the operations on a distributed tensor and one of this rank."""
    if run.function is not None or not script.mentions(DISTRIBUTES, "distribute_tensor"):
        return
    kinds = Kinds(script)
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.BinOp):
            continue
        found = [only(kinds.of(each)) for each in (node.left, node.right)]
        if sorted(found) == sorted((DISTRIBUTED, TENSOR)):
            yield violation_at_node(
                node,
                "one of the two is a distributed tensor, and the other one a tensor of this rank: "
                "distribute_tensor makes one of it, with Replicate() if all ranks have the same",
                0.85,
            )


def _is_meant(run: Run, fact: Noted) -> bool:
    """Return whether a call is that of the signature, as far as other objects have a method of the name."""
    if fact.name in OF_ROLES:
        return fact.owner is not None and OF_ROLES[fact.name] in fact.owner.facts
    made = run.of(*OF_RESULTS.get(fact.name, ()))
    return fact.name not in OF_RESULTS or (
        fact.owner is not None and any(each.result.key is fact.owner.key for _, each in made)
    )


Found = tuple[str, ast.expr | None, Callable[[], Patch] | None]


def _unfit(
    script: Script, kinds: Kinds, fact: Noted, parameters: tuple[Parameter, ...], given: dict[str, ast.expr]
) -> Iterator[Found]:
    name = fact.name.rpartition(".")[2]
    for place, each in enumerate(parameters):
        node = given.get(each.name)
        if node is None or not each.kind:
            continue
        (takes, refused), at = TAKES[each.kind], node
        found = kinds.of(node, argument(fact, place, each.name))
        if each.kind == "message" and script.names.qualified(node) in MESSAGES:
            found, refused = {f"dist.{dotted_name(node).rpartition('.')[2]}"}, found | {"dist.send", "dist.recv"}
        elif each.kind == "hook":
            found, refused = _returned_by(script, kinds, node), frozenset({f"one that returns {TENSOR}"})
            at = _return_of(script, node)
        if NOTHING in found and not each.needed and len(found) > 1:
            found = found - {NOTHING}
        if found and found <= refused and UNKNOWN not in found:
            what = " or ".join(sorted(found))
            yield (
                f"`{each.name}` of {name} takes {takes}, and this is {what}",
                at,
                partial(fitted, script, fact.node, each, node, found),
            )


def _return_of(script: Script, node: ast.expr) -> ast.expr:
    """Return what a function of the script returns, as it is written; the function itself if that is not known."""
    for function in _functions(script, node):
        if isinstance(function, FUNCTIONS) and function.returns is not None:
            return function.returns
        if isinstance(function, FUNCTIONS) and (values := script.names.returned_values(function)):
            return values[-1]
    return node


def _functions(script: Script, node: ast.expr) -> list[ast.AST]:
    """Return the functions that an expression may stand for."""
    found = origins_at(script, node)
    return [
        next((bound.at for bound in script.names.bindings(each)), each) if isinstance(each, ast.Name) else each
        for each in found
    ]


def _returned_by(script: Script, kinds: Kinds, node: ast.expr) -> set[str]:
    """Return the kinds of what a function of the script returns, as kinds of a function."""
    found = set[str]()
    for function in _functions(script, node):
        if not isinstance(function, FUNCTIONS):
            return {UNKNOWN}
        if function.returns is not None and script.names.qualified(function.returns) == "torch.Tensor":
            return {f"one that returns {TENSOR}"}  # DDP reads the annotation
        for value in script.names.returned_values(function):
            found |= {f"one that returns {kind}" if kind else UNKNOWN for kind in kinds.of(value)}
    return found


def _unmatched(fact: Noted, parameters: tuple[Parameter, ...], given: dict[str, ast.expr]) -> Iterator[Found]:
    """Yield the arguments that are missing, too many or exclude each other."""
    name = fact.name.rpartition(".")[2]
    words = {each.name for each in parameters}
    missing = next((each.name for each in parameters if each.needed and each.name not in given), None)
    if fact.name not in WHOLE:
        if missing:
            yield f"{name} needs `{missing}`", None, None
        return
    unknown = next((word for word in given if word not in words), None)
    places = sum(not each.by_name for each in parameters)
    if len(fact.node.args) > places:
        named = next((f": pass `{each.name}` by its name" for each in parameters if each.by_name), "")
        yield f"{name} takes {places} arguments by their place, and gets {len(fact.node.args)}{named}", None, None
    elif unknown:
        yield f"{name} has no argument `{unknown}`", given[unknown], None
    elif missing:
        yield f"{name} needs `{missing}`", None, None
    for pair in ONE_OF:
        written = [word for word in pair if word in given and not _is_none(given[word])]
        if len(written) == 2:
            yield f"{name} takes `{pair[0]}` or `{pair[1]}`, not both", None, None
        elif not written and fact.name in NEED_ONE and pair[0] in words and not any(word in given for word in pair):
            yield f"{name} needs `{pair[0]}`: the rank that has, or gets, the tensor", None, None
    method = argument(fact, 1, "init_method") if fact.name == INIT else None
    lacking = [word for word in ("rank", "world_size") if word not in given]
    if method and lacking and _begins(method.key).startswith(OF_ADDRESS) and "?" not in _begins(method.key):
        words = " and ".join(f"`{word}`" for word in lacking)
        yield f"{name} needs {words}: an address without them, and the environment is not asked", None, None
    exclusive = EXCLUSIVE.get(fact.name)
    if exclusive and all(word in given and not _is_none(given[word]) for word in exclusive):
        yield f"{name} takes `{exclusive[0]}` or `{exclusive[1]}`, not both", None, None


def _begins(key: Key) -> str:
    """Return the text that a value begins with, as far as it is written out."""
    while key.op in ("text", "binary") and any(isinstance(each, Key) for each in key.args):
        key = next(each for each in key.args if isinstance(each, Key))
    return str(key.value) if key.is_constant else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_spawn(script: Script, call: ast.Call, given: dict[str, ast.expr]) -> list[Found]:
    """Return the functions that take other arguments than spawn passes: the number of the process and ``args``."""
    function, args = given.get("fn"), given.get("args")
    if not isinstance(function, ast.Name) or (args is not None and not isinstance(args, ast.Tuple)):
        return []
    bound = script.names.bindings(function)
    made = bound[0].at if len(bound) == 1 else None
    elements = args.elts if isinstance(args, ast.Tuple) else []
    if not isinstance(made, FUNCTIONS) or made.decorator_list or any(isinstance(e, ast.Starred) for e in elements):
        return []
    places = [*made.args.posonlyargs, *made.args.args]
    least, passed = len(places) - len(made.args.defaults), len(elements) + 1
    if passed < least or (passed > len(places) and not made.args.vararg):
        takes = str(least) if least == len(places) else f"{least} to {len(places)}"
        why = (
            f"spawn calls {made.name} with the number of the process and args: {passed} arguments, and it takes {takes}"
        )
        return [(why, None, None)]
    return []
