"""DW415 to DW419: results that nothing waits for, arguments that do not fit the ranks, and receives without a send."""

import ast
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import GROUP_PLACE, POINT_TO_POINT
from ...training_script.edits import Edit
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, LOCAL, RANKS, Key, Rank, is_read
from ...training_script.model.lengths import number
from ...training_script.model.members import Member
from ...training_script.model.rank_values import GET_RANK, OF_GROUP
from ...training_script.model.reach import ALL, Reach, Run, argument, together
from ...training_script.reaching_values import values_at
from ...training_script.syntax import last_name
from ..patches.call_arguments import ONE_ROOT, first_as_root, root_of_group, wait_for_end, wait_for_result
from ..patches.exchange_at_once import exchange_at_once
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import at_node, violation_at
from .early_uses import early_use
from .left_handles import is_left
from .values_of_some import is_made_by_some

PREFIX = "torch.distributed."
# Place of the argument that names the one rank, and its name.
FROM_ONE = {
    "broadcast": (1, "src"),
    "broadcast_object_list": (1, "src"),
    "scatter": (2, "src"),
    "scatter_object_list": (2, "src"),
}
TO_ONE = {"gather": (2, "dst"), "gather_object": (2, "dst"), "reduce": (1, "dst")}
OF_ONE = FROM_ONE | TO_ONE
FILLED_LISTS = {"all_gather": (0, "tensor_list"), "gather": (1, "gather_list")}
BEGIN = ("isend", "irecv", "batch_isend_irecv")
ASYNC_SAVE = PREFIX + "checkpoint.async_save"
ONE_BY_ONE = [PREFIX + name for name in sorted(POINT_TO_POINT - {"batch_isend_irecv"})]
RECEIVES = ("recv", "recv_object_list")
OWN_TENSORS = "own-tensors"
EXCHANGE = "exchange-at-once"


def check_root(script: Script, run: Run) -> Iterator[Violation]:
    """DW416: yield the collectives in which each rank names a root of its own, or one that is not in its group."""
    for reach, fact in run.of(*(PREFIX + name for name in OF_ONE)):
        name = fact.name.removeprefix(PREFIX)
        group, root = argument(fact, GROUP_PLACE[name], "group"), argument(fact, *OF_ONE[name])
        own = group and "own" in group.facts and reach.ranks == ALL
        if own and root and root.key.is_constant and type(root.key.value) is int:
            yield from violation_at(
                script,
                reach,
                f"{OF_ONE[name][1]} is rank {root.key.value} of the job for every group: it is a member of one of them "
                "only",
                0.85,
                severity=None if script.is_here(reach) else "warning",
                patch=partial(_first_member, script, fact, name, root.key.value) if script.is_here(reach) else None,
            )
        elif root and _is_number_in_group(root.key) and reach.several:
            yield from violation_at(
                script,
                reach,
                f"{OF_ONE[name][1]} is a rank of the job, and this is the number of a rank in a group",
                0.85,
            )
    for reach, fact, name in of_all(run, OF_ONE):
        root = argument(fact, *OF_ONE[name])
        if root is None or not is_read(root.key) or _others_name_owner(run, reach, fact):
            continue
        if len(_roots(run, reach, root.key)) > 1 or is_made_by_some(run, root.key):
            word = OF_ONE[name][1]
            yield from violation_at(
                script,
                reach,
                f"each rank passes another {word} to {name}: ranks that name different ones do not exchange anything",
                0.9,
                patch=partial(_one_root, script, fact, name, root.key) if script.is_here(reach) else None,
            )


def _is_number_in_group(root: Key) -> bool:
    if root.op == "binary":
        sides = root.args[1:]
        return any(map(_is_number_in_group, sides)) and all(
            each.is_constant or _is_number_in_group(each) for each in sides
        )
    return root.op == OF_GROUP or (root.op == "rank" and root.args == ("group", GET_RANK[0]))


def _others_name_owner(run: Run, reach: Reach, fact: Noted) -> bool:
    """Return whether a value names the root where the other side of a condition makes the same call.

    The condition may let through only the rank that owns what is sent, which the value names on the others.
    """
    place = OF_ONE[fact.name.removeprefix(PREFIX)]
    roots = (argument(other, *place) for at, other in run.of(fact.name) if not together(at, reach))
    return any(root is not None and not root.key.is_constant and root.key.op != "rank" for root in roots)


def _roots(run: Run, reach: Reach, root: Key) -> set[int]:
    """Return the ranks that are named as the root, in the first round of loops that count."""
    members = (Member(rank.rank, rank.world_size, counter=0) for rank in ranks_of(reach))
    named = (number(root, member) for member in members)
    return {each for each in named if each is not None}


def check_elements(script: Script, run: Run) -> Iterator[Violation]:
    """DW418: yield the lists for the tensors of all ranks that hold one tensor several times."""
    for reach, fact in run.of(*(PREFIX + name for name in FILLED_LISTS)):
        name = fact.name.removeprefix(PREFIX)
        given = argument(fact, *FILLED_LISTS[name])
        if given and (_repeats(given.key) or _one_for_all(script, fact, name)):
            yield from violation_at(
                script,
                reach,
                f"the list for {name} holds one tensor several times: each rank's part overwrites the last",
                0.9,
                patch=(lambda fact=fact, name=name: _own_tensors(script, fact, name))
                if script.is_here(reach)
                else None,
            )


