"""DW203: a shuffling DistributedSampler whose epoch is never set.

Followed from the sampler to the DataLoader, the loop that trains on it and the loop around that. Silent for evaluation,
for ``shuffle=False``, for loaders that a library prepares (Accelerate, Fabric, Trainer), and if a ``set_epoch`` may be
the missing one.
"""

import ast

from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, nodes_of_body
from ..epoch_loops import (
    EVALUATION,
    LOADERS,
    SAMPLERS,
    EpochLoop,
    Loop,
    find_epoch_loops,
    find_samplers,
    is_call_of,
    samplers_of_loader,
)
from ..rule_context import Patch, Script, Violation, no_patch

FIX = "insert-set-epoch"
WHY_UNSAFE = "the order of the data changes, so a run is not comparable with earlier ones"


def check(script: Script) -> list[Violation]:
    """Return every shuffling sampler whose epoch is never set."""
    shuffling = [
        node
        for node in ast.walk(script.source.tree)
        if isinstance(node, ast.Call) and is_call_of(script, node, SAMPLERS) and _shuffles(script, node)
    ]
    shuffling = [sampler for sampler in shuffling if not _for_evaluation(script, sampler)]
    if not shuffling:
        return []
    known, unknown = _set_already(script)
    if unknown:
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
    return Violation(
        line=sampler.lineno,
        column=script.source.column(sampler),
        end_line=sampler.end_lineno or sampler.lineno,
        message=f"set_epoch of this sampler is not called in the epoch loop at line {use.epochs.lineno}: "
        "every epoch has the same order",
        confidence=0.9,
        patch=lambda: _patch(script, sampler, use),
    )


def _shuffles(script: Script, sampler: ast.Call) -> bool:
    given = call_argument(sampler, "shuffle", 3)
    if any(keyword.arg is None for keyword in sampler.keywords):
        return False
    if given is None:
        return True
    leaves = script.names.origins(given)
    return (
        bool(leaves)
        and all(isinstance(leaf, ast.Constant) for leaf in leaves)
        and any(isinstance(leaf, ast.Constant) and leaf.value is True for leaf in leaves)
    )


def _for_evaluation(script: Script, sampler: ast.Call) -> bool:
    """Return whether the names around the sampler suggest that it is not for training."""
    stmt: ast.AST = sampler
    while isinstance(stmt, (ast.expr, ast.keyword)):
        stmt = script.source.parents[stmt]
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    data = call_argument(sampler, "dataset", 0)
    named = [dotted_name(target) for target in targets] + [dotted_name(data) if data is not None else ""]
    return any(EVALUATION.search(name.rpartition(".")[2]) for name in named)


# ---- calls of set_epoch


def _set_already(script: Script) -> tuple[set[ast.AST], bool]:
    """Return the samplers whose epoch is set, and whether one is set that cannot be identified."""
    known: set[ast.AST] = set()
    for node in ast.walk(script.source.tree):
        if isinstance(node, ast.Constant) and node.value == "set_epoch":
            return known, True
        if not (isinstance(node, ast.Attribute) and node.attr == "set_epoch"):
            continue
        samplers = set(find_samplers(script, node.value))
        if not samplers:
            return known, True
        known |= samplers
    return known, False


# ---- the patch


def _patch(script: Script, sampler: ast.Call, use: EpochLoop) -> Patch:
    loop, source = use.epochs, script.source
    first = loop.body[0]
    if not source.alone(first) or first.lineno <= source.header_end(loop) or first.lineno == loop.lineno:
        return no_patch(FIX, "the body of the loop is on the line of its header: put it on lines of its own")
    edits = []
    epoch = _counter(script, loop)
    if epoch == "_" and isinstance(loop, (ast.For, ast.AsyncFor)):
        epoch = _free(script, loop, "epoch")
        target = loop.target if isinstance(loop.target, ast.Name) else loop.target.elts[0]  # type: ignore[attr-defined]
        edits.append(source.replace(target, epoch))
    if not epoch:
        return no_patch(
            FIX, "the loop does not count epochs: count its iterations, and pass the count to set_epoch in each"
        )
    expr, certain = _sampler_at(script, sampler, use)
    if not expr:
        return no_patch(FIX, "the sampler is not accessible in the loop: pass it in, and call set_epoch there")
    indent = source.indent(first.lineno)
    line = source.header_end(loop) + 1
    call = f"{expr}.set_epoch({epoch})"
    edits.append(source.insert_line(line, call, indent)) if certain else edits.extend(
        [
            source.insert_line(line, f'if hasattr({expr}, "set_epoch"):', indent),
            source.insert_line(line, call, indent + _unit(script, loop, indent)),
        ]
    )
    return Patch(id=FIX, safety="unsafe", why_unsafe=WHY_UNSAFE, edits=edits)


