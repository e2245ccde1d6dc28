"""DW461: numbers, lengths and sizes of arguments that a call cannot put together, however many ranks there are."""

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import NamedTuple

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import UNTIL_KNOWN, Key, Keys, Rank, parts
from ...training_script.model.lengths import length, number
from ...training_script.model.members import Member
from ...training_script.model.reach import Reach, Run, argument
from ...training_script.model.signatures import place_of
from ...training_script.model.tensor_kinds import shape_of
from ...training_script.syntax import call_argument
from ..patches.places_of_ranks import places_of_ranks
from ..rule_context import Patch, Script, Violation
from ..violations import violation_at

PREFIX = "torch.distributed."
SIZES = (2, 3, 4, 8)  # of jobs for which a relation is computed


class UnknownSizeError(Exception):
    """A number in a relation does not follow from the program."""


class Sizes:
    """The numbers of the arguments of a call on one rank of a job; each raises an error where it does not follow."""

    def __init__(self, fact: Noted, keys: Keys, rank: int, ranks: int) -> None:
        self._fact, self._keys = fact, keys
        self._rank, self._member = Rank(rank, rank, 0, ranks, ranks), Member(rank, ranks)
        self.rank, self.ranks = rank, ranks

    def key(self, name: str) -> Key | None:
        """Return an argument as the rank sees it, None if it is not given."""
        given = argument(self._fact, place_of(self._fact.name, name), name)
        return None if given is None or given.key is self._keys.none else self._keys.specialise(given.key, self._rank)

    def is_given(self, name: str) -> bool:
        return self.key(name) is not None

    def number(self, name: str) -> int:
        given = argument(self._fact, place_of(self._fact.name, name), name)
        if given and any(part.op == "rank" and part.args[1] is UNTIL_KNOWN for part in parts(given.key)):
            raise UnknownSizeError  # a number by the name of a rank, which may be meant as it is
        return _known((key := self.key(name)) and number(key, self._member))

    def count(self, name: str) -> int:
        """Return the number of elements of a list."""
        return _known((key := self.key(name)) and length(key, self._member))

    def elements(self, name: str) -> int:
        """Return the number of elements of a tensor."""
        key = self.key(name)
        shape = shape_of(key, self._keys, self._rank) if key else None
        return prod(map(_known, shape)) if shape is not None else _known(None)

    def rows(self, name: str) -> int:
        """Return the size of the first dimension of a tensor."""
        key = self.key(name)
        shape = shape_of(key, self._keys, self._rank) if key else None
        return _known(shape[0] if shape else None)

    def numbers(self, name: str) -> list[int]:
        """Return the numbers in a list."""
        key = self.key(name)
        return self._numbers(key) if key else []

    def all_numbers(self, name: str) -> list[int]:
        """Return the numbers in a list of lists."""
        key = self.key(name)
        if key is None or key.op != "sequence":
            raise UnknownSizeError
        return [each for part in key.args for each in self._numbers(part)]

    def _numbers(self, key: Key) -> list[int]:
        match key.op, key.args:
            case "sequence", elements:
                return [_known(number(each, self._member)) for each in elements]
            case "range", bounds:
                return list(range(*(_known(number(each, self._member)) for each in bounds)))
            case "binary", ("Mult", Key(op="sequence", args=elements), times):
                return [_known(number(each, self._member)) for each in elements] * _known(number(times, self._member))
            case "call", ("list" | "tuple" | "sorted", Key() as held):
                return self._numbers(held)
            case _:
                raise UnknownSizeError


def _known(value: int | None) -> int:
    if value is None:
        raise UnknownSizeError
    return value


class Relation(NamedTuple):
    """``holds``: for each rank that makes the call. ``of``: the argument without which nothing is asked.

    ``callers``: it is about the rank that makes the call itself.
    """

    of: str
    holds: Callable[[Sizes], bool]
    why: str
    counts: bool = False  # it is about the length of the list
    callers: bool = False


