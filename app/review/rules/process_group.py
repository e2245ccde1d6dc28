"""DW105, DW115, DW117 and DW409: process groups that are made or destroyed in a way that leaves ranks waiting."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.collectives import GROUP_PLACE, POINT_TO_POINT, collective_name
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import DESTROY, INIT, OF_GROUP
from ...training_script.model.reach import ALL, Reach, Run, alternatives, argument, together
from ...training_script.model.sequences import Event, Site
from ...training_script.model.several_ranks import is_single
from ...training_script.model.signatures import place_of
from ...training_script.nodes import node_at, nodes_below
from ...training_script.project_imports import read_module
from ...training_script.syntax import FUNCTIONS, call_argument, contains_line
from ...training_script.torch_classes import DDP_CLASSES, SAMPLER_CLASSES
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
PREFIX = "torch.distributed."
ZERO = PREFIX + "optim.ZeroRedundancyOptimizer"
NEEDS = {*OF_GROUP, DESTROY, ZERO, *DDP_CLASSES, *(PREFIX + name for name in (*GROUP_PLACE, *POINT_TO_POINT))}
# What makes a process group by itself.
STARTERS = {"accelerate.Accelerator", "deepspeed.init_distributed", "deepspeed.initialize"}
STARTERS |= {f"{PREFIX}{inner}init_device_mesh" for inner in ("", "device_mesh.")}
# What makes a process group, or may do so.
MAKES = re.compile(
    r"(?<!__)init(?!__)|setup|launch|spawn|deepspeed|horovod|lightning|fabric|Trainer|Accelerator|colossalai|import \*",
    re.I,
)
OF_VARIABLE = re.compile(r"""["'](?:LOCAL_)?RANK["']""")
ASKS = re.compile(r"is_initialized|is_available|\btry:")


def check_rank(script: Script, run: Run) -> Iterator[Violation]:
    """DW105: yield the process groups that are made with the local rank as the rank."""
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
    if script.evaluated.is_single or any(reach.started for reach in run.reached) or script.mentions(STARTS):
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


def check_early(script: Script, run: Run) -> Iterator[Violation]:
    """DW115: yield the first call that needs the process group before it is made."""
    made = next((number for number, each in enumerate(run.reached) if each.name == INIT), None)
    yield from _made_by_some(script, run)
    if made is None and run.function is None:
        yield from _never_made(script, run)
    for reach in run.reached[:made] if made is not None else ():
        if reach.name in STARTERS:
            return
        later = run.reached[made or 0]
        needs = needs_group(script, run, reach) and together(reach, later) and reach.started == later.started
        if needs and not later.started and not asks_for_group(script, reach):
            name = reach.name.rpartition(".")[2]
            yield from violation_at(
                script,
                _called_before(script, reach, later),
                f"{name} before the process group is made (line {later.fact.site.line}): this raises a ValueError",
                0.85,
            )
            return


def _made_by_some(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the process group that only some ranks make, where others come to a call that needs it."""
    made = [reach for reach, _ in run.of(INIT)]
    if not made or any(each.unsure or each.started or each.attempted for each in made):
        return
    having = 0
    for each in made:
        having |= each.ranks
    behind = run.reached[run.reached.index(made[-1]) + 1 :]
    lacking = next((each for each in behind if each.ranks & ~having and needs_group(script, run, each)), None)
    if having and having != ALL and lacking is not None and not asks_for_group(script, lacking):
        yield from violation_at(
            script,
            made[0],
            f"only some ranks make the process group: they wait for the others, which come to line "
            f"{lacking.fact.site.line} without one",
            0.85,
            related=[
                RelatedPlace(path=lacking.fact.site.path, line=lacking.fact.site.line, message="it is needed here")
            ],
        )


def _never_made(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first call that needs the process group in a program of which no part makes one."""
    first = next((each for each in run.reached if needs_group(script, run, each)), None)
    if first is None or not script.is_here(first) or asks_for_group(script, first):
        return
    if script.mentions(MAKES) or any(MAKES.search(read_module(path) or "") for path in script.evaluated.modules):
        return
    name = first.name.rpartition(".")[2]
    message = f"{name} needs the process group, and nothing in this program makes one: this raises a ValueError"
    yield from violation_at(script, first, message, 0.8)


def needs_group(script: Script, run: Run, reach: Reach) -> bool:
    """Return whether a call that several ranks surely make raises an error without a process group."""
    if reach.unsure or reach.attempted or not reach.several:
        return False
    fact = reach.fact
    if isinstance(fact, Event):
        call = (
            node_at(script.source.tree, fact.site.line, fact.site.column, ast.Call) if script.is_here(reach) else None
        )
        return call is not None and script.names.qualified(call.func) in NEEDS
    if isinstance(fact, Noted) and reach.name in SAMPLER_CLASSES:
        return argument(fact, 1, "num_replicas") is None or argument(fact, 2, "rank") is None
    return reach.name in NEEDS


def _called_before(script: Script, reach: Reach, later: Reach) -> Reach:
    """Return a fact as the call that leads to it from the function which makes the group later."""
    at = next((n for n, site in enumerate(reach.calls) if site not in later.calls), None)
    if at is None or isinstance(reach.fact, Event) or reach.calls[at].path != script.source.path:
        return reach
    return reach._replace(fact=reach.fact._replace(site=reach.calls[at]), calls=reach.calls[:at])


def asks_for_group(script: Script, reach: Reach) -> bool:
    """Return whether the functions on the way, as far as they are known, ask whether there is a group."""
    for site in (*reach.calls, reach.fact.site):
        if site.path != script.source.path:
            return True
        node = node_at(script.source.tree, site.line, site.column, ast.Call)
        around = script.names.enclosing_function(node) if node else None
        where = around or (script.source.statement_of(node) if node else None)
        if where is None or ASKS.search(script.source.code(where)):
            return True
    return False


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
