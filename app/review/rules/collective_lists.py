"""DW417: lists of collectives that are passed by the wrong ranks, or have another length than the call needs."""

import re
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, is_read, parts
from ...training_script.model.length_differences import differ
from ...training_script.model.lengths import length
from ...training_script.model.members import PAIR, Member
from ...training_script.model.reach import ALL, Run, alternatives, argument
from ...training_script.model.sequences import Site
from ...training_script.model.values import Value
from ..patches.call_arguments import list_on_root
from ..rule_context import Script, Violation
from ..violations import violation_at
from .collective_arguments import FROM_ONE, OF_ONE, PREFIX, multiplied, of_all, ranks_of

# The list that only that rank may pass.
LISTS = {
    "gather": (1, "gather_list"),
    "gather_object": (1, "object_gather_list"),
    "scatter": (1, "scatter_list"),
}
SCATTERED = {"scatter": (1, "scatter_list"), "scatter_object_list": (1, "scatter_object_input_list")}
GATHERED = {"all_gather": (0, "tensor_list"), "all_gather_object": (0, "object_list")}
# Lists of tensors for, or from, each member of the group, which fail with more of them.
OF_MEMBERS = [
    ("all_gather", 0, "tensor_list"),
    ("gather", 1, "gather_list"),
    ("scatter", 1, "scatter_list"),
    ("reduce_scatter", 1, "input_list"),
    ("all_to_all", 0, "output_tensor_list"),
    ("all_to_all", 1, "input_tensor_list"),
]
SPLITS = ("torch.chunk", "torch.split", "torch.tensor_split", "torch.unbind")
SIZES = (2, 3, 4, 8)  # of jobs for which a length is computed
FEWEST = 2  # ranks of the smallest job, for which a list may be written out
STARTS = re.compile(r"spawn|Process\(|nproc")
ASKS_SIZE = re.compile(r"get_world_size\(|WORLD_SIZE")
# What starts or requires a number of ranks that is written out.
FIXED_SIZE = re.compile(
    r"(?i)\bnprocs\s*=\s*\d|\bworld(?:_size)?\s*=\s*\d|\bworld(?:_size)?\b(?:\(\))?\s*[!=]=\s*[2-9]"
)


def _check_roots(script: Script, run: Run) -> Iterator[Violation]:
    """DW417: yield the lists that ranks pass although only the root may, or that the root lacks."""
    for reach, fact, name in of_all(run, LISTS):
        if {"**", f"group_{OF_ONE[name][1]}"} & fact.named.keys():
            continue
        given, root = argument(fact, *LISTS[name]), argument(fact, *OF_ONE[name])
        if root and not is_read(root.key):
            continue
        for rank in ranks_of(reach):
            at = run.keys.specialise(root.key, rank) if root else run.keys.constant(0)
            if not at.is_constant:
                break
            held = run.keys.specialise(given.key, rank) if given else run.keys.none
            is_root = at.value == rank.rank
            if (is_root and held is run.keys.none) or (not is_root and _is_full(held)):
                word = LISTS[name][1]
                problem = f"the root lacks {word}" if is_root else f"ranks other than the root pass {word}"
                patch = None
                if _has_counterpart(script, run, fact, passed=not is_root):
                    break
                if not is_root and script.is_here(reach):
                    patch = partial(list_on_root, script, fact.node, word, LISTS[name][0], at.value)
                yield from violation_at(script, reach, f"{problem}: {name} raises an error there", 0.9, patch=patch)
                break


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW417: yield the lists of objects that are not as long on the ranks that receive as on the one that sends."""
    yield from _check_roots(script, run)
    yield from _fixed_lengths(script, run)
    yield from _empty(script, run)
    yield from _for_other_jobs(script, run)
    yield from _of_all_ranks(script, run)
    for reach, fact, name in of_all(run, {"broadcast_object_list": FROM_ONE["broadcast_object_list"]}):
        given = argument(fact, 0, "object_list")
        if given and reach.ranks == ALL and differ(given.key, length):
            first, second = (length(given.key, rank) for rank in PAIR)
            yield from violation_at(
                script,
                reach,
                f"the list that {name} gets has {first} elements on rank 0, and {second} on another rank: all need the "
                "same number",
                0.9,
            )


def _fixed_lengths(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the lists to scatter that have as many elements for any number of ranks, in a program that asks for it."""
    calls = list(of_all(run, SCATTERED))
    if not calls or not script.mentions(ASKS_SIZE) or script.mentions(FIXED_SIZE):
        return
    for reach, fact, name in calls:
        given, root = argument(fact, *SCATTERED[name]), argument(fact, *OF_ONE[name])
        if given is None or (root and not root.key.is_constant):
            continue
        at = root.key.value if root else 0
        found = {length(given.key, Member(at, size)) for size in SIZES} if type(at) is int else set[int | None]()
        if len(found) == 1 and (count := found.pop()) is not None and not _is_written_out(given.key):
            yield from violation_at(
                script,
                reach,
                f"the list that {name} gets has {count} elements for any number of ranks: it needs one for each rank",
                0.8,
            )


