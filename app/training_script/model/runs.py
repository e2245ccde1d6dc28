"""The facts of each start of a program, found by following the ranks through the steps of its functions.

A function is followed once; what it notes is then known at each of its calls. A rank reaches a fact if no condition
before it, seen by that rank, keeps it out: branches, early returns and exits, decorators that let one rank through.
"""

from typing import NamedTuple

from ..torch_classes import DDP_CLASSES
from .budget import OverBudget
from .evaluated import Evaluated, Root
from .function_steps import Attempt, Branch, Called, Item, Leave, Noted, Read, Rounds, Summary
from .keys import BY_RANK, RANKS, TOUCHED, Key, Keys
from .rank_mentions import may_ask_for_ranks
from .reach import ALL, NEAR, Attempted, Condition, Reach, Run, argument, noted_places, without_not
from .sequences import Event

MOST_FACTS = 400  # of one function with all that it calls
MOST_CALLS = 50  # on the way to a fact
MOST_VISITED = 60_000  # items and facts, over all functions of a script
ORDERED = {"Lt", "LtE", "Gt", "GtE"}
WRAPPED = ("of DDP", "of FSDP", "of DeepSpeed", "the backward pass")  # a checkpoint may be one process's own
# Calls that show that several ranks run this.
WRAPS = {
    *DDP_CLASSES,
    *("torch.distributed.fsdp.FullyShardedDataParallel", "torch.distributed.fsdp.fully_shard"),
}
SET_UP = {
    *("torch.distributed.init_process_group", "deepspeed.initialize", "deepspeed.init_distributed"),
    *("accelerate.Accelerator", "horovod.torch.init"),
    *WRAPS,
}
WAITS = ("barrier", "wait_for_everyone")
OF_IMPORTS = {"ImportError", "ModuleNotFoundError"}  # raised alike on every rank
HOROVOD = "horovod.torch.init"  # also called by scripts of one process, for helpers that ask for a rank


def find_runs(evaluated: Evaluated) -> list[Run]:
    """Return the facts of each start of the program that comes to any."""
    reader = _Reader(evaluated.keys)
    found: list[Run] = []
    try:
        for root in evaluated.roots:
            run = reader.run(root, evaluated.is_interactive)
            if not run.reached:
                continue
            alone = evaluated.is_single or not (evaluated.names_ranks or _is_set_up(run))
            found.append(run._replace(evidence=[]) if alone else run)
    except (OverBudget, RecursionError):
        pass
    return found


def _is_set_up(run: Run) -> bool:
    """Return whether a start comes to a call by which a process becomes one of several ranks."""
    return any(isinstance(each.fact, Noted) and each.name in SET_UP for each in run.reached)


class _Found(NamedTuple):
    facts: list[Reach]
    returns: int  # the ranks that may come back from the function


