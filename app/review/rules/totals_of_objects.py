"""DW436: running totals of an object that one method adds to, and another one sums over the ranks again and again."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ...training_script.nodes import nodes_below, nodes_of_kinds, walk
from ...training_script.syntax import FUNCTIONS, Function, contains_line, dotted_name, last_name, nodes_of_body
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at_node
from . import running_totals
from .running_totals import is_sum, mentions

EMPTIES = {"clear", "reset", "zero_", "pop"}
MOST_CALLERS = 4  # functions, each of which calls the one before


class Total(NamedTuple):
    """An attribute that ``adds`` grows, and of which ``sums`` makes the total of all ranks, in the call ``summed``."""

    name: str
    added: ast.AugAssign
    adds: Function
    sums: Function
    summed: ast.Call


def check(script: Script) -> list[Violation]:
    """DW436: return the totals of one function that are summed up again, and those of objects."""
    return [*running_totals.check(script), *_of_objects(script)]


def _of_objects(script: Script) -> Iterator[Violation]:
    """Yield the sums over the ranks that a loop repeats though it goes on adding to what they are kept in."""
    if not (script.mentions("all_reduce") and script.mentions("+=")):
        return
    tree = script.source.tree
    functions, classes = nodes_of_kinds(tree, *FUNCTIONS), nodes_of_kinds(tree, ast.ClassDef)
    accumulated = [node.lineno for node in nodes_of_kinds(tree, ast.AugAssign)]
    for owner in classes:
        if not any(contains_line(owner, line) for line in accumulated):
            continue
        reported: set[ast.Call] = set()
        for total in _totals(script, owner, accumulated):
            again = _loops(script, total, functions)
            loop = next((each for each in again if not _starts_again(owner, total, each, functions, classes)), None)
            if loop is None or total.summed in reported:
                continue
            reported.add(total.summed)
            yield violation_at_node(
                total.summed,
                f"`{total.name}` holds the total of all ranks from here on, and each of them goes on adding to it "
                f"(line {total.added.lineno}): the next round of the loop (line {loop.lineno}) sums it up again",
                0.8,
                related=[
                    RelatedPlace(path=script.source.path, line=total.added.lineno, message="it is added to here"),
                    *(
                        RelatedPlace(path=script.source.path, line=call.lineno, message="summed in each round")
                        for call in _calls_of(loop, {total.sums.name})
                    ),
                ],
            )


def _totals(script: Script, owner: ast.ClassDef, accumulated: list[int]) -> Iterator[Total]:
    """Yield the totals of a class; ``accumulated``: the lines of the file that add to something."""
    methods = [each for each in owner.body if isinstance(each, FUNCTIONS) and each.name != "__init__"]
    added = {
        dotted_name(node.target): (node, method)
        for method in methods
        if any(contains_line(method, line) for line in accumulated)
        for node in nodes_of_body(method)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add)
        if dotted_name(node.target).startswith("self.")
    }
    for method in methods if added else ():
        for call in nodes_of_body(method):
            if isinstance(call, ast.Call) and is_sum(script, call):
                for name in _kept_in(method, call):
                    if name in added and added[name][1] is not method:
                        yield Total(name, *added[name], method, call)


def _kept_in(method: Function, call: ast.Call) -> Iterator[str]:
    """Yield the attributes that hold the result of a sum: the one that is passed, or one that gets it back."""
    given = dotted_name(call.args[0])
    if given.startswith("self."):
        yield given
    made: list[ast.expr] = []
    for node in nodes_of_body(method):
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=held) | ast.List(elts=held)) if name == given:
                yield from (dotted_name(each) for each in held)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == given and node.lineno < call.lineno:
                made.append(value)
            case ast.Assign(targets=[target], value=value) if node.lineno > call.lineno and given:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                names = [dotted_name(each) for each in parts]
                back = mentions(value, given)
                yield from (name for name in names if back and any(mentions(each, name) for each in made))
            case _:
                pass


def _loops(script: Script, total: Total, functions: list[Function]) -> Iterator[ast.For | ast.While]:
    """Yield the loops that add to a total and sum it up in each round."""
    adds, sums = (_with_callers(each, functions) for each in (total.adds, total.sums))
    for loop in nodes_below(script.source.tree):
        if not isinstance(loop, ast.For | ast.While) or not any(_calls_of(loop, adds)):
            continue
        if any(not _ends_loop(script, call) for call in _calls_of(loop, sums)):
            yield loop


def _with_callers(function: Function, functions: list[Function]) -> set[str]:
    """Return the names of a function and of those that call it, by its name."""
    names = {function.name}
    for _ in range(MOST_CALLERS):
        names |= {each.name for each in functions if each.name not in names and any(_calls_of(each, names))}
    return names


def _calls_of(within: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    return (node for node in nodes_of_body(within) if isinstance(node, ast.Call) and last_name(node.func) in names)


def _ends_loop(script: Script, call: ast.Call) -> bool:
    """Return whether a loop ends behind a call."""
    block = script.source.block_of(script.source.statement_of(call))
    return isinstance(block[-1], ast.Break | ast.Return)


def _starts_again(
    owner: ast.ClassDef,
    total: Total,
    loop: ast.For | ast.While,
    functions: list[Function],
    classes: list[ast.ClassDef],
) -> bool:
    """Return whether a round makes a new object, or empties it, or the class keeps the total of this rank apart."""
    made = {owner.name}
    for _ in range(MOST_CALLERS):
        made |= {each.name for each in classes if any(_made_in(each, made))}
        made |= {each.name for each in functions if any(not _is_lazy(each, call) for call in _made_in(each, made))}
    if any(_calls_of(loop, made - {total.adds.name, total.sums.name})):
        return True
    methods = [each for each in owner.body if isinstance(each, FUNCTIONS) and each.name != "__init__"]
    sets = {each.name for each in methods if each is not total.sums and _sets(each, total.name)}
    within = _with_callees(loop, functions)
    if any(any(_calls_of(each, EMPTIES | sets)) for each in within):
        return True
    behind = (node for node in nodes_of_body(total.sums) if getattr(node, "lineno", 0) > total.summed.lineno)
    return any(
        isinstance(node, ast.Assign)
        and any(dotted_name(each) == total.name for each in node.targets)
        and not mentions(node.value, dotted_name(total.summed.args[0]))
        for node in behind
    )


def _made_in(within: ast.AST, names: set[str]) -> list[ast.Call]:
    return [node for node in walk(within) if isinstance(node, ast.Call) and dotted_name(node.func) in names]


def _is_lazy(function: Function, made: ast.Call) -> bool:
    """Return whether an object is made only where there is none yet."""
    for node in walk(function):
        asks = isinstance(node, ast.If) and any(
            isinstance(op, ast.NotIn | ast.Is) for each in ast.walk(node.test) for op in getattr(each, "ops", ())
        )
        keeps = isinstance(node, ast.Call) and last_name(node.func) == "setdefault"
        if (asks or keeps) and any(each is made for each in ast.walk(node)):
            return True
    return False


def _sets(method: Function, name: str) -> bool:
    return any(
        isinstance(node, ast.Assign) and any(dotted_name(each) == name for each in node.targets)
        for node in nodes_of_body(method)
    )


def _with_callees(loop: ast.For | ast.While, functions: list[Function]) -> list[ast.AST]:
    """Return a loop and the functions that it calls, by their names."""
    found: list[ast.AST] = [loop]
    for each in found:  # which grows meanwhile
        names = {last_name(node.func) for node in nodes_of_body(each) if isinstance(node, ast.Call)}
        found += [function for function in functions if function.name in names and function not in found]
    return found
