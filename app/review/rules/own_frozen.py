"""DW206: frozen models that each rank makes from a seed of its own and that nothing makes equal."""

import ast
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.torch_classes import DDP_CLASSES
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at
from .replicas import SEED, SYNCHRONISES

FREEZE = ".requires_grad_"
MODULES = "torch.nn."


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the seeds of each rank behind which a model is made, frozen and left out of DDP."""
    wraps = list(run.of(*DDP_CLASSES))
    if not any(reach.several for reach, _ in wraps) or script.mentions(SYNCHRONISES):
        return
    wrapped = {part for _, fact in wraps if (model := argument(fact, 0, "module")) for part in parts(model.key)}
    seed: Reach | None = None
    for reach in run.reached:
        if not isinstance(reach.fact, Noted):
            continue
        if reach.name == SEED:
            given = argument(reach.fact, 0, "seed")
            seed = reach if given and given.key.differs_by & BY_RANK and reach.several else None
        elif seed and reach.name == FREEZE and script.is_here(reach) and _freezes(run, reach.fact, wrapped):
            place = in_function_of(seed, [reach])
            made = _made(script, reach.fact.node)
            same = reach.calls == place.calls and place.fact.site.path == script.source.path
            if made is not None and same and made.lineno > place.fact.site.line:
                yield from violation_at(
                    script,
                    place,
                    f"each rank makes a frozen model from this seed of its own (line {made.lineno}), and DDP does not "
                    "know it: the ranks compute with different weights",
                    0.75,
                    related=[RelatedPlace(path=script.source.path, line=made.lineno, message="made here")],
                )
                return


def _freezes(run: Run, fact: Noted, wrapped: set[Key]) -> bool:
    """Return whether a call freezes a new model with random weights that is no part of a model in DDP."""
    flag = argument(fact, 0, "requires_grad")
    model = fact.owner.key if fact.owner else None
    if flag is None or flag.key is not run.keys.false or model is None or model in wrapped:
        return False
    return model.op == "call" and str(model.args[0]).startswith(MODULES)


def _made(script: Script, freeze: ast.Call) -> ast.Call | None:
    """Return the call that makes the model that is frozen, if one statement of the same function does."""
    held: ast.AST = freeze.func
    while isinstance(held, ast.Attribute) and isinstance(held.value, ast.Call):
        held = held.value
        held = held.func if isinstance(held.func, ast.Attribute) and held.func.attr in ("eval", "to", "cuda") else held
    if isinstance(held, ast.Attribute):
        origins = origins_at(script, held.value)
        held = origins[0] if len(origins) == 1 else freeze
    function = script.names.enclosing_function(freeze)
    if not isinstance(held, ast.Call) or held is freeze or script.names.enclosing_function(held) is not function:
        return None
    return None if _is_module(script, function) else held


def _is_module(script: Script, method: ast.AST | None) -> bool:
    """Return whether a method is one of a model, which DDP may wrap as a whole."""
    owner = script.source.parents.get(method) if method else None
    return isinstance(owner, ast.ClassDef) and any(
        script.names.qualified(base).endswith("Module") for base in owner.bases
    )