def check_receive(script: Script, run: Run) -> Iterator[Violation]:
    """DW419: yield the first point-to-point call of a run if all ranks wait in it for the other side."""
    if not run.distributed:
        return
    first = next(iter(run.of(*ONE_BY_ONE)), None)
    if first is None:
        return
    reach, fact = first
    name = fact.name.removeprefix(PREFIX)
    to = argument(fact, 1, "dst")
    sends = name == "send" and to is not None and to.key.differs_by & BY_RANK and _receives_next(run, fact)
    if name not in RECEIVES and not sends:
        return
    decided = any(not each.test.is_constant for each in reach.conditions)
    apart = any(loop.amount.differs_by & (BY_RANK | LOCAL) for loop in reach.loops)
    if reach.ranks == ALL and reach.several and not (reach.attempted or decided or apart):
        yield from violation_at(
            script,
            reach,
            f"every rank waits in {name} here before any of them {'receives' if sends else 'sends'}",
            0.9,
            severity="warning" if sends else None,
            patch=(lambda: _at_once(script, fact)) if script.is_here(reach) else None,
        )


def _receives_next(run: Run, first: Noted) -> bool:
    """Return whether the point-to-point call after the first one waits for a message, on all ranks."""
    calls = (each for each in run.of(*ONE_BY_ONE) if each[1] is not first)
    after = next(calls, None)
    return after is not None and after[1].name.removeprefix(PREFIX) in RECEIVES and after[0].ranks == ALL


def check_result(script: Script, run: Run) -> Iterator[Violation]:
    """DW415: yield the calls that only begin something, and for whose end nothing can wait."""
    for reach, fact in run.of(*(PREFIX + name for name in (*GROUP_PLACE, *BEGIN))):
        name = fact.name.removeprefix(PREFIX)
        begins = name in BEGIN or ((flag := fact.named.get("async_op")) and flag.key is run.keys.true)
        dropped = script.is_here(reach) and isinstance(script.source.parents.get(fact.node), ast.Expr)
        if begins and dropped and not _is_waited_for(script, run, reach, fact):
            yield from violation_at(
                script,
                reach,
                f"nothing waits for the end of this {name}: what is read next may be as before it",
                0.85,
                patch=partial(wait_for_end, script, fact.node, reach.ranks) if name != BEGIN[-1] else None,
            )
        elif begins and name not in BEGIN and (waits := _waits_of_some(run, fact)):
            yield from violation_at(
                script,
                waits,
                f"only some ranks wait for the end of this {name} (line {fact.site.line}): what the others read next "
                "may be as before it",
                0.85,
            )
        elif (
            begins
            and reach.several
            and script.is_here(reach)
            and is_left(script, fact.node, run.function is None)
            and not _is_waited_for(script, run, reach, fact)
        ):
            message = f"the handle of this {name} is kept, and nothing waits for its end: what is read next may be as "
            yield from violation_at(script, reach, message + "before it", 0.85)
        elif begins and script.is_here(reach) and (use := early_use(script, fact.node, name)):
            yield from violation_at(
                script,
                at_node(script, reach, use.at),
                f"`{use.name}` is {use.what} before the end of this {name} (line {fact.site.line}) is waited for",
                0.85,
            )


def check_saving(script: Script, run: Run) -> Iterator[Violation]:
    """DW415: yield the saving of checkpoints in the background of which nothing asks for the end."""
    for reach, fact in run.of(ASYNC_SAVE):
        if not script.is_here(reach) or reach.unsure:
            continue
        match script.source.parents.get(fact.node):
            case ast.Expr():
                kept = None
            case ast.Assign(targets=[ast.Name(id=kept)]):
                around = script.names.enclosing_function(fact.node) or script.source.tree
                nodes = (node for node in ast.walk(around) if isinstance(node, ast.Name))
                if any(node.id == kept and isinstance(node.ctx, ast.Load) for node in nodes):
                    continue
            case _:
                continue
        yield from violation_at(
            script,
            reach,
            "nothing waits for the end of this async_save: what reads the checkpoint next, or the end of the program, "
            "may come before it is written",
            0.85,
            patch=partial(wait_for_result, script, fact.node),
        )


def _waits_of_some(run: Run, begun: Noted) -> Reach | None:
    """Return the wait for the end of a call, if the rank decides whether there is one."""
    waits = [reach for reach, fact in run.of(".wait") if fact.owner and fact.owner.key is begun.result.key]
    known = [each for each in waits if not each.unsure and each.ranks != ALL]
    reaching = 0
    for each in waits:
        reaching |= each.ranks
    return known[0] if len(known) == len(waits) and waits and reaching != ALL else None