def _member_of_job(name: str) -> Relation:
    why = f"`{name}` is the number of no rank: they are 0 to get_world_size() - 1"
    return Relation(name, lambda of: 0 <= of.number(name) < of.ranks, why)


def _other_rank(name: str) -> Relation:
    why = f"`{name}` is the rank that makes the call: name the other one"
    return Relation(name, lambda of: of.number(name) != of.rank, why, callers=True)


def _one_for_each(name: str, what: str = "a tensor") -> Relation:
    why = f"`{name}` needs {what} for each rank"
    return Relation(name, lambda of: of.count(name) == of.ranks, why, counts=True)


def _whole(whole: str, part: str) -> Relation:
    return Relation(
        part,
        lambda of: of.elements(whole) == of.elements(part) * of.ranks,
        f"`{whole}` needs as many elements as `{part}` has on all ranks together",
    )


def _sum_of(splits: str, tensor: str) -> Relation:
    return Relation(
        splits,
        lambda of: not of.numbers(splits) or sum(of.numbers(splits)) == of.rows(tensor),
        f"the sum of `{splits}` is not the number of rows of `{tensor}`",
    )


_SPLIT = (
    _sum_of("output_split_sizes", "output"),
    _sum_of("input_split_sizes", "input"),
    Relation(
        "input",
        lambda of: of.is_given("input_split_sizes") or of.rows("input") % of.ranks == 0,
        "the rows of `input` cannot be divided by the number of ranks, and there are no `input_split_sizes`",
    ),
)
_SEND = (_member_of_job("dst"), _other_rank("dst"))
_RECEIVE = (_member_of_job("src"), _other_rank("src"))
_SAMPLER = (
    Relation(
        "rank",
        lambda of: 0 <= of.number("rank") < (of.number("num_replicas") if of.is_given("num_replicas") else of.ranks),
        "`rank` is not below `num_replicas`",
    ),
)
# What holds between the arguments of a call, its ranks and their number.
RELATIONS: dict[str, tuple[Relation, ...]] = {
    **{
        PREFIX + name: (_member_of_job("src"),)
        for name in ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list")
    },
    **{PREFIX + name: (_member_of_job("dst"),) for name in ("reduce", "gather", "gather_object")},
    PREFIX + "send": _SEND,
    PREFIX + "isend": _SEND,
    PREFIX + "recv": _RECEIVE,
    PREFIX + "irecv": _RECEIVE,
    PREFIX + "all_gather": (_one_for_each("tensor_list"),),
    PREFIX + "all_gather_object": (
        Relation(
            "object_list",
            lambda of: of.count("object_list") >= of.ranks,
            "`object_list` needs a place for each rank",
            counts=True,
        ),
    ),
    PREFIX + "scatter_object_list": (
        _member_of_job("src"),
        _one_for_each("scatter_object_input_list", "an object"),
        Relation(
            "scatter_object_output_list",
            lambda of: of.count("scatter_object_output_list") > 0,
            "`scatter_object_output_list` is empty: it needs a place for what the rank gets, as in [None]",
            counts=True,
        ),
    ),
    PREFIX + "reduce_scatter": (_one_for_each("input_list"),),
    PREFIX + "all_to_all": (_one_for_each("input_tensor_list"), _one_for_each("output_tensor_list")),
    PREFIX + "all_gather_into_tensor": (_whole("output_tensor", "input_tensor"),),
    PREFIX + "all_gather_single": (_whole("output_tensor", "input_tensor"),),
    PREFIX + "reduce_scatter_tensor": (_whole("input", "output"),),
    PREFIX + "reduce_scatter_single": (_whole("input", "output"),),
    PREFIX + "all_to_all_single": _SPLIT,
    PREFIX + "new_group": (
        Relation(
            "ranks",
            lambda of: len(set(of.numbers("ranks"))) == len(of.numbers("ranks")),
            "`ranks` holds a rank twice",
        ),
        Relation(
            "ranks",
            lambda of: all(0 <= each < of.ranks for each in of.numbers("ranks")),
            "`ranks` holds numbers that no rank has",
        ),
    ),
    PREFIX + "new_subgroups": (
        Relation(
            "group_size",
            lambda of: of.number("group_size") <= of.ranks and of.ranks % of.number("group_size") == 0,
            "the number of ranks cannot be divided by `group_size`",
        ),
    ),
    PREFIX + "new_subgroups_by_enumeration": (
        Relation(
            "ranks_per_subgroup_list",
            lambda of: len(set(found := of.all_numbers("ranks_per_subgroup_list"))) == len(found),
            "a rank is in two of the groups",
        ),
    ),
    PREFIX + "TCPStore": (
        Relation(
            "port",
            lambda of: of.number("port") != 0 or not of.is_given("world_size") or of.ranks == 1,
            "with port 0 the store gets a free port, which the other ranks do not know",
        ),
    ),
    PREFIX + "device_mesh.init_device_mesh": (
        Relation(
            "mesh_shape",
            lambda of: prod(of.numbers("mesh_shape")) <= of.ranks,
            "`mesh_shape` needs more ranks than there are",
        ),
        Relation(
            "mesh_dim_names",
            lambda of: of.count("mesh_dim_names") == of.count("mesh_shape"),
            "`mesh_dim_names` needs a name for each dimension of `mesh_shape`",
        ),
    ),
    "torch.utils.data.distributed.DistributedSampler": _SAMPLER,
    "torch.utils.data.DistributedSampler": _SAMPLER,
}
FIRST_DIMENSIONS = {"output_split_sizes", "input_split_sizes"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW461: yield the calls with a relation that fails for each number of ranks on a rank that makes the call."""
    for reach, fact in run.of(*RELATIONS):
        if not reach.several and not (reach.ranks and not reach.unsure):
            continue
        if reach.attempted or {"**"} & fact.named.keys() or not _is_in_world(run, fact):
            continue
        for relation in RELATIONS[fact.name]:
            if relation.callers and not run.knows_callers([reach]):
                continue
            found = [_failing(run, reach, fact, relation, size) for size in SIZES]
            if all(each is not None for each in found):
                who = "" if found[0] == 0 and found[-1] == 0 else f" (rank {found[0]} of {SIZES[0]})"
                patch = partial(_of_ranks, script, fact, relation.of) if relation.counts else None
                patch = patch if script.is_here(reach) else None
                yield from violation_at(script, reach, relation.why + who, 0.9, patch=patch)
                break


def _of_ranks(script: Script, fact: Noted, name: str) -> Patch:
    given = call_argument(fact.node, name, place_of(fact.name, name))
    return places_of_ranks(script, fact.node, name, given)


def _is_in_world(run: Run, fact: Noted) -> bool:
    """Return whether a call is one of all ranks: the sizes of other groups are not known."""
    name = fact.name.removeprefix(PREFIX)
    group = argument(fact, GROUP_PLACE.get(name, -1), "group")
    return group is None or group.key is run.keys.none


def _failing(run: Run, reach: Reach, fact: Noted, relation: Relation, ranks: int) -> int | None:
    """Return the first rank that makes the call, and for which a relation fails; None if there is none."""
    for rank in range(ranks):
        if not _makes(run, reach, Rank(rank, rank, 0, ranks, ranks)):
            continue
        sizes = Sizes(fact, run.keys, rank, ranks)
        try:
            if sizes.is_given(relation.of) and not relation.holds(sizes):
                return rank
        except UnknownSizeError:
            pass
    return None


def _makes(run: Run, reach: Reach, rank: Rank) -> bool:
    """Return whether a rank surely comes to a call, as far as conditions are about ranks."""
    for each in reach.conditions:
        test = run.keys.specialise(each.test, rank)
        if test.is_constant and bool(test.value) != each.truth:
            return False
        if not test.is_constant and test.differs_by:
            return False
    return True