def _for_other_jobs(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the lists for the tensors of a larger job than of two ranks, however many the launcher starts."""
    if (
        run.places.keys().isdisjoint(PREFIX + name for name, _, _ in OF_MEMBERS)
        or script.mentions(FIXED_SIZE)
        or script.mentions(STARTS, "spawn", "Process(", "nproc")
        or script.evaluated.is_single
    ):
        return
    known: set[Site] = set()
    for name, place, word in OF_MEMBERS:
        for reach, fact in run.of(PREFIX + name):
            given, group = argument(fact, place, word), argument(fact, GROUP_PLACE[name], "group")
            if given is None or (group and group.key is not run.keys.none) or fact.site in known or reach.unsure:
                continue
            held = max(_chosen(given.key), key=lambda each: length(each, PAIR[0]) or 0)
            found = {length(held, Member(0, size)) for size in SIZES}
            repeats = held.op == "built" or multiplied(held) is not None
            if repeats and len(found) == 1 and (found.pop() or 0) > FEWEST:
                known.add(fact.site)
                yield from violation_at(
                    script,
                    reach,
                    f"the list that {name} gets has {length(held, PAIR[0])} elements, however many ranks the launcher "
                    "starts: it needs one for each, as by dist.get_world_size()",
                    0.75,
                    severity="warning",
                )


def _chosen(given: Key) -> list[Key]:
    return [each for each in alternatives(given) if each.op != "if"]


def _empty(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the empty lists for what all ranks gather, which is put into places that have to be there."""
    for reach, fact, name in of_all(run, GATHERED):
        given = argument(fact, *GATHERED[name])
        if given and given.key.op == "sequence" and not given.key.args:
            yield from violation_at(
                script,
                reach,
                f"the list that {name} fills is empty: it needs a place for each rank, as in [None] * world_size",
                0.9,
            )


def _of_all_ranks(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the lists with an element for each of all ranks that are passed with a smaller group."""
    known: set[Site] = set()
    for name, place, word in OF_MEMBERS:
        for reach, fact in run.of(PREFIX + name):
            given, group = argument(fact, place, word), argument(fact, GROUP_PLACE[name], "group")
            if given is None or group is None or fact.site in known:
                continue
            if _is_of_all(given.key) and _is_smaller(run, group):
                known.add(fact.site)
                yield from violation_at(
                    script,
                    reach,
                    f"the list that {name} gets has an element for each of all ranks, and the group has fewer members: "
                    "dist.get_world_size(group) is their number",
                    0.85,
                )


def _is_of_all(held: Key) -> bool:
    """Return whether a list has as many elements as the job has ranks, by the number of all of them."""
    sizes = {part.args for part in parts(held) if part.op == "world"}
    return sizes == {("global",)} and all(length(held, Member(0, size)) == size for size in SIZES)


def _is_smaller(run: Run, group: Value) -> bool:
    """Return whether a group surely has other members than all ranks, or is one of several that share them out."""
    if "members" not in group.facts:
        return False
    made = next((fact for _, fact in run.of(PREFIX + "new_group") if fact.result.key is group.key), None)
    ranks = argument(made, 0, "ranks") if made else None
    if ranks is None or "own" in group.facts:
        return "own" in group.facts
    found = [length(ranks.key, Member(0, size)) for size in SIZES]
    return all(count is not None and count != size for count, size in zip(found, SIZES, strict=True))


def _is_written_out(held: Key) -> bool:
    """Return whether a list is one of elements in the text, which may be made for a number of ranks that is meant."""
    return not any(part.op == "built" for part in alternatives(held))


def _has_counterpart(script: Script, run: Run, call: Noted, *, passed: bool) -> bool:
    """Return whether other ranks make the call elsewhere: one of the two is in a function that other files call.

    ``passed``: whether ``call`` passes the list of the root.
    """
    name = call.name.removeprefix(PREFIX)
    runs = (other for other in script.runs if run.function or other.function)
    calls = (fact for other in runs for _, fact in other.of(call.name) if fact.site != call.site)
    given = (argument(fact, *LISTS[name]) for fact in calls)
    return any((each is None or each.key is run.keys.none) == passed for each in given)


def _is_full(held: Key) -> bool:
    """Return whether a value is surely a list with elements."""
    if held.op == "pieces" or (held.op == "call" and held.args[0] in SPLITS):
        return True
    return held.op == "built" or (held.op == "sequence" and bool(held.args)) or multiplied(held) is not None
