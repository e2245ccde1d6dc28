"""DW250: parts that ranks take of an order which each of them draws for itself."""

import ast
import re
from collections.abc import Iterator

from ...training_script.collectives import collective_name
from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import BY_RANK, LOCAL, parts
from ...training_script.model.library_calls import GENERATORS, SEEDS, SHUFFLES
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, dotted_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node

ORDERS = re.compile(r"shuffle\(|permutation\(|randperm\(|\.sample\(")
DRAWN = {"numpy.random.permutation": "numpy", "random.sample": "random"}
# What may seed the generators of all libraries, by its name.
SEEDS_ALL = re.compile(r"\b\w*seed\w*\(|PYTHONHASHSEED", re.IGNORECASE)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the shuffles and permutations, other ones on each rank, of which each rank takes its part."""
    if not run.distributed or not script.mentions(ORDERS, "shuffle(", "permutation(", "randperm(", ".sample("):
        return
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        part, held = script.evaluated.value(node.slice), script.evaluated.value(node.value)
        by_rank = part is not None and part.differs_by & BY_RANK and not part.differs_by & LOCAL
        if not by_rank or part is None or held is None or any(each.op in SAME for each in parts(held)):
            continue
        if part.op != "slice" and held.op != "pieces":
            continue
        drawn = drawn_for(script, node)
        if drawn is not None:
            yield violation_at_node(
                drawn,
                f"each rank draws an order of its own here, and takes its part of that (line {node.lineno}): "
                "the parts overlap, and some samples are in none",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=node.lineno, message="the part of the rank")],
            )


def drawn_for(script: Script, part: ast.Subscript) -> ast.expr | None:
    """Return the call that gives what a rank takes a part of an order of its own, if one surely does."""
    for made in map(_as_drawn, script.names.origins(part.value)):
        if isinstance(made, ast.Call) and _draws_own(script, made):
            return made
    name = dotted_name(part.value)
    around = script.names.enclosing_function(part) or script.source.tree
    if not name:
        return None
    shuffles = [
        node
        for node in ast.walk(around)
        if isinstance(node, ast.Call) and _is_shuffle_of(node, name) and node.lineno <= part.lineno
    ]
    later = any(
        isinstance(node, ast.Call)
        and shuffles
        and node.lineno > shuffles[-1].lineno
        and collective_name(node, script.names)
        for node in ast.walk(around)
        if getattr(node, "lineno", part.lineno) < part.lineno and not isinstance(node, FUNCTIONS)
    )
    return shuffles[-1] if shuffles and not later and is_own(script, shuffles[-1]) else None


def _as_drawn(made: ast.AST) -> ast.AST:
    """Return what a list or an array is made of."""
    match made:
        case ast.Call(func=ast.Attribute(value=held, attr="tolist" | "numpy" | "long")):
            return _as_drawn(held)
        case ast.Call(func=ast.Name(id="list" | "tuple"), args=[held]):
            return _as_drawn(held)
        case _:
            return made


def _is_shuffle_of(call: ast.Call, name: str) -> bool:
    is_shuffle = isinstance(call.func, ast.Attribute) and call.func.attr == "shuffle"
    return is_shuffle and bool(call.args) and dotted_name(call.args[0]) == name


def _draws_own(script: Script, call: ast.Call) -> bool:
    """Return whether a call gives each rank a permutation of its own."""
    name = script.names.qualified(call.func)
    if name == "torch.randperm":
        key = script.evaluated.value(call)
        return key is not None and bool(key.differs_by & (LOCAL | BY_RANK))
    if name in DRAWN:
        return _has_own_seed(script, DRAWN[name])
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method in ("permutation", "sample") and is_own(script, call)


def is_own(script: Script, call: ast.Call) -> bool:
    """Return whether a method of a generator, or a function of its module, gives each rank something else."""
    name = script.names.qualified(call.func)
    if name in SHUFFLES:
        return _has_own_seed(script, name.partition(".")[0])
    made = script.names.origins(call.func.value) if isinstance(call.func, ast.Attribute) else []
    return bool(made) and all(isinstance(each, ast.Call) and _is_own_generator(script, each) for each in made)


def _is_own_generator(script: Script, made: ast.Call) -> bool:
    if script.names.qualified(made.func) not in GENERATORS:
        return False
    seeds = [script.evaluated.value(each) for each in (*made.args, *(given.value for given in made.keywords))]
    return not seeds or any(each is not None and each.differs_by & (BY_RANK | LOCAL) for each in seeds)


def _has_own_seed(script: Script, module: str) -> bool:
    """Return whether the generator of a module has a seed of each rank, or none at all."""
    own = shared = False
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Call) or not SEEDS_ALL.match(f"{dotted_name(node.func).rpartition('.')[2]}("):
            continue
        name = script.names.qualified(node.func)
        if name in SEEDS and SEEDS[name] != module:
            continue
        if name.startswith("torch."):
            continue
        given = script.evaluated.value(node.args[0]) if node.args else None
        if (given is not None and given.differs_by & BY_RANK) or (
            name in SEEDS and not node.args and not node.keywords
        ):
            own = True
        else:
            shared = True
    return own or not shared
