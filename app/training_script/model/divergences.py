"""Where the ranks of a program do different things: all functions of a script, each pair of ranks."""

import ast
from pathlib import Path

from .evaluate import Evaluation, OverBudget
from .items import Called, Item, sequence
from .keys import RANKS
from .program import ABOUT_RANKS, ClassRef, FunctionRef, Module, Program
from .sequences import Comparison, Divergence, End, Node, Site
from .sequences import OverBudget as ComparisonOverBudget

PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2))


def divergences(tree: ast.Module, path: Path, text: str) -> list[Divergence]:
    """Return where ranks part in a script and in the functions of it that it does not call itself.

    Raises:
        OverBudget: It needs more steps than are allowed.
    """
    if not ABOUT_RANKS.search(text):
        return []
    program = Program(path)
    module = Module(path.stem, str(path), tree, path.name == "__init__.py")
    whole = Evaluation(program)
    whole.seeded = "seed(" in text
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
    found: list[Divergence] = []
    for root in roots:
        for first, second in PAIRS:
            try:
                new = Comparison(whole.keys, RANKS[first], RANKS[second]).run(root)
            except ComparisonOverBudget:
                continue
            for each in new:
                if not any(known.first.site == each.first.site for known in found):
                    found.append(each)
    return found


def _functions(module: Module) -> list[FunctionRef]:
    found: list[FunctionRef] = []
    for value in list(module.env.values()):
        obj = value.obj
        if isinstance(obj, FunctionRef) and obj.module is module:
            found.append(obj)
        elif isinstance(obj, ClassRef) and obj.module is module:
            found += [FunctionRef(module, method, obj.env, obj) for method in obj.methods.values()]
    return sorted(found, key=lambda each: each.node.lineno)


def _place(function: FunctionRef) -> Site:
    return Site(function.module.path, function.node.lineno, function.node.col_offset + 1, function.node.lineno)


__all__ = ["OverBudget", "divergences"]
