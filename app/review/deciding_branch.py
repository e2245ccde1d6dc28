"""The condition that parts the ranks, with what is called under it, for the texts and the patches of findings."""

import ast
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile

from ..training_script.model.branch_sides import (
    RankCall,
    Side,
    calls_of_ranks,
    is_decided,
    ranks_on,
    side_of,
    side_with,
    surely_leaves,
)
from ..training_script.model.divergence import Divergence
from ..training_script.model.keys import BY_RANK, LOCAL, PER_NODE, RANKS, Key, parts
from ..training_script.model.sequences import Site
from ..training_script.nodes import node_at, nodes_of_kinds
from ..training_script.syntax import FUNCTIONS
from .rule_context import Script

CHOICES = ("if", "one of", "changing", "altered")
EVERY = {rank.rank for rank in RANKS}
FIRST_OF_NODE = {rank for rank in EVERY if rank % PER_NODE == 0}


class DecidingBranch:
    """The condition of a divergence."""

    def __init__(self, script: Script, found: Divergence) -> None:
        self.script = script
        self.branch = script.branches.get(found.decided)
        self.side: Side = side_of(self.branch, (*found.calls, found.first.site)) if self.branch else "after"
        if found.second and self.side == "after" and self.branch:
            behind = side_of(self.branch, (found.second.site,))
            if behind != "after" and found.first.kind == found.second.kind:  # the others lack the one under it
                found, self.side = found._replace(first=found.second, second=found.first), behind
        self.found = found
        on_sides = calls_of_ranks([*self.branch.then, *self.branch.other]) if self.branch else []
        if self.branch and not (on_sides or found.second or found.rounds or found.leaves):
            self.side = self._side_by_text((*found.calls, found.first.site))
        if found.by == BY_RANK and not (found.second or found.rounds or found.leaves):
            self.found = self._at_the_call_to_repair(found)

    def _at_the_call_to_repair(self, found: Divergence) -> Divergence:
        """Return a divergence at the call under the condition that the others lack, rather than where they wait.

        This is a plain collective where there is one, and the first of the calls that the others are one short of.
        """
        if self.branch is None:
            return found
        if self.side == "after":
            self.side = side_with(self.branch, found.first.kind)
            wanted = [call.event for call in self.calls if call.event and call.event.kind == found.first.kind]
        else:
            wanted = [call.event for call in self.calls if call.event and not call.event.implied]
            if not found.first.implied:
                return found
        own = {call.site for call in self.calls}
        way = tuple(takewhile(lambda site: site not in own, found.calls))
        return found._replace(first=wanted[0], calls=way) if wanted else found

    def _side_by_text(self, way: Sequence[Site]) -> Side:
        """Return the side of the statement on which a call is, where only another script shows what it calls."""
        lines = {site.line for site in way if site.path == self.found.decided.path}
        sides: list[tuple[Side, list[ast.stmt]]] = []
        if self.guard:
            sides = [("then", self.guard.body), ("other", self.guard.orelse)]
        for side, body in sides:
            if any(stmt.lineno <= line <= (stmt.end_lineno or stmt.lineno) for stmt in body for line in lines):
                return side
        return self.side

    @cached_property
    def site(self) -> Site | None:
        """The place of the divergence in the script: the event, or the call under the condition that leads to it."""
        path = self.script.source.path
        if self.found.decided.path != path:
            return None
        own = {call.site for call in self.calls}
        way = [site for site in (*self.found.calls, self.found.first.site) if site.path == path]
        around = self.lines_of_function  # in a loop it may be before the condition: a call of the function is not it
        way = [site for site in way if site.line in around] or way
        behind = [site for site in way if site.line >= self.found.decided.line]
        site = next((site for site in way if site in own), (behind or way or [None])[-1])
        return self._of_given(site) if site else None

    def _of_given(self, site: Site) -> Site:
        """Return the next place on the way for the call of a function that is a parameter, as in a decorator."""
        tree = self.script.source.tree
        call = node_at(tree, site.line, site.column, ast.Call)
        if call is None or not isinstance(call.func, ast.Name):
            return site
        functions = nodes_of_kinds(tree, *FUNCTIONS)
        around = [node for node in functions if node.lineno <= site.line <= (node.end_lineno or node.lineno)]
        given = {each.arg for node in around for each in (*node.args.args, *node.args.posonlyargs)}
        way = [*self.found.calls, self.found.first.site]
        later = way[way.index(site) + 1 :] if site in way and call.func.id in given else []
        return next((each for each in later if each.path == site.path), site)

    @cached_property
    def lines_of_function(self) -> range:
        """The lines of the innermost function around the condition, or those of the file."""
        line = self.found.decided.line
        functions = nodes_of_kinds(self.script.source.tree, *FUNCTIONS)
        spans = [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in functions]
        return max((span for span in spans if line in span), key=lambda span: span.start, default=range(1 << 30))

    @cached_property
    def guard(self) -> ast.If | None:
        """The ``if`` statement that decides, or None if another statement or an expression does."""
        at = self.found.decided
        return node_at(self.script.source.tree, at.line, at.column, ast.If)

    @property
    def chooses_what_runs(self) -> bool:
        """True if what needs other ranks is behind the ``if`` statement, which chooses what is called there."""
        if self.guard is None or self.branch is None or self.site is None or self.found.leaves:
            return False
        inside = range(self.guard.lineno, (self.guard.end_lineno or self.guard.lineno) + 1)
        way = (*self.found.calls, self.found.first.site)
        if any(site.path == self.script.source.path and site.line in inside for site in way):
            return False
        if self._is_under_rank(self.site):
            return False
        return self.side != "after" or not calls_of_ranks([*self.branch.then, *self.branch.other])

    def _is_under_rank(self, site: Site) -> bool:
        """Return whether a condition on the rank is around a place of the script."""
        tree = self.script.source.tree
        around = nodes_of_kinds(tree, ast.If)
        inner = (node for node in around if node.lineno < site.line <= (node.end_lineno or node.lineno))
        return any(self.script.depends_on_rank(node.test) for node in inner)

    @cached_property
    def calls(self) -> list[RankCall]:
        """The calls on the side of the finding that need other ranks."""
        if self.branch is None or self.side == "after":
            return []
        return calls_of_ranks(self.branch.then if self.side == "then" else self.branch.other)

    @property
    def has_other_calls(self) -> bool:
        """True if there are calls that need other ranks on the other side of the condition too."""
        return self.branch is not None and bool(
            calls_of_ranks(self.branch.other if self.side == "then" else self.branch.then)
        )

    @property
    def test(self) -> str:
        """The condition as the script has it, or an empty string."""
        return self.script.source.one_line(self.guard.test) if self.guard else ""

    @property
    def is_known(self) -> bool:
        """True if the rank alone decides on some rank."""
        return self.branch is not None and is_decided(self.branch.test, self.script.evaluated.keys)

    @property
    def leaves_surely(self) -> bool:
        """True if the ranks that leave do so under no further condition."""
        return self.branch is not None and (surely_leaves(self.branch.then) or surely_leaves(self.branch.other))

    @property
    def who(self) -> tuple[str, str]:
        """The ranks that reach the finding and those that do not, in words."""
        here = ranks_on(self.branch, self.side, self.script.evaluated.keys) if self.branch else set[int]()
        if here == {0}:
            return "rank 0", "the other ranks"
        if here == EVERY - {0}:
            return "the ranks but 0", "rank 0"
        if here == FIRST_OF_NODE:
            return "the first rank of each node", "the other ranks"
        if here == EVERY - FIRST_OF_NODE:
            return "the ranks of each node but its first", "the first rank of each node"
        return ("one rank", "the other ranks") if len(here) == 1 else ("some ranks", "the others")

    def nodes(self) -> list[ast.Call]:
        """Return the calls in the body of the ``if`` statement that need other ranks."""
        if self.guard is None:
            return []
        at = {
            (node.lineno, node.col_offset + 1): node
            for stmt in self.guard.body
            for node in ast.walk(stmt)
            if isinstance(node, ast.Call)
        }  # of ``total(x).item()`` the inner call
        sites = [call.site for call in self.calls]
        if not sites:  # only another script shows what is called
            sites = [
                site for site in (*self.found.calls, self.found.first.site) if site.path == self.found.decided.path
            ]
        places = [(site.line, site.column) for site in sites]
        return [at[place] for place in dict.fromkeys(places) if place in at]


def asks_for_rank(script: Script, found: Divergence) -> bool:
    """Return whether a part of the deciding condition is about the rank alone, or the condition is not known."""
    branch = script.branches.get(found.decided)
    pending = [branch.test] if branch else []
    while pending:
        each = pending.pop()
        if each.op in ("and", "or", "not"):
            pending += [arg for arg in each.args if isinstance(arg, Key)]
        elif each.op != "compare" or each.differs_by & (BY_RANK | LOCAL) == BY_RANK or _chooses(each):
            return True
    return not branch


def _chooses(key: Key) -> bool:
    """Return whether the rank alone chooses between values that are no numbers in the text."""
    chosen = (part for part in parts(key) if part.op in CHOICES and part.differs_by & (BY_RANK | LOCAL) == BY_RANK)
    return any(
        not side.is_constant for part in chosen for side in part.args[part.op == "if" :] if isinstance(side, Key)
    )
