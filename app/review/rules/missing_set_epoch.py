"""DW203: a shuffling DistributedSampler whose epoch is never set.

Followed from the sampler to the DataLoader, the loop that trains on it and the loop around that. Silent for evaluation,
for ``shuffle=False``, for loaders that a library prepares (Accelerate, Fabric, Trainer), and if a ``set_epoch`` may be
the missing one.
"""

import ast

from ...training_script.nodes import nodes_below
from ...training_script.syntax import call_argument, dotted_name
from ...training_script.torch_classes import SAMPLER_CLASSES
from ..epoch_loops import EVALUATION, TRAINING, EpochLoop, counts_steps, find_epoch_loops, find_samplers, is_call_of
from ..patches.insert_set_epoch import insert_set_epoch
from ..rule_context import Script, Violation


def check(script: Script) -> list[Violation]:
    """Return every shuffling sampler whose epoch is never set."""
    if not script.mentions("DistributedSampler"):
        return []
    shuffling = [
        node
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Call) and is_call_of(script, node, SAMPLER_CLASSES) and _shuffles(script, node)
    ]
    shuffling = [sampler for sampler in shuffling if not _for_evaluation(script, sampler)]
    if not shuffling:
        return []
    known, unknown = _set_already(script)
    if unknown or _is_set_elsewhere(script):
        return []
    found: list[Violation] = []
    for sampler in shuffling:
        if sampler in known:
            continue
        use = next(find_epoch_loops(script, sampler), None)
        if use:
            found.append(_finding(script, sampler, use))
    return found


def _finding(script: Script, sampler: ast.Call, use: EpochLoop) -> Violation:
    loop = "loop" if counts_steps(script, use) else "epoch loop"
    return Violation(
        line=sampler.lineno,
        column_bytes=sampler.col_offset + 1,
        end_line=sampler.end_lineno or sampler.lineno,
        message=f"set_epoch of this sampler is not called in the {loop} at line {use.epochs.lineno}: "
        "every epoch has the same order",
        confidence=0.9,
        branch=use.epochs.lineno,
        patch=lambda: insert_set_epoch(script, sampler, use),
    )


def _shuffles(script: Script, sampler: ast.Call) -> bool:
    given = call_argument(sampler, "shuffle", 3)
    if any(keyword.arg is None for keyword in sampler.keywords):
        return False
    if given is None:
        return True
    leaves = script.names.origins(given)
    if not all(isinstance(leaf, ast.Constant) for leaf in leaves):
        return any(TRAINING.search(name) for name in _names_around(script, sampler))
    return any(isinstance(leaf, ast.Constant) and leaf.value is True for leaf in leaves)


def _for_evaluation(script: Script, sampler: ast.Call) -> bool:
    """Return whether the names around the sampler suggest that it is not for training."""
    return any(EVALUATION.search(name) for name in _names_around(script, sampler))


def _names_around(script: Script, sampler: ast.Call) -> list[str]:
    """Return the last parts of the names that a sampler gets, and of its data."""
    stmt: ast.AST = sampler
    while isinstance(stmt, (ast.expr, ast.keyword)):
        stmt = script.source.parents[stmt]
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    data = call_argument(sampler, "dataset", 0)
    named = [dotted_name(target) for target in targets] + [dotted_name(data) if data is not None else ""]
    return [name.rpartition(".")[2] for name in named]


# ---- calls of set_epoch


def _is_set_elsewhere(script: Script) -> bool:
    """Return whether another file that the script uses sets an epoch."""
    return any(not script.is_here(reach) for reach, _ in script.noted(".set_epoch"))


def _set_already(script: Script) -> tuple[set[ast.AST], bool]:
    """Return the samplers whose epoch is set, and whether one is set that cannot be identified."""
    known: set[ast.AST] = set()
    for node in nodes_below(script.source.tree):
        if isinstance(node, ast.Constant) and node.value == "set_epoch":
            return known, True
        if not (isinstance(node, ast.Attribute) and node.attr == "set_epoch"):
            continue
        samplers = set(find_samplers(script, node.value))
        if not samplers:
            return known, True
        known |= samplers
    return known, False