def _unit(script: Script, loop: Loop, indent: str) -> str:
    """One level of indentation as this loop uses it."""
    outer = script.source.indent(loop.lineno)
    return indent.removeprefix(outer) or "    "


def _counter(script: Script, loop: Loop) -> str:
    """Return the code of the epoch counter, or ""."""
    if isinstance(loop, ast.While):
        tested = {n.id for n in ast.walk(loop.test) if isinstance(n, ast.Name)}
        for node in nodes_of_body(loop):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in tested:
                return node.target.id if isinstance(node.op, ast.Add) else ""
        return ""
    target = loop.target
    if isinstance(target, (ast.Tuple, ast.List)):
        enumerated = isinstance(loop.iter, ast.Call) and dotted_name(loop.iter.func) == "enumerate"
        if not enumerated or not target.elts:
            return ""
        target = target.elts[0]
    return script.source.code(target) if isinstance(target, (ast.Name, ast.Attribute, ast.Subscript)) else ""


def _free(script: Script, loop: Loop, name: str) -> str:
    scope = script.names.scope_of[loop]
    while script.names.lookup(name, scope):
        name += "_"
    return name


def _sampler_at(script: Script, sampler: ast.Call, use: EpochLoop) -> tuple[str, bool]:
    """Return an expression for the sampler that is bound at the loop, and whether it certainly has an epoch."""
    names = script.names
    scope = names.scope_of[use.epochs]
    for name in scope.bindings:
        bindings = scope.bindings[name]
        before = [b for b in bindings if getattr(b.at, "lineno", 0) < use.epochs.lineno]
        probe = next(
            (
                n
                for n in ast.walk(scope.node)
                if isinstance(n, ast.Name) and n.id == name and names.scope_of.get(n) is scope
            ),
            None,
        )
        if len(before) == len(bindings) and probe is not None and _only(script, probe, sampler):
            certain = (
                len(bindings) == 1
                and _same_block(script, bindings[0].at, use.epochs)
                and len(names.origins(probe)) == 1
            )
            return name, certain
    if not dotted_name(use.loader):
        return "", False
    for leaf in names.origins(use.loader):
        if isinstance(leaf, ast.Call) and is_call_of(script, leaf, LOADERS):
            made = list(samplers_of_loader(script, leaf))
            for item, way in made:
                if item is sampler:
                    certain = (
                        len(made) == 1 and len(names.origins(use.loader)) == 1 and not _conditional(script, sampler)
                    )
                    return f"{dotted_name(use.loader)}{way}", certain
    return "", False


def _only(script: Script, probe: ast.Name, sampler: ast.Call) -> bool:
    """Return whether a name refers to this sampler or to None only."""
    leaves = script.names.origins(probe)
    return sampler in leaves and all(leaf is sampler or isinstance(leaf, ast.Constant) for leaf in leaves)


def _same_block(script: Script, at: ast.AST, loop: Loop) -> bool:
    return script.source.parents.get(at) is script.source.parents.get(loop)


def _conditional(script: Script, sampler: ast.Call) -> bool:
    """Return whether the sampler is created only under a condition."""
    parent = script.source.parents.get(sampler)
    while parent is not None and not isinstance(parent, FUNCTIONS):
        if isinstance(parent, (ast.If, ast.IfExp, ast.Try)):
            return True
        parent = script.source.parents.get(parent)
    return False
