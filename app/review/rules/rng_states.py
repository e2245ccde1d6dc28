"""DW254: the state of a generator of random numbers of one rank, which all ranks load."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK, DIFFERS, parts
from ...training_script.model.reach import ALL, Run
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_below
from ..rule_context import Script, Violation
from ..violations import violation_at_node

SETS = {"torch.set_rng_state", "torch.random.set_rng_state", "torch.cuda.set_rng_state", "torch.cuda.set_rng_state_all"}
SETS |= {"random.setstate", "numpy.random.set_state"}
SAVES = re.compile(r"get_rng_state|getstate\(|get_state\(")
STATES = {"get_state", "get_rng_state", "getstate"}
SEEDS_BY_RANK = re.compile(r"seed\w*\s*=?\s*\(?[^\n]*\brank\b|seed[^\n]*get_rank\(")
DCP_SAVE = "checkpoint.save"
SEEDS = ("torch.manual_seed",)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states of generators that every rank loads from one file, though each began with a seed of its own."""
    if not run.distributed or not script.mentions(SAVES):
        return
    yield from _one_name(script, run)
    seeds = [value.key for _, fact in run.of(*SEEDS) for value in fact.values]
    own = any(key.differs_by & BY_RANK for key in seeds)
    loads = {fact.result.key for reach, fact in run.of("torch.load") if _is_of_all(fact.values, reach.ranks)}
    by_one = [reach for reach, fact in run.of("torch.save") if reach.ranks != ALL and not reach.unsure]
    if not own or not loads or not by_one:
        return
    for node in nodes_below(script.source.tree):
        if isinstance(node, ast.Call) and script.names.qualified(node.func) in SETS and node.args:
            key = script.evaluated.value(node.args[0])
            if key is not None and not key.differs_by & DIFFERS and not loads.isdisjoint(parts(key)):
                yield violation_at_node(
                    node,
                    "each rank has random numbers of its own, and here all ranks go on with those of the rank "
                    "that saved: from here on all of them draw alike",
                    0.8,
                )


def _one_name(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states of generators of the ranks that a distributed checkpoint keeps under one name."""
    if not script.mentions(SEEDS_BY_RANK) or not any(reach.name == DCP_SAVE for reach in run.reached):
        return
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Dict(keys=names, values=values):
                held = [
                    (name, value) for name, value in zip(names, values, strict=True) if isinstance(name, ast.Constant)
                ]
            case _:
                continue
        for name, value in held:
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in STATES:
                yield violation_at_node(
                    value,
                    f"each rank has a state of its own, and the checkpoint keeps one under `{name.value}`: "
                    "behind a resume all ranks draw alike",
                    0.75,
                )


def _is_of_all(path: list[Value], ranks: int) -> bool:
    return ranks == ALL and bool(path) and not path[0].key.differs_by & DIFFERS