class _Reader:
    """The facts of functions, each followed once."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self._known: dict[int, _Found] = {}
        self._tests: dict[Key, tuple[int, int]] = {}
        self._left = MOST_VISITED

    def run(self, root: Root, interactive: bool) -> Run:
        way = _Way(self, root.items)
        facts = _with_parent(way.facts)
        if interactive and root.function is None:
            facts = [each if each.started else each._replace(unsure=True) for each in facts]
        evidence = [each for each in facts if each.several and _shows_ranks(each)]
        if any(_is_single(each.fact) for each in facts) or all(each.name == HOROVOD for each in evidence):
            evidence = []
        called = root.items[0] if root.function and root.items else None
        returned = called.summary.returned if isinstance(called, Called) else []
        return Run(root.function, facts, evidence, self.keys, returned, noted_places(facts))

    def function(self, summary: Summary) -> _Found:
        found = self._known.get(id(summary))
        if found is None:
            self._known[id(summary)] = _Found([], ALL)  # of a function that calls itself
            way = _Way(self, summary.items)
            facts = [each._replace(unsure=True) for each in way.facts] if summary.wrapped else way.facts
            found = self._known[id(summary)] = _Found(facts, way.ranks | way.returned)
        return found

    def spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise OverBudget

    def arms(self, test: Key) -> tuple[int, int]:
        """Return the ranks for which a test may be true, and those for which it may be false."""
        known = self._tests.get(test)
        if known is None:
            true = false = 0
            for bit, rank in enumerate(RANKS):
                seen = self.keys.specialise(test, rank)
                true |= (not seen.is_constant or bool(seen.value)) << bit
                false |= (not seen.is_constant or not seen.value) << bit
            known = self._tests[test] = true, false
        return known

    def is_open(self, branch: Branch) -> bool:
        """Return whether a condition may be about ranks although it is not known which ranks fulfil it."""
        test = branch.test
        true, false = self.arms(test)
        seen = [self.keys.specialise(test, rank) for bit, rank in enumerate(RANKS) if true & false & (1 << bit)]
        if not seen:
            return False
        some_surely = true & ~false  # "not several, or rank 0"
        if some_surely or any(each is not seen[0] for each in seen) or _is_of_ranks(seen[0]):
            return True
        if branch.text is None or test.spread & BY_RANK:
            return False
        return may_ask_for_ranks(branch.text)


class _Way:
    """The way of the ranks through the items of one function."""

    def __init__(self, reader: _Reader, items: list[Item]) -> None:
        self.reader = reader
        self.facts: list[Reach] = []
        self.returned = 0
        self._unsure = self._attempted = False
        self._attempts: tuple[Attempted, ...] = ()
        self._waited = 0  # the ranks that have waited for the others, which have not yet waited for them
        self._conditions: tuple[Condition, ...] = ()
        self._loops: tuple[Rounds, ...] = ()
        self._out_of_round = 0
        self.ranks = self._walk(items, ALL)

    @property
    def _alone(self) -> bool:
        """True where an error is passed over, and between the barriers with which ranks take turns."""
        return self._attempted or bool(self._waited)

    def _walk(self, items: list[Item], ranks: int) -> int:
        """Follow items; return the ranks that may go on behind them."""
        first = len(self.facts)
        for item in items:
            if not ranks:
                return 0
            self.reader.spend()
            match item:
                case Event() | Noted() | Read():
                    way = self._conditions, self._loops, self._alone, False, self._attempts
                    self._add(Reach(item, (), ranks, self._unsure, *way))
                    if isinstance(item, Event) and item.kind in WAITS and ranks != ALL:
                        self._waited = (self._waited | ranks) % ALL
                case Branch():
                    ranks = self._branch(item, ranks)
                case Rounds():
                    ranks = self._round(item, ranks)
                case Attempt():
                    ranks = self._attempt(item, ranks)
                case Called():
                    ranks = self._called(item, ranks)
                case Leave(kind=kind):
                    if kind == "return":
                        self.returned |= ranks
                    elif kind in ("next", "break"):
                        self._out_of_round |= ranks
                    else:
                        self.facts[first:] = [each._replace(ends=True) for each in self.facts[first:]]
                    return 0
        return ranks

    def _branch(self, item: Branch, ranks: int) -> int:
        """Follow a branch, and the one that its other side ends with: a chain of ``elif`` may be long."""
        chain: list[tuple[Branch, int, int, int, bool, bool, tuple[Condition, ...]]] = []
        while True:
            true, false = self.reader.arms(item.test)
            unsure, conditions = self._unsure, self._conditions
            is_open = not unsure and self.reader.is_open(item)
            self._unsure = unsure or is_open
            self._conditions = (*conditions, Condition(item.test, True, item.site))
            left = self._walk(item.then, ranks & true)
            gone, others = ranks & true & ~left, ranks & false
            chain.append((item, left, gone, others, is_open, unsure, conditions))
            self._unsure = unsure or is_open
            self._conditions = (*conditions, Condition(item.test, False, item.site))
            last = item.other[-1] if item.other else None
            ranks = self._walk(item.other[:-1] if isinstance(last, Branch) else item.other, ranks & false)
            if not ranks or not isinstance(last, Branch):
                break
            self.reader.spend()
            item = last
        for item, left, gone, others, is_open, unsure, conditions in reversed(chain):
            one_leaves = bool(left) != bool(ranks)
            condition = (Condition(item.test, bool(left), item.site),) if one_leaves else ()
            self._conditions = (*conditions, *condition)
            self._unsure = unsure or (is_open and gone != others & ~ranks)
            ranks |= left
        return ranks

    def _round(self, item: Rounds, ranks: int) -> int:
        outside, loops, conditions = self._out_of_round, self._loops, self._conditions
        self._out_of_round, self._loops = 0, (*loops, item)
        after = self._walk(item.body, ranks)
        after |= self._out_of_round
        endless = item.amount.op == "while" and item.amount.args[0].is_constant
        if not after and not endless:
            after = ranks  # no round is run, as in a search for what is wrong
        self._out_of_round, self._loops, self._conditions = outside, loops, conditions
        return self._walk(item.rest, after)

    def _attempt(self, item: Attempt, ranks: int) -> int:
        attempted = self._attempted
        self._attempted = attempted or not OF_IMPORTS.issuperset(item.caught) or not item.caught
        conditions, attempts = self._conditions, self._attempts
        self._attempts = (*attempts, Attempted(item, self._loops))
        after = self._walk(item.body, ranks)
        self._attempted, self._conditions, self._attempts = attempted, conditions, attempts
        unsure, self._unsure = self._unsure, True
        after |= self._walk(item.handler, ranks)
        self._unsure, self._conditions = unsure, conditions
        return after

    def _called(self, item: Called, ranks: int) -> int:
        inner = self.reader.function(item.summary)
        for each in inner.facts:
            # A way that has been here before is that of the next call of a recursion.
            if each.ranks & ranks and len(each.calls) < MOST_CALLS and item.site not in each.calls:
                self._add(
                    Reach(
                        each.fact,
                        (item.site, *each.calls),
                        each.ranks & ranks,
                        self._unsure or each.unsure or item.perhaps,
                        (*self._conditions, *each.conditions),
                        (*self._loops, *each.loops),
                        self._alone or each.attempted,
                        each.started or item.starts,
                        self._within(each.attempts),
                        each.ends,
                    )
                )
        return ranks & inner.returns

    def _within(self, attempts: tuple[Attempted, ...]) -> tuple[Attempted, ...]:
        """Return the statements around a fact of a function that is called here."""
        return (*self._attempts, *(each._replace(loops=(*self._loops, *each.loops)) for each in attempts))

    def _add(self, reach: Reach) -> None:
        self.reader.spend()
        if len(self.facts) < MOST_FACTS:
            self.facts.append(reach)


def _with_parent(facts: list[Reach]) -> list[Reach]:
    """Return facts, unsure where no rank is: what comes before or after the processes that are started runs in one.

    This also holds if the program can call the function of these processes instead of starting some.
    """
    of_ranks = {each.fact.site for each in facts if each.started}
    if not of_ranks or any(_shows_ranks(each) for each in facts if each.fact.site not in of_ranks):
        return facts
    return [each if each.fact.site in of_ranks else each._replace(unsure=True) for each in facts]


def _is_single(fact: Noted | Event | Read) -> bool:
    """Return whether a process group of one rank is made."""
    if not isinstance(fact, Noted) or fact.name != "torch.distributed.init_process_group":
        return False
    size = argument(fact, 2, "world_size")
    return size is not None and size.key.is_constant and size.key.value == 1


def _shows_ranks(reach: Reach) -> bool:
    fact = reach.fact
    # A class of another file wraps a model where its options say so, and calls it then.
    elsewhere = any(site.path != fact.site.path for site in reach.calls[:1])
    if not isinstance(fact, Event):
        return fact.name in SET_UP and not (fact.name in WRAPS and elsewhere)
    # A helper several calls away may be for one process as well, and so may be what an option of its file allows.
    near = len(reach.calls) <= NEAR and not (elsewhere and any(map(_is_option, reach.own_conditions)))
    return near and (not fact.implied or (fact.kind.endswith(WRAPPED) and not elsewhere))


def _is_option(condition: Condition) -> bool:
    """Return whether a condition allows something, and neither follows from the ranks nor is about them."""
    test, truth = without_not(condition.test, condition.truth)
    return truth and not test.is_constant and not test.spread & BY_RANK


def _is_of_ranks(test: Key) -> bool:
    """Return whether an undecided test asks for something made from a rank, comparisons of amounts left out."""
    if test.op == "compare" and test.args[0] in ORDERED:
        return bool(test.spread & BY_RANK)
    if test.op in ("and", "or", "not"):
        return any(_is_of_ranks(arg) for arg in test.args)
    return bool(test.spread & (BY_RANK | TOUCHED))
