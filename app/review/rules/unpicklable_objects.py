"""DW470: objects that collectives have to pickle and that pickle refuses."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import node_at, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, call_argument
from ..origins import origins_at
from ..patches.picklable import picklable
from ..rule_context import Script, Violation
from ..value_kinds import GENERATOR, LAMBDA, is_inside
from ..violations import violation_at

# Collectives that pickle what they are given, with its place.
PICKLING = {
    "torch.distributed.broadcast_object_list": (0, "object_list"),
    "torch.distributed.all_gather_object": (1, "obj"),
    "torch.distributed.gather_object": (0, "obj"),
    "torch.distributed.scatter_object_list": (1, "scatter_object_input_list"),
    "torch.distributed.send_object_list": (0, "object_list"),
}
OF_PROCESS = {
    **dict.fromkeys(
        (f"threading.{name}" for name in ("Lock", "RLock", "Condition", "Event", "Thread")), "{} of threads"
    ),
    "open": "an open file",
    "io.open": "an open file",
    "socket.socket": "a socket",
}
KINDS: dict[type[ast.AST], str] = {ast.Lambda: LAMBDA, ast.GeneratorExp: GENERATOR}
MOST_INNER = 5  # containers in each other


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives of objects with a function, a class or a resource of one process in them."""
    for reach, fact in run.of(*PICKLING):
        place, name = PICKLING[fact.name]
        given = argument(fact, place, name)
        node = call_argument(fact.node, name, place) if script.is_here(reach) else None
        if given is None:
            continue
        held = _written(script, node) if node is not None else None
        found = _refused(script, given.key, MOST_INNER) or (KINDS[type(held)] if held is not None else "")
        if found:
            yield from violation_at(
                script,
                reach,
                f"{fact.name.rpartition('.')[2]} pickles what it sends, and pickle refuses {found} in it",
                0.9,
                patch=partial(picklable, script, held),
            )


def _refused(script: Script, key: Key, inner: int) -> str:
    """Return what pickle refuses in a value, an empty text if nothing is known to be refused."""
    if not inner:
        return ""
    match key.op, key.args:
        case "lambda", _:
            return LAMBDA
        case "function", (path, line) if path == script.source.path:
            return "a function that is defined in another one" if _is_inside(script, line) else ""
        case "at", (path, line, column) if path == script.source.path:
            made = node_at(script.source.tree, line, column, ast.Call)
            name = script.names.qualified(made.func) if isinstance(made, ast.Call) else ""
            return OF_PROCESS.get(name, "").format(f"a {name.rpartition('.')[2]}")
        case "item", (Key(op="mapping" | "sequence") as held, _):
            values = held.args[1::2] if held.op == "mapping" else held.args
            found = [_refused(script, each, inner - 1) for each in values]
            return found[0] if found and all(found) else ""
        case "mapping", pairs:
            held = pairs[1::2]
        case (("sequence" | "one of"), held):
            pass
        case "if", (_, *held):
            pass
        case _:
            return ""
    return next((text for each in held if (text := _refused(script, each, inner - 1))), "")


def _written(script: Script, node: ast.expr) -> ast.AST | None:
    """Return the expression in the sent object, also in an attribute of it, that pickle refuses."""
    held = (is_inside(script, each, tuple(KINDS)) for each in origins_at(script, node))
    return next((each for each in held if each is not None), None)


def _is_inside(script: Script, line: int) -> bool:
    """Return whether the function that begins in a line is defined in another function."""
    made = (node for node in nodes_of_kinds(script.source.tree, *FUNCTIONS) if node.lineno == line)
    return any(script.names.enclosing_function(each) is not None for each in made)
