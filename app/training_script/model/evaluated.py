"""One evaluation of a script, which the comparison of ranks and the facts of the rules share."""

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..nodes import CompletedCall
from .budget import Budget, OverBudget
from .evaluation import Evaluation
from .function_steps import Called, Item
from .keys import BY_RANK, Key
from .parsed_modules import PARSED_MODULES, ParsedModule
from .program import Program
from .sequences import Site
from .values import ClassRef, FunctionRef, Module

MOST_STEPS = 150_000  # expressions and statements evaluated
MOST_ABROAD = 30_000  # of these, in other files
OF_SEVERAL = re.compile(
    r"distrib|rank|ddp|launch|world_?size|accelerat|deepspeed|horovod|hvd|slurm|nccl|gloo|fabric|fsdp|spawn|mpi|trainer",
    re.IGNORECASE,
)
STARTS_ACTORS = re.compile(r"^\s*ray\.init\(", re.MULTILINE)


class Root(NamedTuple):
    """A start that no call is known of: the statements of the script (no ``function``), or a function of it."""

    function: FunctionRef | None
    items: list[Item]


class Evaluated:
    """The steps of a script and of the functions of it that it does not call itself.

    ``complete``: the steps that are allowed were enough. ``names_ranks``: it is no program, or one that says something
    of several ranks or of what starts them. ``is_interactive``: these are cells of a notebook, which run
    in one process unless they make a process group; a script that a cell writes is none. ``starts_actors``: its
    statements run in one process, from which Ray starts others.
    """

    def __init__(
        self,
        tree: ast.Module,
        path: Path,
        text: str,
        *,
        most_steps: int = MOST_STEPS,
        changed: "Mapping[Path, ast.Module] | None" = None,
    ) -> None:
        """Take the trees of ``changed`` modules instead of their files."""
        self.path, self.text = path, text
        self.budget = Budget(most_steps, MOST_ABROAD)
        self.roots: list[Root] = []
        self.names_ranks = "__main__" not in text or bool(OF_SEVERAL.search(text))
        self.starts_actors = bool(STARTS_ACTORS.search(text))
        self.is_interactive = path.suffix == ".ipynb" and "__main__" not in text
        self.complete = True
        self.count_steps = 0
        self._whole = Evaluation(Program(path, changed.get if changed else None), text, self.budget)
        self.keys = self._whole.keys
        known = PARSED_MODULES.of_text(path, text)
        self._module = Module(str(path), known if known and known.tree is tree else ParsedModule(tree, text))
        module = self._module
        try:
            self.roots.append(Root(None, self._whole.run_script(module)))
            for function in _functions(module):
                name = "" if isinstance(function.node, ast.Lambda) else function.node.name
                if function.node not in self._whole.evaluated and name != "__exit__":
                    self.roots.append(Root(function, self._of_function(function, name)))
        except (OverBudget, RecursionError):
            self.complete = False
        else:
            self._follow_inner_functions()
        self.count_steps = most_steps - self.budget.left

    @property
    def tree(self) -> ast.Module:
        """The syntax tree of the script."""
        return self._module.parsed.tree

    @property
    def modules(self) -> frozenset[Path]:
        """The files of the modules that the script and what it imports have asked for something."""
        return self._whole.program.paths

    def tree_of(self, path: Path) -> ast.Module | None:
        """Return the syntax tree of a module that was read, None for others."""
        return self._whole.program.tree_of(path)

    @property
    def completed(self) -> list[CompletedCall]:
        """The noted calls of functions that are given more than what is written there, or something else."""
        return self._whole.completed

    @property
    def is_cut(self) -> bool:
        """True if a function of another file was not followed to its end."""
        return bool(self._whole.unfinished)

    @property
    def unfinished(self) -> frozenset[str]:
        """The names of the functions of other files that were not followed to their ends."""
        return frozenset(getattr(node, "name", "") for node in self._whole.unfinished)

    @property
    def is_single(self) -> bool:
        """True for a program that sets the number of ranks to one, or its rank to a number."""
        return self._whole.is_single or self._whole.is_one_rank

    @property
    def empties_for_some(self) -> bool:
        """True if objects hold a sequence that the rank empties: what it holds elsewhere may be given by a script."""
        held = (value.key for cls in self._whole.defined for value in cls.attributes.values())
        return any(
            key.op == "if" and key.args[0].differs_by & BY_RANK and any(_is_empty(each) for each in key.args[1:])
            for key in held
        )

    @property
    def normalises(self) -> bool:
        """True for a program that mentions the normalisation of batches."""
        return self._whole.normalises

    def value(self, node: ast.expr) -> Key | None:
        """Return the value of an expression over all calls of its function; None where nothing leads to it."""
        return self._whole.values.get(node)

    def forget(self) -> None:
        """Empty what refers to itself, so that its memory is free at once. Nothing can be asked after this."""
        self._module.env.clear()
        self._whole.forget()
        self.roots.clear()

    def _follow_inner_functions(self) -> None:
        """Add the functions and methods that are defined in others, which return them or pass them to a library."""
        with suppress(OverBudget, RecursionError):
            for function in self._whole.inner_functions:  # which grows meanwhile
                name = "__exit__" if isinstance(function.node, ast.Lambda) else function.node.name
                is_own = function.module is self._module and function.node not in self._whole.evaluated
                if is_own and name != "__exit__":
                    self.roots.append(Root(function, self._of_function(function, name)))

    def _of_function(self, function: FunctionRef, name: str) -> list[Item]:
        items: list[Item] = [Called(self._whole.run_function(function), _place(function))]
        if name == "__enter__" and function.owner and (leave := function.owner.find("__exit__")):
            after = FunctionRef(function.module, leave[1], function.env, function.owner)
            items.append(Called(self._whole.run_function(after), _place(after)))
        return items


def _is_empty(key: Key) -> bool:
    return key.op in ("sequence", "mapping") and not key.args


def _functions(module: Module) -> list[FunctionRef]:
    """Return the functions of a module: those that it does not mention, then the others, the last first.

    A function that is mentioned is mostly called, and then evaluated with what it is called with.
    """
    mentioned = module.parsed.mentioned
    found: list[FunctionRef] = []
    for value in list(module.env.values()):
        obj = value.obj
        if isinstance(obj, FunctionRef) and obj.module is module:
            found += [obj, obj.wraps] if obj.wraps else [obj]
        elif isinstance(obj, ClassRef) and obj.module is module:
            found += [FunctionRef(module, method, obj.env, obj) for method in obj.methods.values()]
    return sorted(found, key=lambda each: (getattr(each.node, "name", "") in mentioned, -each.node.lineno))


def _place(function: FunctionRef) -> Site:
    return Site(function.module.path, function.node.lineno, function.node.col_offset + 1, function.node.lineno)
