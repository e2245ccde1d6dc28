"""DW233 and DW237: orders and settings that each process has of its own."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import collective_name
from ...training_script.model.keys import BY_RANK, LOCAL, Key
from ...training_script.model.library_calls import GENERATORS
from ...training_script.model.noted_calls import UNORDERED
from ...training_script.model.reach import Reach, Run
from ...training_script.model.sequences import Site
from ...training_script.syntax import last_name
from ...training_script.torch_classes import DDP_CLASSES, is_optimizer
from ..origins import origins_at
from ..patches.call_arguments import one_seed
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node


def check_order(script: Script, run: Run) -> Iterator[Violation]:
    """DW233: yield the loops over sets in which ranks communicate, and the numbers that their elements get."""
    reported: set[Site] = set()
    yield from _reduced(script, run)
    for reach, fact in run.of(UNORDERED):
        if not (reach.several and run.distributed) or fact.site in reported or not _matters(script, reach, fact.node):
            continue
        reported.add(fact.site)
        yield from violation_at(
            script,
            reach,
            f"each process has an order of its own for the elements of this set (line {fact.site.line}): the ranks do "
            "not go through them in the same order",
            0.75,
            related=[
                RelatedPlace(path=fact.site.path, line=fact.site.line, message="the order of a set is taken here"),
                *_made(fact.values[0].key),
            ],
        )


def _reduced(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions of tensors whose elements are in the order of a set of texts."""
    for reach, fact in run.of("torch.distributed.all_reduce", "torch.distributed.reduce"):
        given = fact.node.args[0] if fact.node.args and script.is_here(reach) else None
        for made in origins_at(script, given) if given is not None and reach.several else ():
            listed = made.args[0] if isinstance(made, ast.Call) and made.args else None
            if not isinstance(listed, ast.ListComp) or not _is_set_of_texts(script, listed.generators[0].iter):
                continue
            yield violation_at_node(
                listed,
                "the elements are in the order of a set of texts, which each process has for itself: this adds up "
                f"values of different names (line {fact.node.lineno})",
                0.8,
                related=[RelatedPlace(path=script.source.path, line=fact.node.lineno, message="added up here")],
            )


def _is_set_of_texts(script: Script, node: ast.expr) -> bool:
    for made in origins_at(script, node):
        match made:
            case ast.Set(elts=elements):
                return all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in elements)
            case ast.Call(func=ast.Name(id="set" | "frozenset"), args=[held]):
                key = script.evaluated.value(held)
                names = (
                    key.args[::2] if key and key.op == "mapping" else key.args if key and key.op == "sequence" else ()
                )
                return bool(names) and all(each.is_constant and isinstance(each.value, str) for each in names)
            case _:
                pass
    return False


def _matters(script: Script, reach: Reach, node: ast.AST) -> bool:
    """Return whether ranks communicate in a loop, or elements get numbers that are kept by what they are."""
    if not (isinstance(node, ast.Call) and last_name(node) == "enumerate"):
        return True
    parents = script.source.parents if script.is_here(reach) else {}
    match parents.get(node):
        case ast.comprehension() as part:
            return isinstance(parents.get(part), ast.DictComp)
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=number), _]), body=body):
            return any(_uses_order(script, each, number) for stmt in body for each in ast.walk(stmt))
        case _:
            return False


def _uses_order(script: Script, node: ast.AST, number: str) -> bool:
    """Return whether a step of a numbered loop communicates, or stores the number."""
    match node:
        case ast.Assign(value=ast.Name(id=stored)):
            return stored == number
        case ast.Call():
            return bool(collective_name(node, script.names))
        case _:
            return False


def _made(held: Key) -> Iterator[RelatedPlace]:
    """Yield where a set is made."""
    if held.op == "at":
        yield RelatedPlace(path=held.args[0], line=held.args[1], message="the set is made here")


def check_settings(script: Script, run: Run) -> Iterator[Violation]:
    """DW237: yield the optimizers that have other settings on each rank."""
    if not any(reach.several for reach, _ in run.of(*DDP_CLASSES)):
        return
    sources = [(each, fact) for each, fact in run.of(*GENERATORS) if fact.result.key.differs_by & LOCAL]
    for reach in run.reached:
        named = getattr(reach.fact, "named", {})
        if not is_optimizer(reach.name) or not reach.several:
            continue
        differ = [name for name, value in named.items() if name != "params" and _is_own(value.key)]
        if differ:
            at_source = len(sources) == 1 and script.is_here(sources[0][0])
            made = f"the optimizer of line {reach.fact.site.line}" if at_source else "this optimizer"
            places = [reach.fact.site] if at_source else [fact.site for _, fact in sources]
            yield from violation_at(
                script,
                sources[0][0] if at_source else reach,
                f"{' and '.join(differ)} of {made} differ between ranks: their models drift apart",
                0.8,
                related=[
                    RelatedPlace(path=site.path, line=site.line, message="settings that differ between ranks")
                    for site in places
                ],
                patch=partial(one_seed, script, sources[0][1].node, "seed", 0) if at_source else None,
            )


def _is_own(setting: Key) -> bool:
    """Return whether a setting differs between ranks, and not only something else in the object it is read from."""
    pending = [setting]
    while pending:
        each = pending.pop()
        if each.op == "attribute" and each.args[0].op in ("attribute", "if", "mapping"):
            continue
        inner = [arg for arg in each.args if isinstance(arg, Key) and arg.differs_by & (LOCAL | BY_RANK)]
        if each.differs_by & (LOCAL | BY_RANK) and not inner:
            return True
        pending += inner
    return False
