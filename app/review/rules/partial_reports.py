"""DW434: results of an evaluation over one rank's part of the data, reported as those of all."""

import ast
import re
from collections.abc import Iterator, Sequence

from ...training_script.model.collective_effects import OF_ONE_RANK, SAME
from ...training_script.model.keys import DIFFERS, Key, parts, parts_entered
from ...training_script.model.noted_calls import REPORT
from ...training_script.model.reach import Run, alternatives, argument
from ...training_script.model.sequences import Event
from ...training_script.model.values import Value
from ...training_script.nodes import nodes_below, nodes_of_kinds, walk
from ...training_script.syntax import dotted_name, last_name
from ...training_script.torch_classes import LOADER_CLASSES, SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at

CHOICES = ("if", "one of", "changing")  # between values
COMBINES = re.compile(r"gather|reduce|sync|broadcast|pad_across", re.IGNORECASE)  # in the names of functions
SAVES = ("torch.save", "numpy.save", "numpy.savez", "numpy.savez_compressed")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the sums over the rank's part of a test set that one rank reports and nothing reduces."""
    reports = [
        (reach, fact) for reach, fact in run.of(REPORT, *SAVES) if reach.ranks.bit_count() == 1 and not reach.unsure
    ]
    if not reports or not run.distributed:
        return
    loaders = loaders_of_parts(run)
    training = {
        loop.site[:2] for each in run.reached if "backward" in each.name or each.name == ".step" for loop in each.loops
    }
    gathering = {loop.site[:2] for each in run.reached if isinstance(each.fact, Event) for loop in each.loops}
    for reach, fact in reports:
        reported = (*fact.values, *fact.named.values())
        for part in (part for value in reported for part in parts_entered(value.key, _may_show_sum)):
            if part.accumulated is None or part.args[1:3] in training or part.args[1] != script.source.path:
                continue
            if not _adds_up(part) or any(each.op in SAME for each in parts(part.accumulated.after)):
                continue  # it is made in one round, or each round adds what it has gathered from all ranks
            if _is_multiplied(part, reported):
                continue
            rounds = part.accumulated.rounds
            if (
                rounds.differs_by & DIFFERS
                or not loaders.isdisjoint(parts(rounds))
                or (is_shared_out(rounds) and (part.args[1:3] not in gathering or _adds_own(script, part)))
            ):
                yield from violation_at(
                    script,
                    at_node(script, reach, _behind(script, part)),
                    f"`{part.args[0]}` counts this rank's part of the data only, and one rank reports it "
                    f"(line {fact.site.line}): nothing sums it up over the ranks",
                    0.7,
                    related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="reported here")],
                )
                break


def _is_multiplied(summed: Key, reported: Sequence[Value]) -> bool:
    """Return whether a report has a count times the number of ranks: that of all of them, where each has as many."""
    products = (
        part.args[1:]
        for value in reported
        for part in parts(value.key)
        if part.op == "binary" and part.args[0] == "Mult"
    )
    return any(summed in sides and any(each.op == "world" for each in sides) for sides in products)


def loaders_of_parts(run: Run) -> set[Key]:
    """Return the loaders that a sampler gives one rank's part of the data."""
    samplers = {sampler.result.key for _, sampler in run.of(*SAMPLER_CLASSES)}
    return {
        loader.result.key
        for _, loader in run.of(*LOADER_CLASSES)
        if (given := argument(loader, 3, "sampler")) and given.key in samplers
    }


def _adds_up(summed: Key) -> bool:
    """Return whether a round computes a value of the one before it, rather than to make it once and to keep it."""
    if summed.accumulated is None:
        return False
    before, after = summed.accumulated.over, summed.accumulated.after
    return any(each is not before and each.op not in CHOICES and before in parts(each) for each in alternatives(after))


def is_shared_out(rounds: Key) -> bool:
    """Return whether a loop goes over a loader of which Accelerate gives each rank a part."""
    return any(each.op == "prepared" and any(part.op == "loader" for part in parts(each)) for each in parts(rounds))


def _adds_own(script: Script, summed: Key) -> bool:
    """Return whether a loop that gathers something else adds what this rank has computed of a batch."""
    name, _, line, *_ = summed.args
    loop = next((each for each in nodes_of_kinds(script.source.tree, ast.For) if each.lineno == line), None)
    nodes = [*walk(loop)] if loop else []
    added = [each.value for each in nodes if isinstance(each, ast.AugAssign) and dotted_name(each.target) == name]
    return bool(added) and all(_is_result(each) and not _is_gathered(each, nodes) for each in added)


def _is_result(node: ast.expr) -> bool:
    """Return whether a number is read from a tensor, rather than counted."""
    return any(isinstance(each, ast.Call) and last_name(each.func) == "item" for each in walk(node))


def _is_gathered(node: ast.expr, nodes: list[ast.AST]) -> bool:
    """Return whether an expression is made of what these statements have got from the other ranks."""
    gathered = set[str]()
    bound = [each for each in nodes if isinstance(each, ast.Assign | ast.AugAssign)]
    for stmt in sorted(bound, key=lambda each: each.lineno):
        if _asks_others(stmt.value, gathered):
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            gathered |= {each.id for target in targets for each in walk(target) if isinstance(each, ast.Name)}
    return _asks_others(node, gathered)


def _asks_others(node: ast.expr, gathered: set[str]) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id in gathered)
        or (isinstance(each, ast.Call) and COMBINES.search(last_name(each.func)) is not None)
        for each in walk(node)
    )


def _may_show_sum(key: Key) -> bool:
    """Return whether a value shows what it was computed of.

    A loss and the result of a layer do not, nor does a sum over the ranks, which is the sum itself for one process.
    """
    if key.op == "if":
        return not any(each.op in SAME or each.args[:1] == (OF_ONE_RANK,) for each in alternatives(key))
    return key.op != "call" or not str(key.args[0]).startswith("torch.nn.")


def _behind(script: Script, summed: Key) -> ast.expr | None:
    """Return the first expression behind a loop that reads what the loop has summed up."""
    name, _, line, *_ = summed.args
    loops = (node for node in nodes_of_kinds(script.source.tree, ast.For) if node.lineno == line)
    end = next((loop.end_lineno or line for loop in loops), line)
    reads = (
        node
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Name) and node.id == name and node.lineno > end
    )
    return min(reads, key=lambda node: node.lineno, default=None)
