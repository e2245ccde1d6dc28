"""DW243: random inputs that are the same on all ranks."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.library_calls import BACKWARD, GENERATORS, RANDOM_TENSORS
from ...training_script.model.noted_calls import WRAPPED_FORWARD
from ...training_script.model.reach import Reach, Run, same_on_ranks
from ...training_script.nodes import node_at, nodes_of_kinds
from ...training_script.syntax import LOOPS, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.call_arguments import seed_of_rank
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at, violation_at_node
from .replicas import SEED, where_given

RANDINT = "torch.randint"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the seeds, set after DDP has wrapped a model, by which all ranks draw the same inputs."""
    yield from _of_generators(script, run)
    if any(value.key.differs_by & BY_RANK for _, fact in run.of(SEED) for value in fact.values):
        return
    yield from _of_places(script, run)
    yield from _of_first_seed(script, run)
    wrapped, seed = False, None
    for reach, fact in run.of(*DDP_CLASSES, SEED, WRAPPED_FORWARD):
        if fact.name in DDP_CLASSES:
            wrapped, seed = reach.several, None
        elif fact.name == SEED:
            seed = (reach, fact) if _is_of_all(reach, fact) else None
        elif wrapped and seed and reach.loops and reach.several and fact.values and _is_drawn(fact.values[0].key):
            given = where_given(script, *seed)
            place = script.place(given)
            setting = node_at(script.source.tree, place.line, place.column, ast.Call) if place else None
            yield from violation_at(
                script,
                given,
                "all ranks set this seed, and draw the inputs of the model with it "
                f"(line {fact.site.line}): each computes the same as the others",
                0.75,
                patch=partial(seed_of_rank, script, setting) if setting else None,
            )
            seed = None