def _is_waited_for(script: Script, run: Run, reach: Reach, fact: Noted) -> bool:
    """Return whether the GPU is waited for somewhere, or the ranks come to a barrier before the data are used."""
    if script.mentions("cuda.synchronize"):
        return True
    after = run.reached[run.reached.index(reach) + 1 :]
    waits = [each for each in after if each.name == "barrier" and each.calls == reach.calls and together(reach, each)]
    tensor = fact.node.args[0] if fact.node.args else None
    if not waits or not isinstance(tensor, ast.Name):
        return False
    between = range(fact.site.end_line + 1, waits[0].fact.site.line)
    function = script.names.enclosing_function(fact.node) or script.source.tree
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == tensor.id]
    return all(_is_kept(script, node) for node in uses if node.lineno in between)


def _is_kept(script: Script, name: ast.Name) -> bool:
    """Return whether a name is only put into a list."""
    call = script.source.parents.get(name)
    return isinstance(call, ast.Call) and last_name(call.func) == "append"


def of_all(run: Run, names: dict[str, tuple[int, str]]) -> Iterator[tuple[Reach, Noted, str]]:
    """Yield the calls that surely several ranks reach, in the group of all ranks."""
    for reach, fact in run.of(*(PREFIX + name for name in names)):
        name = fact.name.removeprefix(PREFIX)
        group = argument(fact, GROUP_PLACE[name], "group")
        if reach.several and (group is None or group.key is run.keys.none):
            yield reach, fact, name


def ranks_of(reach: Reach) -> list[Rank]:
    return [rank for bit, rank in enumerate(RANKS) if reach.ranks & (1 << bit)]


def multiplied(held: Key) -> Key | None:
    """Return the sequence that is repeated in ``[x] * n``."""
    if held.op != "binary" or held.args[0] != "Mult":
        return None
    return next((each for each in held.args[1:] if each.op == "sequence" and each.args), None)


def _repeats(held: Key) -> bool:
    repeated = multiplied(held)
    return repeated is not None and not all(each.is_constant for each in repeated.args)


def _one_for_all(script: Script, fact: Noted, name: str) -> ast.ListComp | None:
    """Return the comprehension that puts one tensor made before into each place of a list."""
    for made in _lists(script, fact, name):
        match made:
            case ast.ListComp(elt=ast.Name(id=held) as element, generators=rounds):
                bound = {each.id for one in rounds for each in ast.walk(one.target) if isinstance(each, ast.Name)}
                key = script.evaluated.value(element)
                if held not in bound and key is not None and not key.is_constant:
                    return made
            case _:
                pass
    return None


def _lists(script: Script, fact: Noted, name: str) -> list[object]:
    """Return what makes the list that a call fills: the argument, or what its name has there."""
    place, word = FILLED_LISTS[name]
    passed = [*fact.node.args[place : place + 1], *(each.value for each in fact.node.keywords if each.arg == word)]
    if fact.node in script.source.parents and passed and isinstance(passed[0], ast.Name):
        return [*values_at(script.names, passed[0], script.source.statement_of(fact.node))]
    return [*passed]


def _first_member(script: Script, fact: Noted, name: str, root: int) -> Patch:
    place, word = OF_ONE[name]
    if root:
        return no_patch(ONE_ROOT, "pass the global rank of a member of the group")
    return root_of_group(script, fact.node, word, place)


def _one_root(script: Script, fact: Noted, name: str, root: Key) -> Patch:
    place, word = OF_ONE[name]
    if root.op != "rank":
        return no_patch(ONE_ROOT, "pass the same rank on all ranks")
    return first_as_root(script, fact.node, word, place)


def _at_once(script: Script, fact: Noted) -> Patch:
    exchange = exchange_at_once(script.source, script.source.statement_of(fact.node))
    if exchange is None:
        return no_patch(EXCHANGE, "let even ranks send first and odd ranks receive first")
    why = "what is sent is what the tensor holds before anything is received"
    return Patch(id=EXCHANGE, safety="unsafe", why_unsafe=why, edits=exchange.edits)


def _own_tensors(script: Script, fact: Noted, name: str) -> Patch:
    values = _lists(script, fact, name)
    why = "make the list with one new tensor for each rank"
    if len(values) == 1 and isinstance(comprehension := values[0], ast.ListComp):
        end = script.source.end(comprehension.elt)
        return Patch(id=OWN_TENSORS, safety="safe", edits=[Edit(end, end, ".clone()")])
    if len(values) != 1 or not isinstance(made := values[0], ast.BinOp):
        return no_patch(OWN_TENSORS, why)
    held, times = (made.left, made.right) if isinstance(made.left, ast.List) else (made.right, made.left)
    if not isinstance(held, ast.List) or len(held.elts) != 1:
        return no_patch(OWN_TENSORS, why)
    source, element = script.source, held.elts[0]
    tensor = source.code(element) if isinstance(element, ast.Call) else f"{source.code(element)}.clone()"
    edits: list[Edit] = [source.replace(made, f"[{tensor} for _ in range({source.code(times)})]")]
    return Patch(id=OWN_TENSORS, safety="safe", edits=edits)
