"""DW259: copies of parameters that are made before FSDP shards them, and used together with the shards."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, parts
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.nodes import node_at
from ...training_script.syntax import FUNCTIONS
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .fsdp_order import FSDP2

ASKS = (".parameters", ".named_parameters")
COPIES = ("clone", "deepcopy", "copy_")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the objects that copy the parameters of a model before fully_shard and meet them again behind it."""
    shards = [(reach, model.key) for reach, fact in run.of(*FSDP2) if (model := argument(fact, 0, "module"))]
    for last, sharded in shards:
        at = run.reached.index(last)
        asked = [(reach, fact) for reach, fact in run.of(*ASKS) if fact.owner and fact.owner.key is sharded]
        for reach, fact in asked:
            keeper = _keeper(script, reach)
            if run.reached.index(reach) > at or keeper is None or not together(reach, last) or not reach.several:
                continue
            again = [other for other, _ in asked if run.reached.index(other) > at and _keeper(script, other) is keeper]
            if again:
                here = reach._replace(fact=fact._replace(site=reach.calls[-1]), calls=reach.calls[:-1])
                yield from violation_at(
                    script,
                    here if reach.calls else reach,
                    f"the copies made here are whole tensors, and fully_shard (line {last.fact.site.line}) makes "
                    "shards of the parameters with which they are used later",
                    0.8,
                    related=[RelatedPlace(path=script.source.path, line=again[0].fact.site.line, message="used here")],
                )
                return


def check_start(script: Script, run: Run) -> Iterator[Violation]:
    """DW231: yield the objects that copy parameters of a seed of each rank, before DDP makes them equal."""
    seeds = [value.key for _, fact in run.of("torch.manual_seed") for value in fact.values]
    if not seeds or not all(key.differs_by & BY_RANK for key in seeds):
        return
    wraps = [(reach, fact, model.key) for reach, fact in run.of(*DDP_CLASSES) if (model := argument(fact, 0, "module"))]
    asked = [(reach, fact) for reach, fact in run.of(*ASKS) if fact.owner]
    for wrap, wrapped, model in wraps:
        at = run.reached.index(wrap)
        later = [each for each, fact in asked if fact.owner and wrapped.result.key in parts(fact.owner.key)]
        for reach, fact in asked:
            keeper = _keeper(script, reach)
            if run.reached.index(reach) > at or keeper is None or not reach.several or fact.owner is None:
                continue
            if fact.owner.key is model and any(_keeper(script, each) is keeper for each in later):
                here = reach._replace(fact=fact._replace(site=reach.calls[-1]), calls=reach.calls[:-1])
                yield from violation_at(
                    script,
                    here if reach.calls else reach,
                    "the copies made here are of parameters that each rank has drawn by its own seed: DDP (line "
                    f"{wrap.fact.site.line}) makes those of the model equal, and not these",
                    0.8,
                    related=[RelatedPlace(path=script.source.path, line=wrap.fact.site.line, message="wrapped here")],
                )
                return


def _keeper(script: Script, reach: Reach) -> ast.ClassDef | None:
    """Return the class of which a method goes through parameters and copies them, or changes its copies."""
    site = reach.fact.site
    if site.path != script.source.path or not isinstance(reach.fact, Noted):
        return None
    at: ast.AST | None = node_at(script.source.tree, site.line, site.column, ast.Call)
    function = None
    while at is not None and not isinstance(at, ast.ClassDef):
        function = at if isinstance(at, FUNCTIONS) else function
        at = script.source.parents.get(at)
    copies = function is not None and any(
        isinstance(node, ast.Attribute) and (node.attr in COPIES or node.attr.endswith("_"))
        for node in ast.walk(function)
    )
    return at if isinstance(at, ast.ClassDef) and copies else None
