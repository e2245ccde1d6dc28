"""DW428, DW484 and DW485: keys of the store that no rank sets, each rank for itself, or each round again."""

import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, Rank, parts
from ...training_script.model.lengths import counts_rounds, number, numbers
from ...training_script.model.members import Member
from ...training_script.model.noted_calls import STORE
from ...training_script.model.reach import ALL, Reach, Run, same_on_ranks
from ...training_script.model.sequences import Event
from ...training_script.model.values import is_elements
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

SETS = tuple(f"{STORE}{name}" for name in ("set", "add", "compare_set"))
WAITS = tuple(f"{STORE}{name}" for name in ("wait", "get"))
DELETES = f"{STORE}delete_key"
IN_MEMORY = "torch.distributed.HashStore"
SIZES = [[Rank(rank, rank, 0, size, size) for rank in range(size)] for size in (2, 4)]  # of a job
DIGITS = re.compile(r"\d+")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the waits for a key that is like those which ranks set, but none of them."""
    yield from _in_memory(script, run)
    waits = [(reach, fact) for reach, fact in run.of(*WAITS) if fact.values and not reach.unsure]
    for reach, fact in waits:
        lacking = [_lacking(run, reach, fact, ranks) for ranks in SIZES]
        if all(lacking):
            yield from violation_at(
                script,
                reach,
                f"no rank sets the key `{lacking[0]}` that is waited for here, with {len(SIZES[0])} ranks or more",
                0.85,
            )


def check_overwritten(script: Script, run: Run) -> Iterator[Violation]:
    """DW484: yield the keys that all ranks set, each to a value with its rank in it."""
    for reach, fact in run.of(SETS[0]):
        if len(fact.values) < 2 or not reach.by_all or reach.conditions:
            continue
        key, value = (each.key for each in fact.values[:2])
        if same_on_ranks(key) and value.differs_by & BY_RANK:
            yield from violation_at(
                script,
                reach,
                "every rank sets this key, to a value of its own: the one that comes last is kept, and those of the "
                "others are lost",
                0.85,
            )


def check_stale(script: Script, run: Run) -> Iterator[Violation]:
    """DW485: yield the keys that each round sets again, and that other ranks wait for as soon as the first has."""
    if any(each.name.startswith(DELETES) for each in run.reached):
        return
    order = {id(each): place for place, each in enumerate(run.reached)}
    for setting, fact in run.of(SETS[0]):
        if len(fact.values) < 2 or not setting.loops or setting.unsure or fact.values[1].key.is_constant:
            continue
        for reach, waiting in run.of(*WAITS):
            same = waiting.values and fact.values[0].key in (waiting.values[0].key, *_elements(waiting))
            if not same or reach.loops[:1] != setting.loops[:1] or reach.unsure or reach.ranks & setting.ranks:
                continue
            between = run.reached[order[id(setting)] + 1 : order[id(reach)]]
            met = any(isinstance(each.fact, Event) and each.ranks == ALL for each in between)
            if fact.values[0].key.is_constant and not met:
                yield from violation_at(
                    script,
                    setting,
                    "each round sets this key again, and it is there from the first round on: a rank that reads it "
                    f"(line {reach.fact.site.line}) may get what an earlier round has set",
                    0.8,
                    related=[RelatedPlace(path=reach.fact.site.path, line=reach.fact.site.line, message="read here")],
                )
                return


def _elements(waiting: Noted) -> tuple[Key, ...]:
    """Return the keys in the list that a call waits for."""
    obj = waiting.values[0].obj
    return tuple(each.key for each in obj) if is_elements(obj) else ()


def _in_memory(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the waits for what another rank sets in a store that each process has of its own."""
    own = {fact.result.key for _, fact in run.of(IN_MEMORY)}
    for reach, fact in run.of(*WAITS) if own else ():
        if not fact.owner or fact.owner.key not in own or not fact.values or reach.unsure:
            continue
        setting = 0
        for each, other in run.of(*SETS):
            same = other.owner and other.owner.key is fact.owner.key and other.values
            if same and other.values[0].key is fact.values[0].key:
                setting |= ALL if each.unsure else each.ranks
        if reach.ranks & ~setting:
            yield from violation_at(
                script,
                reach,
                "a HashStore is in the memory of one process: what another rank sets is not in that of this one",
                0.85,
            )
            return


def _lacking(run: Run, reach: Reach, fact: Noted, ranks: list[Rank]) -> str:
    """Return a key that a call waits for and no rank sets, for one number of ranks; none if that is not known."""
    given: set[str] = set()
    for setting, each in run.of(*SETS):
        for rank in ranks:
            texts = _texts(setting, each, rank, len(ranks))
            if texts is None:
                return ""
            given |= texts
    forms = {DIGITS.sub("", text) for text in given}
    for rank in ranks:
        seen = [run.keys.specialise(each.test, rank) for each in reach.conditions]
        if all(
            each.is_constant and bool(each.value) == c.truth for each, c in zip(seen, reach.conditions, strict=True)
        ):
            wanted = sorted((_texts(reach, fact, rank, len(ranks)) or set()) - given)
            found = next((text for text in wanted if DIGITS.sub("", text) in forms), "")
            if found:
                return found
    return ""


def _texts(reach: Reach, fact: Noted, rank: Rank, size: int) -> set[str] | None:
    """Return the keys of a call on one rank; None if they are not known."""
    if not fact.values:
        return None
    member = Member(rank.rank, size)
    members = [member]
    for loop in reach.loops:
        if any(counts_rounds(part, loop.site.path, loop.site.line) for part in parts(fact.values[0].key)):
            counted = numbers(loop.amount, member)
            if counted is None or len(members) > 1:
                return None
            members = [member._replace(counter=value) for value in counted]
    found: set[str] = set()
    for each in members:
        texts = _of_key(fact.values[0].key, each)
        if texts is None:
            return None
        found |= texts
    return found


def _of_key(key: Key, rank: Member) -> set[str] | None:
    """Return the texts that a text or a sequence of texts has on a rank."""
    match key.op, key.args:
        case "sequence", elements:
            found = [_text(each, rank) for each in elements]
        case "built", (1, Key() as held, Key() as element):
            counted = numbers(held, rank)
            found = (
                [_text(element, rank._replace(counter=value)) for value in counted] if counted is not None else [None]
            )
        case _:
            found = [_text(key, rank)]
    known = {each for each in found if each is not None}
    return known if None not in found else None


def _text(key: Key, rank: Member) -> str | None:
    if key.is_constant:
        return str(key.value)
    if key.op == "text" or (key.op == "binary" and key.args[0] == "Add"):
        texts = [_text(part, rank) for part in key.args if isinstance(part, Key)]
        known = [each for each in texts if each is not None]
        return "".join(known) if len(known) == len(texts) else None
    value = number(key, rank)
    return None if value is None else str(value)
