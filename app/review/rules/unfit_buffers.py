"""DW441: tensors that do not fit what other ranks pass or send: of another type, or with another number of elements."""

import ast
import re
from collections.abc import Iterator
from itertools import product
from math import prod

from ...training_script.model.amounts import NEW_TENSORS, PIECES
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import DIFFERS, Key, Keys, Rank
from ...training_script.model.lengths import length, number
from ...training_script.model.members import Member
from ...training_script.model.message_traces import RECEIVES, SENDS, Step, traces
from ...training_script.model.reach import Reach, Run, alternatives, argument
from ...training_script.model.tensor_kinds import shape_of, type_of
from ...training_script.nodes import node_at
from ...training_script.syntax import call_argument, last_name
from ..handed_values import places_on_way
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .collective_arguments import FILLED_LISTS, multiplied, ranks_of
from .unequal_parts import PREFIX, SENT, sent

# Functions and methods that give floats, or raise an error for whole numbers.
COMPUTES_FLOATS = re.compile(r"mean|std|var|norm|(?:log_)?softmax|(?:log)?sigmoid|logsumexp|\w+_loss|cross_entropy\w*")
OF_ANY_FLOAT = "float"
MATRIX = 2  # dimensions
PAIR = [Rank(rank, rank, 0, 2, 2) for rank in range(2)]  # the ranks of a small job
SAME_ON_ALL = [name for name in SENT if name not in ("all_gather", "gather")]


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the collectives with tensors of different types, buffers for parts of another kind, and such receives."""
    yield from _of_ranks(script, run)
    yield from _gathered(script, run)
    yield from _scattered(script, run)
    yield from _received(script, run)


def _of_ranks(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact, given in sent(run, *SAME_ON_ALL):
        found = {type_of(given.key, run.keys, rank) for rank in ranks_of(reach)}
        if None in found:
            found = types_of_data(script, given.key, run.keys)
        if len(found) > 1 and None not in found:
            types = " and ".join(sorted(str(each) for each in found))
            name = fact.name.removeprefix(PREFIX)
            place, word, _ = SENT[name]
            yield from violation_at(
                script,
                reach,
                f"the ranks pass tensors of different types to {name}: {types}",
                0.9,
                related=places_on_way(script, reach, call_argument(fact.node, word, place)),
            )


def types_of_data(script: Script, given: Key, keys: Keys) -> set[str | None]:
    """Return the types that a tensor has on the sides of a condition on data of each rank.

    Of what torch computes it is only known that it is a float; that is no difference to another float.
    """
    sides = given.args[1:] if given.op == "if" and given.args[0].differs_by & DIFFERS else ()
    found = {type_of(side, keys, PAIR[0]) or (OF_ANY_FLOAT if _is_float(script, side) else None) for side in sides}
    floats = {each for each in found if each and each.startswith((OF_ANY_FLOAT, "bfloat"))}
    return found - floats | {OF_ANY_FLOAT} if OF_ANY_FLOAT in found else found


def _is_float(script: Script, computed: Key) -> bool:
    """Return whether a value is what a function or a method of torch gives that computes with floats alone."""
    if computed.op == "call":
        return bool(COMPUTES_FLOATS.fullmatch(str(computed.args[0]).rpartition(".")[2]))
    if computed.op != "at" or computed.args[0] != script.source.path:
        return False
    call = node_at(script.source.tree, computed.args[1], computed.args[2], ast.Call)  # the last one of a row of methods
    return call is not None and bool(COMPUTES_FLOATS.fullmatch(last_name(call.func)))


def _gathered(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the gathers into lists of tensors of another kind than what this rank passes."""
    for reach, fact, given in sent(run, *FILLED_LISTS):
        held = argument(fact, *FILLED_LISTS[fact.name.removeprefix(PREFIX)])
        buffer = element_of(held.key) if held else None
        if buffer is not None and (why := _difference(given.key, PAIR[0], buffer, PAIR[0], run.keys)):
            name = fact.name.removeprefix(PREFIX)
            yield from violation_at(
                script, reach, f"the tensors for what {name} gathers do not fit the parts: {why}", 0.85
            )


