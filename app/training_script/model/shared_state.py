"""State that the evaluators of all functions of a program share."""

import ast
import re
from functools import cached_property

from ..nodes import CompletedCall
from .budget import Budget
from .keys import Key, Keys
from .log_levels import LogLevels
from .names_of_ranks import NamesOfRanks
from .program import Program
from .seeding_calls import OF_MODULES, seeding_calls
from .values import (
    ClassRef,
    FunctionRef,
    Instance,
    Value,
)

NORMALISES = re.compile(r"batch_?norm|sync_?bn|bn_", re.IGNORECASE)


class Shared:
    """State of the evaluators of all functions of a program.

    ``seeded``: the script sets seeds of random numbers. ``values``: of each expression, over all calls of its function.
    """

    def __init__(self, program: Program, text: str, budget: Budget) -> None:
        self.program, self.budget = program, budget
        seeding = seeding_calls(text)
        self.seeded, self.seeds_several, self._text = bool(seeding), not seeding <= OF_MODULES, text
        self.keys = Keys()
        self.values: dict[ast.expr, Key] = {}
        self.suggested: dict[str, Value | None] = {}  # by names of variables
        self.suggested_of_calls: dict[str, Value | None] = {}  # by names of functions
        self.constants: dict[Key, Value] = {}
        self.libraries: dict[str, Value] = {}
        self.seeded_by_rank: set[str] = set()  # modules of which each rank has random numbers of its own
        self.seeded_alike: set[str] = set()  # modules of which all ranks have the same random numbers
        self.sides: dict[Key, tuple[Value, Value]] = {}  # what a branch has chosen between, of different facts
        self.agreed: dict[Key, Key] = {}  # conditions as all ranks see them
        self.classes: dict[Key, ClassRef] = {}  # by the keys of their objects
        self.defined: list[ClassRef] = []
        self.inner_functions: list[FunctionRef] = []  # defined in others, and by no decision of one rank
        self.scopes: list[dict[str, Value]] = []  # of functions with functions or classes inside
        self.names_of_scopes: dict[int, dict[str, Value]] = {}  # of the functions that the scopes are of
        self.options: dict[str, Value] = {}  # of the command line, with their defaults
        self.inner: dict[Key, Instance | None] = {}  # the models in DDP by their wrappers; None if one makes several
        self.made: dict[Key, dict[str, Value]] = {}  # attributes of objects that have a length, as they were made
        self.has_group = False  # the process group has been made
        self.with_group: dict[Key, Key] = {}  # conditions, as all ranks see them once the process group is there
        self.completed: list[CompletedCall] = []  # that are noted
        self.contents: dict[Key, Key] = {}  # paths of what is read from files, by what is read
        self.queued: dict[Key, Value | None] = {}  # what queues hold, None for a rank's own data
        self.saving_hooks: dict[Key, Value] = {}  # functions that are called where a state is saved
        self.files: set[Key] = set()  # that the program has opened to write
        self.is_single = False  # the program makes itself a job of one rank
        self.is_one_rank = False  # the program makes itself a rank with a number of its own
        self.ranks: dict[str, Value] = {}  # that attributes of objects were set to last
        self.of_first: dict[str, Value] = {}  # conditions about ranks that attributes of objects were set to last
        self.count_stores = 0  # of values in attributes and global names that had others
        self.of_some = NamesOfRanks()
        self.log_levels = LogLevels(self.keys)

    @cached_property
    def normalises(self) -> bool:
        """True if the script mentions the normalisation of batches."""
        return bool(NORMALISES.search(self._text))

    def settled(self, test: Key) -> Key:
        """Return a condition with what holds since a side of the same one has made the process group."""
        if test in self.with_group:
            return self.with_group[test]
        if not self.with_group or test.op not in ("not", "and", "or"):
            return test
        return self.keys.make(test.op, *map(self.settled, test.args))
