"""Context and results of rules: a parsed script with its semantic model, violations and patches."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...knowledge.schema import Safety, Severity
from ..training_script.edits import Edit
from ..training_script.model.parsed_modules import PARSED_MODULES, ParsedModule
from ..training_script.model.rank_mentions import concerns_ranks
from ..training_script.name_resolution import Names
from ..training_script.nodes import as_written
from ..training_script.source import ScriptSource
from .project_tests import is_test
from .types import RelatedPlace

if TYPE_CHECKING:
    from ..training_script.model.divergence import Divergence
    from ..training_script.model.divergences import Divergences
    from ..training_script.model.evaluated import Evaluated
    from ..training_script.model.function_steps import Branch, Noted
    from ..training_script.model.reach import Reach, Run
    from ..training_script.model.reached_parts import Reached
    from ..training_script.model.sequences import Site

LOADS_TO = "map_location"  # where it is not passed on, the function is wrong in any program


class Script:
    """One parsed file with its names. The model of the program is loaded when needed."""

    def __init__(self, text: str, path: str) -> None:
        """Parse ``text``.

        Raises:
            UserError: It is not valid Python.
        """
        known = PARSED_MODULES.of_text(Path(path), text)
        self.source = ScriptSource(text, path, known and known.tree)
        self._mentions: dict[re.Pattern[str] | str, bool] = {}
        if Path(path) not in PARSED_MODULES and concerns_ranks(text):
            PARSED_MODULES.keep(Path(path), text, ParsedModule(self.source.tree, text))

    @cached_property
    def names(self) -> Names:
        """The names of this file."""
        return Names(self.source)

    def mentions(self, wanted: re.Pattern[str] | str, *words: str) -> bool:
        """Return whether the text has a text, or a match of a pattern: rules ask for each start of the program.

        ``words``: each match has one of them; they are found in a hundredth of the time.
        """
        if wanted not in self._mentions:
            text, perhaps = self.source.text, not words or any(map(self.mentions, words))
            found = perhaps and (wanted in text if isinstance(wanted, str) else bool(wanted.search(text)))
            self._mentions[wanted] = found
        return self._mentions[wanted]

    def is_world_size(self, node: ast.expr) -> bool:
        """Return whether the value of an expression is a number of ranks."""
        key = self.evaluated.value(node)
        return key is not None and key.op == "world"

    @property
    def is_test(self) -> bool:
        """True for a test of a project: tests part the ranks on purpose, and run on one node."""
        return is_test(Path(self.source.path), self.source.text)

    @cached_property
    def has_ranks(self) -> bool:
        """True if the program, or a script that uses this module, uses a library by which ranks communicate."""
        from ..training_script.model.libraries_in_use import libraries_in_use
        from ..training_script.model.users import users

        libraries, path = libraries_in_use(), Path(self.source.path)
        return libraries.uses_library(path, self.source) or (
            path.is_absolute() and any(libraries.uses_library(user) for user in users(path))
        )

    @cached_property
    def _reached(self) -> "Reached":
        from ..training_script.model.reached_parts import reached_by

        return reached_by(Path(self.source.path), self.source.tree, self.source.text)

    @property
    def is_of_several(self) -> bool:
        """True if anything that the program reaches may be for several ranks; if not, it need not be evaluated."""
        return LOADS_TO in self.source.text or self._reached.of_several

    @property
    def reads_rank(self) -> bool:
        """True if anything that the program reaches may read the number of this rank among all."""
        return self._reached.reads_rank

    @cached_property
    def _is_of_several_in_use(self) -> bool:
        """True if this module, or a script that uses it, may be for several ranks."""
        from ..training_script.model.reached_parts import is_of_several
        from ..training_script.model.users import readers

        path = Path(self.source.path)
        using = readers(path) if self.has_ranks and path.is_absolute() else []
        return bool(using) and (self.is_of_several or any(map(is_of_several, using)))

    @cached_property
    def divergences(self) -> "Divergences":
        """The places where the ranks of the program part."""
        from ..training_script.model.divergences import Divergences, divergences
        from ..training_script.model.users import SOURCES

        if not (self.has_ranks and self.is_of_several):
            return Divergences([], True)
        found = divergences(self.evaluated)
        SOURCES.keep(self.evaluated, Path(self.source.path), self.source.text, found)
        return found

    @cached_property
    def evaluated(self) -> "Evaluated":
        """The evaluation of the script with what it imports."""
        from ..training_script.model.evaluated import Evaluated

        made = Evaluated(self.source.tree, Path(self.source.path), self.source.text)
        self._place(made)
        return made

    def _place(self, evaluated: "Evaluated") -> None:
        """Give calls that were completed the place of those that are written."""
        for call in evaluated.completed:
            written = as_written(call)
            if (parent := self.source.parents.get(written)) is not None:
                self.source.parents[call] = parent
                self.names.scope_of[call] = self.names.scope_of[written]

    def forget(self) -> None:
        """Free the memory of the model, of which nothing can be asked after this."""
        if "evaluated" in vars(self):
            self.evaluated.forget()
        for each in vars(self).get("in_use", []):
            each.forget()

    @cached_property
    def in_use(self) -> "list[Script]":
        """This module in each of the scripts that use it: what they pass to its functions is known there."""
        from ..training_script.model.users import evaluated_in_use

        if not self._is_of_several_in_use or not any(root.function for root in self.evaluated.roots):
            return []
        return [ModuleInUse(self, each) for each in evaluated_in_use(self.source.tree, Path(self.source.path))]

    @cached_property
    def sites_of_some(self) -> "frozenset[Site]":
        """The places in this module that only some ranks reach in each script that uses it and comes there."""
        from ..training_script.model.reach import ALL

        reached = [reach for user in self.in_use for run in user.runs for reach in run.reached]
        by_all = {reach.fact.site for reach in reached if reach.ranks == ALL}
        return frozenset(reach.fact.site for reach in reached if reach.fact.site not in by_all)

    @cached_property
    def divergences_in_use(self) -> "list[Divergence]":
        """The places where the ranks part that only the scripts that use this module show."""
        from ..training_script.model.users import divergences_in_use

        if not self._is_of_several_in_use:
            return []
        return divergences_in_use(self.evaluated, self.source.tree, Path(self.source.path), self.source.text)

    @cached_property
    def branches(self) -> "dict[Site, Branch]":
        """The branches of the program by their places."""
        from ..training_script.model.branch_sides import branches

        return branches(self.evaluated)

    def depends_on_rank(self, node: ast.expr) -> bool:
        """Return whether the rank decides an expression, or goes into it through a call that cannot be followed."""
        from ..training_script.model.keys import BY_RANK, TOUCHED

        key = self.evaluated.value(node)
        return key is not None and bool(key.differs_by & (BY_RANK | TOUCHED))

    def is_known_by_rank(self, node: ast.expr) -> bool:
        """Return whether the value of an expression follows from the rank alone, on every rank."""
        from ..training_script.model.keys import RANKS

        key = self.evaluated.value(node)
        return key is not None and all(self.evaluated.keys.specialise(key, rank).is_constant for rank in RANKS)

    @cached_property
    def runs(self) -> "list[Run]":
        """The facts of each start of the program, for the rules."""
        from ..training_script.model.runs import find_runs

        return find_runs(self.evaluated) if self.has_ranks and self.is_of_several else []

    def is_first_distributed(self, run: "Run") -> bool:
        """Return whether a start is the first that several ranks surely run: rules that read the text do so once."""
        return run is self._first_distributed

    @cached_property
    def _first_distributed(self) -> "Run | None":
        return next((each for each in self.runs if each.distributed), None)

    @cached_property
    def _starts_noting(self) -> dict[str, list[int]]:
        """The places in ``runs`` of the starts that come to a noted call of each name."""
        found: dict[str, list[int]] = {}
        for place, run in enumerate(self.runs):
            for name in run.places:
                found.setdefault(name, []).append(place)
        return found

    def noted(self, *names: str) -> "Iterator[tuple[Reach, Noted]]":
        """Yield the noted calls with one of these names, those of each start of the program."""
        for place in sorted({each for name in names for each in self._starts_noting.get(name, ())}):
            yield from self.runs[place].of(*names)

    def place(self, reach: "Reach") -> "Site | None":
        """Return the place of a fact in this script: its own, or that of the call that leads to it."""
        here = [site for site in (*reach.calls, reach.fact.site) if site.path == self.source.path]
        return here[-1] if here else None

    def is_here(self, reach: "Reach") -> bool:
        """Return whether a fact is in this script itself."""
        if reach.fact.site.path != self.source.path:
            return False
        node = getattr(reach.fact, "node", None)
        return node is None or node in self.source.parents  # a call that functools.partial completes is not


class ModuleInUse(Script):
    """A module as a script that uses it evaluates it."""

    def __init__(self, module: Script, evaluated: "Evaluated") -> None:
        self.source, self.names, self._mentions = module.source, module.names, module._mentions
        self.evaluated, self.has_ranks = evaluated, True
        self._place(evaluated)

    @property
    def is_of_several(self) -> bool:
        return True

    def forget(self) -> None:
        """Free the memory of the model, unless another module needs it."""
        from ..training_script.model.users import forget_user

        forget_user(self.evaluated)


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """The fix of a rule. Without edits, ``why_unsafe`` gives the reason why no patch is offered."""

    id: str
    safety: Safety
    why_unsafe: str = ""
    edits: list[Edit] = []


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of a rule. ``severity`` and ``cause`` are set only if they differ from those of the rule.

    ``column_bytes`` counts from 1, as in ``Site``; the column of a finding counts characters.
    ``patch`` makes the patch, which takes longer than to find the violation.
    """

    line: int
    column_bytes: int
    end_line: int
    message: str
    confidence: float
    branch: int | None = None
    related: list[RelatedPlace] = []
    severity: Severity | None = None
    cause: str = ""
    patch: Callable[[], Patch] | None = None


Check = Callable[[Script], list[Violation]]


def no_patch(id_: str, why: str) -> Patch:
    """Return a fix without a patch, to be made by hand, and the reason."""
    return Patch(id=id_, safety="display", why_unsafe=why)
