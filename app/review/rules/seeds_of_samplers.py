"""DW205: samplers of a program that take the rank's part of an order which they draw by a seed of the rank."""

import ast
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK, Key
from ...training_script.model.reach import Run, argument
from ...training_script.model.values import ClassRef, Instance
from ...training_script.syntax import call_argument, last_name
from ...training_script.torch_classes import LOADER_CLASSES
from ..rule_context import Script, Violation
from ..violations import at_node, violation_at

SEEDS = {"manual_seed", "default_rng", "Random", "RandomState", "seed"}
SAMPLERS = {"sampler": 3, "batch_sampler": 4}  # arguments of a loader, with their places


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW205: yield the samplers of the program that all ranks seed differently, and that divide by the rank."""
    for reach, fact in run.of(*LOADER_CLASSES) if run.distributed else ():
        for word, place in SAMPLERS.items():
            sampler = argument(fact, place, word)
            if (
                sampler is None
                or not isinstance(sampler.obj, Instance)
                or not reach.several
                or not script.is_here(reach)
            ):
                continue
            seed = _own_seed(sampler.obj.cls)
            if seed is None or not _takes_part(sampler.obj.cls):
                continue
            given = call_argument(fact.node, word, place)
            yield from violation_at(
                script,
                at_node(script, reach, _where_given(script, given, seed[1]) or fact.node),
                f"each rank seeds the order of this sampler by its own rank (`{seed[0]}`), and takes its part of that: "
                "the parts overlap, and some samples are in none",
                0.85,
            )


def _own_seed(cls: ClassRef) -> tuple[str, Key] | None:
    """Return the attribute with the rank in it by which a sampler seeds its generator, and its value."""
    found = cls.find("__iter__")
    for node in ast.walk(found[1]) if found else ():
        if not isinstance(node, ast.Call) or last_name(node.func) not in SEEDS:
            continue
        for name in _attributes(*node.args):
            value = cls.attribute(name)
            if value is not None and value.key.differs_by & BY_RANK:
                return f"self.{name}", value.key
    return None


def _takes_part(cls: ClassRef) -> bool:
    """Return whether iteration takes every n-th element, or a piece, by an attribute that is the rank."""
    found = cls.find("__iter__")
    slices = (node for node in ast.walk(found[1]) if isinstance(node, ast.Slice)) if found else ()
    bounds = [bound for each in slices for bound in (each.lower, each.upper) if bound is not None]
    return any((held := cls.attribute(name)) and held.key.differs_by & BY_RANK for name in _attributes(*bounds))


def _attributes(*nodes: ast.expr) -> Iterator[str]:
    """Yield the attributes of the object in expressions."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name
            case _:
                pass


def _where_given(script: Script, sampler: ast.expr | None, seed: Key) -> ast.expr | None:
    """Return where the seed is passed to a sampler that the script makes, or the call that makes it."""
    for made in script.names.origins(sampler) if sampler is not None else ():
        if isinstance(made, ast.Call):
            given = [*made.args, *(each.value for each in made.keywords)]
            return next((each for each in given if script.evaluated.value(each) is seed), made)
    return None
