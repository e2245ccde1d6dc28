"""DW244: iterable datasets of which every rank reads all."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import ALL, Run, argument, same_on_ranks
from ...training_script.model.sequences import Site
from ...training_script.model.values import ClassRef, Instance, reduces_by
from ...training_script.nodes import node_at, nodes_below, nodes_of_kinds, walk
from ...training_script.rank_names import rank_kind
from ...training_script.syntax import last_name
from ...training_script.torch_classes import LOADER_CLASSES
from ..patches.share_stream import share_stream
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .loaders import iterates, trained_loops

BASE = "IterableDataset"
# What an iterable dataset may use to read a part of its own, or other samples than the other ranks.
DIVIDES = re.compile(r"rank|world|shard|process|rand|seed|generator|shuffle|sample|socket|queue|time", re.IGNORECASE)
RANKS = re.compile(r"rank|world|process", re.IGNORECASE)
OTHER_SOURCE = re.compile(r"socket|queue|time|requests?|consumer", re.IGNORECASE)
DRAWS = re.compile(f"rand|shuffle|sample|{OTHER_SOURCE.pattern}", re.IGNORECASE)
SEEDED = {"manual_seed", "default_rng", "RandomState", "Random"}
WORKERS = re.compile(r"worker", re.IGNORECASE)
WORKER_INFO = "get_worker_info"
MESSAGE = "every rank reads all of this dataset: its `__iter__` divides nothing by the rank"
AMONG_WORKERS = (
    "every rank reads all of this dataset: its `__iter__` divides it among the workers of the loader, of which each "
    "rank has as many, and not by the rank"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the iterable datasets that know nothing of ranks, of a loop that trains or adds up for all ranks."""
    trained = trained_loops(run) or list(_counted_loops(script, run)) if run.distributed else []
    for reach, fact in run.of(*LOADER_CLASSES) if trained else ():
        data = argument(fact, 0, "dataset")
        if data is None or not isinstance(data.obj, Instance) or reach.ranks != ALL or reach.unsure:
            continue
        cls = data.obj.cls
        used = _used(cls)
        divides = any(map(DIVIDES.search, used)) or (any(map(WORKERS.search, used)) and WORKER_INFO not in used)
        divides = divides and not _forgets_rank(cls, used)
        held = [value for each in cls.ancestry() for name, value in each.attributes.items() if name in used]
        plain = all(same_on_ranks(value.key) for value in held) and not divides
        if _is_stream(cls) and plain and any(_goes_over(script, key, fact.result.key) for key in trained):
            given = _first_yield(cls)
            place = given if given and given.path == script.source.path else None
            at = reach._replace(fact=fact._replace(site=place or fact.site))
            yields = node_at(script.source.tree, place.line, place.column, ast.Yield, ast.YieldFrom) if place else None
            patch = partial(share_stream, script, yields) if yields else None
            message = AMONG_WORKERS if WORKER_INFO in used else MESSAGE
            yield from violation_at(
                script,
                at,
                message,
                0.8,
                patch=None if WORKER_INFO in used else patch,
                related=_iteration(cls, given) if given and place is None else None,
            )


def _counted_loops(script: Script, run: Run) -> Iterator[Key]:
    """Yield what the loops go over whose totals are summed over the ranks, where nothing divides the sums."""
    for reach, fact in run.of("torch.distributed.all_reduce"):
        total = argument(fact, 0, "tensor")
        if (
            total is None
            or total.key.accumulated is None
            or not reach.by_all
            or not reduces_by(argument(fact, 1, "op"), "SUM")
        ):
            continue
        around = script.names.enclosing_function(fact.node) if script.is_here(reach) else None
        nodes = ast.walk(around or script.source.tree)
        if not any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div | ast.FloorDiv) for each in nodes):
            yield total.key.accumulated.rounds


def _iteration(cls: ClassRef, given: Site) -> list[RelatedPlace]:
    """Return where a class of another file says what it gives: the method, and its first element."""
    found = cls.find("__iter__")
    lines = [*([found[1].lineno] if found else []), given.line]
    return [RelatedPlace(path=given.path, line=line, message="the dataset is read here") for line in lines]


def _goes_over(script: Script, amount: Key, loader: Key) -> bool:
    """Return whether a loop goes over a loader, of which the number of batches may not be known."""
    if iterates(amount, loader):
        return True
    path, line, column = amount.args[:3] if amount.op == "at" else ("", 0, 0)
    node = node_at(script.source.tree, line, column, ast.expr) if path == script.source.path else None
    key = script.evaluated.value(node) if node else None
    return key is not None and loader in parts(key)


def check_unused(script: Script) -> list[Violation]:
    """Return the iterable datasets that keep the rank and never use it."""
    if not script.mentions(BASE):
        return []
    found: list[Violation] = []
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.ClassDef) or not any(last_name(base) == BASE for base in node.bases):
            continue
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        made, iterates_ = methods.get("__init__"), methods.get("__iter__")
        if made is None or iterates_ is None or node.name in _bases(script.source.tree):
            continue
        kept = {name for name in _stored(made) if rank_kind(name)}
        others = [each for each in node.body if each is not made]
        used = any(DIVIDES.search(name) or WORKERS.search(name) for each in others for name in _names(each))
        place = _yields(iterates_) or iterates_
        if kept and not used:
            found.append(
                Violation(
                    line=place.lineno,
                    column_bytes=place.col_offset + 1,
                    end_line=place.lineno,
                    message=f"{MESSAGE}, which it keeps as `{min(kept)}`",
                    confidence=0.8,
                    patch=partial(share_stream, script, place) if isinstance(place, ast.expr) else None,
                )
            )
    return found


def _forgets_rank(cls: ClassRef, used: set[str]) -> bool:
    """Return whether a dataset keeps the rank and reads its data without it, in an order that is no draw of its own."""
    made = cls.methods.get("__init__")
    kept = {name for name in _stored(made) if rank_kind(name)} if isinstance(made, ast.FunctionDef) else set[str]()
    own = OTHER_SOURCE if used & SEEDED else DRAWS
    computed = made is not None and any(isinstance(each, ast.BinOp) and _has_rank(each) for each in walk(made))
    return bool(kept) and not computed and not any(RANKS.search(name) or own.search(name) for name in used)


def _has_rank(node: ast.AST) -> bool:
    return any(rank_kind(name) for name in _names(node))


def _stored(made: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes of its object that a constructor sets."""
    for node in walk(made):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Name):
            yield each.id


def _bases(tree: ast.Module) -> set[str]:
    classes = nodes_of_kinds(tree, ast.ClassDef)
    return {last_name(base) for each in classes for base in each.bases}


def _is_stream(cls: ClassRef) -> bool:
    return any(base.endswith(BASE) for base in cls.library_bases())


def _used(cls: ClassRef) -> set[str]:
    """Return the names that a class uses to iterate, without those of its own methods."""
    ancestry = cls.ancestry()
    own = {name for each in ancestry for name in each.methods}
    body = [stmt for each in ancestry for stmt in each.node.body if getattr(stmt, "name", "") != "__init__"]
    return {name for stmt in body for name in _names(stmt)} - own


def _first_yield(cls: ClassRef) -> Site | None:
    found = cls.find("__iter__")
    place = _yields(found[1]) if found else None
    if place is None:
        return None
    return Site(cls.module.path, place.lineno, place.col_offset + 1, place.end_lineno or place.lineno)


def _yields(method: ast.AST) -> ast.expr | None:
    """Return the first place where a generator gives something."""
    return next((each for each in walk(method) if isinstance(each, ast.Yield | ast.YieldFrom)), None)