def _of_generators(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the generator, made after DDP has wrapped a model, from which all ranks draw the same inputs."""
    wraps = [reach for reach, _ in run.of(*DDP_CLASSES)]
    made = [(reach, fact) for reach, fact in run.of(*GENERATORS) if "alike" in fact.result.facts and reach.several]
    if not wraps or len(made) != 1 or run.reached.index(made[0][0]) < run.reached.index(wraps[0]):
        return
    for reach, fact in run.of(WRAPPED_FORWARD):
        given = fact.values[0] if fact.values else None
        if given and "alike" in given.facts and same_on_ranks(given.key) and reach.loops and reach.several:
            yield from violation_at(
                script,
                in_function_of(made[0][0], wraps),
                "all ranks make this generator with one seed, and what it gives goes into the model "
                f"(line {fact.site.line}): each computes the same as the others",
                0.75,
                related=_seeds(script, made[0][1]),
            )
            return


def _of_places(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the places of samples that all ranks draw alike in each round, with one seed set at first."""
    seeds = [(reach, fact) for reach, fact in run.of(SEED) if _is_of_all(reach, fact)]
    drawn = [node for node in _calls(script) if script.names.qualified(node.func) == RANDINT]
    if not seeds or not drawn:
        return
    learned = [reach.loops for reach in run.reached if reach.name == BACKWARD]  # evaluation may be that of all ranks
    for reach, fact in run.of(WRAPPED_FORWARD):
        given = fact.values[0].key if fact.values else None
        if given is None or not reach.loops or not reach.several or not _is_taken_by_draw(given):
            continue
        if reach.loops not in learned:
            continue
        around = script.names.enclosing_function(fact.node) if script.is_here(reach) else None
        call = next((node for node in drawn if _is_of_round(script, node, around)), None)
        if call is not None:
            line = seeds[-1][1].site.line
            yield violation_at_node(
                call,
                f"all ranks have set one seed (line {line}), and draw the same samples here for each step: each "
                "computes the same as the others",
                0.75,
                related=[RelatedPlace(path=seeds[-1][1].site.path, line=line, message="the seed of all ranks")],
            )
            return


def _of_first_seed(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the inputs that all ranks draw alike in each round, with one seed set before DDP has wrapped the model."""
    wraps = [place for place, each in enumerate(run.reached) if each.name in DDP_CLASSES]
    seeds = [(place, *call) for place, call in _placed(run, SEED) if _is_of_all(*call)]
    if not wraps or not seeds or any(place > wraps[0] for place, *_ in seeds):
        return
    learned = [reach.loops for reach in run.reached if reach.name == BACKWARD]
    for reach, fact in run.of(WRAPPED_FORWARD):
        given = fact.values[0].key if fact.values else None
        if given is None or reach.loops not in learned or not reach.several or not _is_drawn(given):
            continue
        if not script.is_here(reach) or not _is_compared(script, fact.node):
            continue  # what is learned of nothing is a program for something else
        names = {part.args[0] for part in parts(given) if part.op == "call"} & {*RANDOM_TENSORS}
        calls = nodes_of_kinds(script.source.tree, ast.Call)
        drawn = [node for node in calls if script.names.qualified(node.func) in names]
        call = next((node for node in drawn if _is_repeated(script, node)), None)
        if call is not None:
            _, seed, first = seeds[-1]
            setting = first.node if script.is_here(seed) else None
            yield violation_at_node(
                call,
                f"all ranks have set one seed (line {first.site.line}), and draw the same inputs here for each step: "
                "each computes the same as the others",
                0.75,
                patch=partial(seed_of_rank, script, setting) if setting else None,
                related=[RelatedPlace(path=first.site.path, line=first.site.line, message="the seed of all ranks")],
            )
            return


def _is_repeated(script: Script, draw: ast.Call) -> bool:
    """Return whether a call draws what a function of the program gives to each round of a loop.

    Numbers that a loop draws where it uses them are mostly those of a program about something else.
    """
    name = getattr(script.names.enclosing_function(draw), "name", None)
    calls = nodes_of_kinds(script.source.tree, ast.Call) if name else []
    shared = not any(word.arg == "generator" for word in draw.keywords)
    return shared and any(last_name(each.func) == name and _is_in_loop(script, each) for each in calls)


def _is_in_loop(script: Script, node: ast.expr) -> bool:
    own, at = script.names.enclosing_function(node), script.source.parents.get(node)
    while at is not None and at is not own and not isinstance(at, LOOPS):
        at = script.source.parents.get(at)
    return isinstance(at, LOOPS)


def _is_compared(script: Script, forward: ast.Call) -> bool:
    """Return whether what a model gives goes into a loss, or a difference, with something else that is no constant."""
    stmt = script.source.statement_of(forward)
    names = {dotted_name(each) for each in stmt.targets} - {""} if isinstance(stmt, ast.Assign) else set[str]()
    around = script.names.enclosing_function(forward) or script.source.tree
    for node in nodes_of_kinds(around, ast.Call, ast.BinOp):
        if isinstance(node, ast.BinOp):
            sides = [node.left, node.right] if isinstance(node.op, ast.Sub) else []
        else:
            sides = node.args
        holds = [any(each is forward or dotted_name(each) in names for each in _expressions(side)) for side in sides]
        if any(holds) and any(
            not held and not isinstance(side, ast.Constant) for side, held in zip(sides, holds, strict=True)
        ):
            return True
    return False


def _expressions(side: ast.expr) -> Iterator[ast.expr]:
    return (each for each in ast.walk(side) if isinstance(each, ast.expr))


def _placed(run: Run, name: str) -> Iterator[tuple[int, tuple[Reach, Noted]]]:
    """Yield the calls of a name with their place among all facts."""
    for place in run.places.get(name, ()):
        fact = run.reached[place].fact
        if isinstance(fact, Noted):
            yield place, (run.reached[place], fact)


def _calls(script: Script) -> list[ast.Call]:
    return nodes_of_kinds(script.source.tree, ast.Call) if script.mentions("randint") else []


def _is_of_round(script: Script, draw: ast.Call, around: ast.AST | None) -> bool:
    """Return whether a call draws in each round: it is in a loop, or in another function than the forward pass."""
    if any(word.arg == "generator" for word in draw.keywords):
        return False
    own = script.names.enclosing_function(draw)
    at: ast.AST | None = draw
    while at is not None and at is not own and not isinstance(at, LOOPS):
        at = script.source.parents.get(at)
    return isinstance(at, LOOPS) or (own is not None and own is not around)


def _is_taken_by_draw(given: Key) -> bool:
    """Return whether a tensor is made of samples at places that torch.randint gives alike on all ranks."""
    if not same_on_ranks(given):
        return False
    match given.op, given.args:
        case "item", (_, place):
            return any(part.op == "call" and part.args[0] == RANDINT for part in parts(place))
        case "call", (str(), *made):
            return any(_is_taken_by_draw(each) for each in made if isinstance(each, Key))
        case "built", (count, *rest):
            return any(map(_is_taken_by_draw, rest[count:]))
        case _:
            return False


def _seeds(script: Script, made: Noted) -> list[RelatedPlace]:
    """Return the places in this script where the seed of a generator is computed, that of the generator last."""
    given = (
        each for value in (*made.values, *made.named.values()) for each in parts(value.key) if not each.is_constant
    )
    computed = {each for each in given if each.op == "binary"}
    nodes = (node for node in nodes_of_kinds(script.source.tree, ast.BinOp) if computed)
    lines = dict.fromkeys(node.lineno for node in nodes if script.evaluated.value(node) in computed)
    places = [RelatedPlace(path=script.source.path, line=line, message="the seed") for line in lines]
    return [*places, RelatedPlace(path=made.site.path, line=made.site.line, message="the generator is made here")]


def _is_of_all(reach: Reach, seed: Noted) -> bool:
    return reach.several and not reach.loops and all(same_on_ranks(value.key) for value in seed.values)


def _is_drawn(key: Key) -> bool:
    """Return whether a tensor is one of random numbers from the generator that all of torch shares, or made of such."""
    name = key.args[0] if key.op == "call" else ""
    given = [arg for arg in key.args if isinstance(arg, Key)]
    if name in RANDOM_TENSORS:
        return not any(arg.op in ("at", "changed", "local") or arg.args[:1] == ("torch.Generator",) for arg in given)
    made = str(name).startswith("torch.") or key.op == "binary"
    others = [arg for arg in given if not arg.is_constant]
    return made and bool(others) and all(map(_is_drawn, others))