def _scattered(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the tensors that are scattered in pieces of which the last one is shorter."""
    for reach, fact in run.of("torch.distributed.scatter"):
        given = argument(fact, 1, "scatter_list")
        pieces = [each for each in alternatives(given.key) if each.op == "pieces"] if given else []
        for each in pieces:
            sizes = [_piece(run.keys, each, rank) for rank in PAIR]
            if None not in sizes and len(set(sizes)) > 1 and not reach.unsure:
                yield from violation_at(
                    script,
                    reach,
                    f"scatter needs pieces of one size, and these have {sizes[0]} and {sizes[1]} elements on two ranks",
                    0.85,
                )


def _piece(keys: Keys, pieces: Key, rank: Rank) -> int | None:
    return length(keys.make("item", pieces, keys.constant(rank.rank)), Member(rank.rank, rank.world_size))


def element_of(held: Key) -> Key | None:
    """Return one of the tensors of a list that a comprehension or a product makes."""
    if held.op == "built":
        return held.args[-1]
    repeated = multiplied(held)
    return repeated.args[0] if repeated is not None else None


def _received(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the receives into tensors of another kind than what the other rank sends."""
    calls = [(reach, fact) for reach, fact in run.of(*SENDS, *RECEIVES)]
    for (sends, message), (receives, buffer), ranks, members in _pairs(script, run, calls):
        given, into = argument(message, 0, "tensor"), argument(buffer, 0, "tensor")
        if not given or not into:
            continue
        tensor, buffer_key = (_in_round(run.keys, *each) for each in zip((given.key, into.key), members, strict=True))
        why = _difference(tensor, ranks[0], buffer_key, ranks[1], run.keys)
        if why := why or _difference_of_rows(run.keys, given.key, into.key, ranks, members):
            line = message.site.line
            yield from violation_at(
                script,
                receives,
                f"the tensor that is received into does not fit the one that is sent (line {line}): {why}",
                0.85,
                related=[RelatedPlace(path=message.site.path, line=sends.fact.site.line, message="sent here")],
            )
            return


Call = tuple[Reach, Noted]


def _in_round(keys: Keys, tensor: Key, member: Member) -> Key:
    """Return a tensor as it is in a round of a loop, if the loop counts the place from which it is taken."""
    if tensor.op != "item":
        return tensor
    place = number(tensor.args[1], member)
    return tensor if place is None else keys.make("item", tensor.args[0], keys.constant(place))


def _difference_of_rows(
    keys: Keys, given: Key, into: Key, ranks: tuple[Rank, Rank], members: tuple[Member, Member]
) -> str:
    """Return how the numbers of rows differ that are sent and that a buffer has, which is no row itself."""
    sent_rows, rows = (_rows(keys, *each) for each in zip((given, into), ranks, members, strict=True))
    if sent_rows is None or rows is None or sent_rows == rows or len(shape_of(into, keys, ranks[1]) or ()) < MATRIX:
        return ""
    return f"{sent_rows} rows into {rows}"


def _rows(keys: Keys, tensor: Key, rank: Rank, member: Member) -> int | None:
    """Return the number of rows of a new tensor, or of a piece of one in a round, also of what a layer makes of it."""
    while tensor.rows_of is not None:
        tensor = tensor.rows_of
    if tensor.op == "element":
        held, *place = tensor.args
        held = held.args[0] if held.op == "enumerate" else held
        value = next((value for *loop, value in reversed(member.counters or ()) if loop == place[:2]), None)
        if value is None or held.op not in PIECES:
            return None
        return length(keys.make("item", held, keys.constant(value)), member) if _is_new(held.args[-2]) else None
    if tensor.op == "item" and tensor.args[1].op == "slice":
        return length(tensor, member) if shape_of(tensor.args[0], keys, rank) else None
    shape = shape_of(tensor, keys, rank)
    return shape[0] if shape else None


def _is_new(tensor: Key) -> bool:
    """Return whether a tensor is one that a function of torch makes, without operations that spread its rows."""
    return tensor.op == "call" and tensor.args[0] in NEW_TENSORS


def _pairs(
    script: Script, run: Run, calls: list[Call]
) -> Iterator[tuple[Call, Call, tuple[Rank, Rank], tuple[Member, Member]]]:
    """Yield both ends of each message, with the ranks there, also in the round of a loop."""
    sends, receives = ([call for call in calls if call[1].name in names] for names in (SENDS, RECEIVES))
    if not sends or not receives or any(reach.unsure for reach, _ in calls):
        return
    root = next((each for each in script.evaluated.roots if each.function is run.function), None)
    known = traces(root.items, run.keys, PAIR) if root else None
    if known is not None:
        for first, second in _matched(known):
            assert first.way is not None
            ends = _call_of(first, calls), _call_of(second, calls)
            if ends[0] and ends[1]:
                ranks = PAIR[first.way.source], PAIR[first.way.to]
                yield ends[0], ends[1], ranks, (first.member, second.member)
    elif len(sends) == len(receives) == 1:
        for first, second in product(*(ranks_of(reach) for reach, _ in (sends[0], receives[0]))):
            members = Member(first.rank, first.world_size), Member(second.rank, second.world_size)
            yield sends[0], receives[0], (first, second), members


def _matched(steps: list[list[Step]]) -> Iterator[tuple[Step, Step]]:
    """Yield the sends with their receives: those between two ranks with one tag, in order."""
    messages = [
        step for own in steps for step in own if step.way and 0 <= step.way.source < len(steps) > step.way.to >= 0
    ]
    for way in dict.fromkeys(step.way for step in messages):
        pair = ([step for step in messages if step.way == way and step.sends is sends] for sends in (True, False))
        yield from zip(*pair, strict=False)


def _call_of(step: Step, calls: list[Call]) -> Call | None:
    return next((call for call in calls if (call[1].site, call[0].calls) == (step.site, step.calls)), None)


def _difference(given: Key, sender: Rank, into: Key, receiver: Rank, keys: Keys) -> str:
    """Return how a tensor differs from the one for it, an empty text if nothing is known to."""
    types = type_of(given, keys, sender), type_of(into, keys, receiver)
    if None not in types and types[0] != types[1]:
        return f"{types[0]} into {types[1]}"
    shapes = shape_of(given, keys, sender), shape_of(into, keys, receiver)
    counts = [
        prod(size or 0 for size in shape) if shape is not None and None not in shape else None for shape in shapes
    ]
    if None not in counts and counts[0] != counts[1]:
        return f"{_text(shapes[0])} into {_text(shapes[1])}"
    return ""


def _text(shape: tuple[int | None, ...] | None) -> str:
    return " x ".join(map(str, shape or ())) or "one number"
