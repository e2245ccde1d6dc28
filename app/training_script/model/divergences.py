"""The places where ranks of a program do different things: all functions of a script, each pair of ranks."""

import ast
from pathlib import Path
from typing import NamedTuple

from .budget import Budget, OverBudget
from .comparison import Comparison, Divergence
from .functions import Evaluation
from .items import Called, Item, sequence
from .keys import RANKS
from .program import Program, concerns_ranks
from .sequences import End, Node, Site
from .values import ClassRef, FunctionRef, Module

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2))
MOST_STEPS = 100_000  # expressions and statements evaluated, nodes compared
MOST_COMPARED = 10_000  # nodes of one function, for one pair of ranks


class Divergences(NamedTuple):
    """The divergences of a script. ``complete``: it could be followed to its end within the steps that are allowed."""

    found: list[Divergence]
    complete: bool


def divergences(tree: ast.Module, path: Path, text: str) -> Divergences:
    """Return where ranks part in a script and in the functions of it that it does not call itself."""
    found: list[Divergence] = []
    complete = True
    if not concerns_ranks(text):
        return Divergences(found, complete)
    budget = Budget(MOST_STEPS)
    whole = Evaluation(Program(path), "seed(" in text, budget)
    try:
        module = Module(str(path), tree)
        for root in _roots(whole, module):
            for first, second in PAIRS:
                comparison = Comparison(whole.keys, RANKS[first], RANKS[second], budget.part(MOST_COMPARED))
                complete &= comparison.run(root)
                found += [
                    each for each in comparison.found if not any(each.first.site == known.first.site for known in found)
                ]
    except (OverBudget, RecursionError):
        complete = False
    return Divergences(found, complete)


def _roots(whole: Evaluation, module: Module) -> list[Node]:
    """Return the sequences of a script: that of its statements, and those of functions that it does not call."""
    roots: list[Node] = [sequence(whole.run_script(module), End("return", None))]
    for function in _functions(module):
        name = "" if isinstance(function.node, ast.Lambda) else function.node.name
        if function.node in whole.evaluated or name == "__exit__":
            continue
        items: list[Item] = [Called(whole.run_function(function), _place(function))]
        if name == "__enter__" and function.owner and (leave := function.owner.find("__exit__")):
            after = FunctionRef(module, leave[1], function.env, function.owner)
            items.append(Called(whole.run_function(after), _place(after)))
        roots.append(sequence(items, End("return", None)))
    return roots


def _functions(module: Module) -> list[FunctionRef]:
    """Return the functions of a module, the last first: those that call others are mostly below them."""
    found: list[FunctionRef] = []
    for value in list(module.env.values()):
        obj = value.obj
        if isinstance(obj, FunctionRef) and obj.module is module:
            found.append(obj)
        elif isinstance(obj, ClassRef) and obj.module is module:
            found += [FunctionRef(module, method, obj.env, obj) for method in obj.methods.values()]
    return sorted(found, key=lambda each: -each.node.lineno)


def _place(function: FunctionRef) -> Site:
    return Site(function.module.path, function.node.lineno, function.node.col_offset + 1, function.node.lineno)
