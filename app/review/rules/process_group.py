"""DW105, DW117 and DW409: process groups that are made or destroyed in a way that leaves ranks waiting."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import collective_name
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import DESTROY, INIT
from ...training_script.model.reach import ALL, Reach, Run, alternatives, argument
from ...training_script.model.sequences import Site
from ...training_script.model.several_ranks import is_single
from ...training_script.model.signatures import place_of
from ...training_script.nodes import nodes_below
from ...training_script.syntax import FUNCTIONS, call_argument, contains_line
from ..patches.end_after_try import end_after_try
from ..patches.torch_names import distributed_module, imports_os
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import at_node, violation_at
from ..written_numbers import option_default, where_written, written_number
from .spawned_processes import SPAWN

FIX, END = "rank-from-environment", "end-on-every-rank"
STARTS = re.compile(r"spawn|Process\(|Popen|fork|subprocess")
RANK, SIZE = place_of(INIT, "rank"), place_of(INIT, "world_size")
RANK_VARIABLES = ("RANK", "LOCAL_RANK")
OF_VARIABLE = re.compile(r"""["'](?:LOCAL_)?RANK["']""")


def check_rank(script: Script, run: Run) -> Iterator[Violation]:
    """DW105: yield the process groups that are made with the local rank as the rank."""
    if INIT not in run.places:
        return
    text = script.source.text
    parent = any(reach.started for reach, _ in run.of(INIT))  # one process, and rank 0 next to those that it starts
    for reach, fact in () if parent else run.of(INIT):
        rank = argument(fact, RANK, "rank")
        fixed = (
            not (script.evaluated.is_single or is_single(fact))
            and rank
            and rank.key.is_constant
            and type(rank.key.value) is int
            and rank.key.value >= 0
        )
        if fixed and rank and reach.several:
            message = f"every process passes {rank.key.value} as its rank: the others are waited for"
            yield from violation_at(script, reach, message, 0.8)
    for reach, fact in () if parent else run.of(INIT):
        yield from _of_option(script, reach, fact)
        yield from _beyond_size(script, reach, fact)
    for reach, fact in run.of(INIT):
        if script.is_here(reach) and _has_both_ranks(script, fact.node):
            message = "`rank` is passed as the rank where `global_rank` is another number: on the second node the same "
            message += "numbers come again"
            yield from violation_at(script, reach, message, 0.75, severity="warning")
    if "LOCAL_RANK" not in text or "spawn" in text or "Process(" in text:
        return
    for reach, fact in run.of(INIT):
        rank, size = argument(fact, RANK, "rank"), argument(fact, SIZE, "world_size")
        of_node = size and any(each.op == "world" and each.args[0] == "local" for each in alternatives(size.key))
        if rank and rank.key.op == "rank" and rank.key.args[0] == "local" and not (of_node or reach.unsure):
            message = "the local rank is passed as the rank: on the second node the same numbers come again"
            patch = partial(_by_environment, script, fact) if script.is_here(reach) else None
            yield from violation_at(script, reach, message, 0.85, patch=patch)


def _beyond_size(script: Script, reach: Reach, fact: Noted) -> Iterator[Violation]:
    """Yield a process group for which the ranks have other numbers than those from 0 on."""
    rank = argument(fact, RANK, "rank")
    numbers = [number(rank.key, member) for member in PAIR] if rank else []
    known = [each for each in numbers if each is not None]
    if reach.by_all and len({*known}) == len(PAIR) and min(known) != 0:
        message = f"two ranks pass {known[0]} and {known[1]} as their numbers, which begin at 0: a rank is waited for"
        yield from violation_at(script, reach, message, 0.85)


def _of_option(script: Script, reach: Reach, fact: Noted) -> Iterator[Violation]:
    """Yield a process group whose rank is the default of an option, where the launcher gives the number of ranks."""
    given, size = call_argument(fact.node, "rank", RANK), argument(fact, SIZE, "world_size")
    default = option_default(script, given) if script.mentions('"WORLD_SIZE"') and script.is_here(reach) else None
    if default is not None and size is not None and reach.several and not script.mentions(OF_VARIABLE):
        yield from violation_at(
            script,
            at_node(script, reach, given),
            f"torchrun passes no such option: every process passes the default {default} as its rank, and waits for "
            "the others",
            0.75,
            severity="warning",
        )


def check_number(script: Script, run: Run) -> Iterator[Violation]:
    """DW117: yield the process groups for a number of ranks that is written out, where the launcher gives the rank."""
    yield from _other_number(script, run)
    if (
        script.evaluated.is_single
        or any(reach.started for reach in run.reached)
        or script.mentions(STARTS, "spawn", "Process(", "Popen", "fork", "subprocess")
    ):
        return
    for reach, fact in run.of(INIT):
        rank, size = argument(fact, RANK, "rank"), argument(fact, SIZE, "world_size")
        launched = rank is None or (rank.key.op == "rank" and rank.key.args[1] in RANK_VARIABLES)
        count = written_number(size.key) if size else None
        given = call_argument(fact.node, "world_size", SIZE)
        is_option = size is not None and any(part.op == "options" for part in parts(size.key))
        if rank is not None and count is None and (count := option_default(script, given)):
            is_option = True
        if launched and count is not None and count > (0 if is_option else 1) and reach.several:
            by = "by the default of an option, " if is_option else ""
            message = (
                f"the process group waits for {count} ranks, {by}however many the launcher starts: take WORLD_SIZE, or "
                "leave it out"
            )
            written = where_written(script, given, fact.site.path)
            yield from violation_at(script, reach, message, 0.8, related=written or None)


def _other_number(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the process groups for another number of ranks than ``spawn`` starts, if each passes its own number."""
    starts = list(run.of(*SPAWN))
    groups = list(run.of(INIT))
    if len(starts) != 1 or any(not reach.started for reach, _ in groups):
        return
    at, start = starts[0]
    count = argument(start, 2, "nprocs")
    for _, fact in groups:
        rank, size = argument(fact, RANK, "rank"), argument(fact, SIZE, "world_size")
        own = rank is not None and rank.key.op == "rank" and rank.key.args[0] == "spawned"
        if own and size and count and _differ(size.key, count.key):
            yield from violation_at(
                script,
                at,
                f"the process group of line {fact.site.line} is for another number of ranks than are started here: it "
                "waits for ranks that do not exist, or some ranks are not below its size",
                0.85,
                related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="the process group")],
            )


def _differ(first: Key, second: Key) -> bool:
    """Return whether two numbers are surely not the same: both written out, or one is the other and some more."""
    if first.is_constant and second.is_constant:
        return type(first.value) is type(second.value) is int and first.value != second.value
    return any(
        whole.op == "binary" and whole.args[0] in ("Add", "Sub") and part in whole.args[1:] and _is_some(whole.args[2])
        for whole, part in ((first, second), (second, first))
    )


def _is_some(number: Key) -> bool:
    return number.is_constant and type(number.value) is int and number.value != 0


def _has_both_ranks(script: Script, call: ast.Call) -> bool:
    """Return whether a function that gets a rank and a global rank passes the first one as that of the process."""
    function, given = script.names.enclosing_function(call), call_argument(call, "rank", RANK)
    if not isinstance(function, FUNCTIONS) or not isinstance(given, ast.Name) or given.id != "rank":
        return False
    parameters = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    return {"rank", "global_rank"} <= parameters and len(script.names.bindings(given)) == 1


def check_end(script: Script, run: Run) -> Iterator[Violation]:
    """DW409: yield destroy_process_group on some ranks only, and in a finally block."""
    ends = list(run.of(DESTROY))
    reached = 0
    for reach, _ in ends:
        reached |= ALL if reach.unsure else reach.ranks
    for reach, fact in ends:
        here = script.is_here(reach)
        if here and reached != ALL and not reach.unsure:
            message = "only some ranks destroy the process group: with NCCL they wait for the others there"
            yield from violation_at(script, reach, message, 0.8, patch=partial(_on_every_rank, script, fact))
            continue
        for site in (fact.site, *reach.calls):
            block = _finally_around(script, site)
            if block:
                message = "in a finally block: a rank that failed waits here for ranks that are still in a collective"
                collective = _first_collective(script, block)
                place = _site_of(script, collective) if collective and collective.lineno < site.line else site
                at = reach._replace(fact=fact._replace(site=place))
                patch = partial(end_after_try, script, fact.node) if here and site == fact.site else None
                severity = "warning" if collective else "info"
                yield from violation_at(script, at, message, 0.7, severity=severity, patch=patch)
                break


def _finally_around(script: Script, site: Site) -> list[ast.stmt]:
    """Return the ``finally`` block that a place of the script is in, with all its statements."""
    if site.path != script.source.path:
        return []
    for node in nodes_below(script.source.tree):
        last = node.finalbody if isinstance(node, ast.Try) else []
        block = [stmt for stmt in last if not isinstance(stmt, FUNCTIONS)]
        if any(contains_line(stmt, site.line) for stmt in block):
            return block
    return []


def _first_collective(script: Script, block: list[ast.stmt]) -> ast.Call | None:
    """Return the first call of a block that makes all ranks wait for each other, or None."""
    calls = (node for stmt in block for node in ast.walk(stmt) if isinstance(node, ast.Call))
    return min((call for call in calls if collective_name(call, script.names)), key=lambda c: c.lineno, default=None)


def _site_of(script: Script, call: ast.Call) -> Site:
    return Site(script.source.path, call.lineno, call.col_offset + 1, call.end_lineno or call.lineno)


def _on_every_rank(script: Script, fact: Noted) -> Patch:
    """Return the patch that lets every rank with a process group end it, if that is all a condition is about."""
    source = script.source
    guard = source.parents.get(source.statement_of(fact.node))
    module = distributed_module(script, fact.node)
    is_its_own = isinstance(guard, ast.If) and len(guard.body) == 1 and not guard.orelse
    if not isinstance(guard, ast.If) or not is_its_own or not module or not script.depends_on_rank(guard.test):
        return no_patch(END, "call it on every rank, behind what only some of them do")
    return Patch(
        id=END,
        safety="unsafe",
        why_unsafe="code that runs later in the same process finds no process group",
        edits=[source.replace(guard.test, f"{module}.is_initialized()")],
    )


def _by_environment(script: Script, fact: Noted) -> Patch:
    """Return the patch that passes RANK, where the number of ranks is that of all nodes already."""
    given, size = call_argument(fact.node, "rank", RANK), argument(fact, SIZE, "world_size")
    of_all = size is not None and size.key.op == "world" and size.key.args[0] == "global"
    if given is None or not of_all or not imports_os(script):
        return no_patch(FIX, "pass RANK and WORLD_SIZE, or neither: init_process_group reads them from the environment")
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="a launcher that does not set RANK is not torchrun: the number is then to be taken elsewhere",
        edits=[script.source.replace(given, 'int(os.environ["RANK"])')],
    )
