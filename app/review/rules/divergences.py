"""DW217, DW401 to DW406: ranks that go through different collectives, by the model of the whole program."""

import ast
import re
from collections.abc import Iterable, Iterator

from ....knowledge.schema import Severity
from ...training_script.model.amounts import is_dealt_out
from ...training_script.model.conditions import makes_on_demand
from ...training_script.model.divergence import Divergence
from ...training_script.model.keys import BY_RANK, LOCAL, RANKS, Key, parts
from ...training_script.model.length_differences import may_differ
from ...training_script.model.lengths import length
from ...training_script.model.members import PAIR
from ...training_script.model.sequences import Event, Site
from ...training_script.nodes import node_at, nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, call_argument, last_name
from ..agreed_on_way import is_agreed_on_way
from ..deciding_branch import DecidingBranch, asks_for_rank
from ..prepared_models import prepares_several
from ..related_places import related_places
from ..rule_context import Script, Violation
from ..worker_loops import served_kinds
from .deciding_values import where_made
from .divergence_patches import divergence_patch
from .divergences_elsewhere import violation_elsewhere
from .divided_parameters import asks_if_divided
from .presence_tests import asks_for_presence

CONFIDENCE = {"DW401": 0.95, "DW402": 0.85, "DW403": 0.8, "DW404": 0.7, "DW405": 0.6, "DW406": 0.55, "DW217": 0.7}
# A condition that tells the libraries apart under which a call of Accelerate communicates from the others.
OF_ENGINE = re.compile(r"distributed_type|deepspeed|fsdp", re.IGNORECASE)
KEEPING = ("cache", "lru_cache")
# A script that counts the ranks itself: those that leave before it makes the group are not in it.
SETS_SIZE = re.compile(r"""environ\[['"]WORLD_SIZE['"]\]\s*=[^=]""")
LENGTH_AND_STEP, LARGE = 3, 8  # arguments of a range; elements of a batch
ROOTS = {"broadcast": ("src", 1), "broadcast_object_list": ("src", 1), "reduce": ("dst", 1)}
WRAPPED = ("of DDP", "of FSDP", "the backward pass")
OF_ACCELERATE = ("accelerator.save_state", "accelerator.get_state_dict")
OF_MESH = ("full_tensor", "distribute_tensor")  # among the ranks that share the tensor, which a condition may pick out


RULES = frozenset(CONFIDENCE)


def check(script: Script) -> Iterator[tuple[str, Violation]]:
    """Yield what violates one of ``RULES``: each place, each way to leave, and each two places that meet once."""
    reported: set[tuple[str, int]] = set()
    left: set[tuple[Site, Site]] = set()
    met: set[tuple[Site, frozenset[Site]]] = set()
    found = sorted([*script.divergences.found, *script.divergences_in_use], key=lambda each: not each.sure)
    served = served_kinds(script) if found else set[str]()
    for each in found:
        if each.first.kind in served or (each.second and each.second.kind in served):
            continue
        if each.rounds == "count" and each.by == BY_RANK and _refuses_rest(script):
            continue
        if is_agreed_on_way(script, each) or _asks_for_root(script, each):
            continue
        if each.leaves and each.by == BY_RANK:
            if (each.decided, each.leaves) in left:
                continue
            left.add((each.decided, each.leaves))
        deciding = DecidingBranch(script, each)
        rule, site = rule_of(deciding.found), deciding.site
        if site is None and (elsewhere := violation_elsewhere(script, each, deciding)):
            if (rule, elsewhere.line) not in reported:
                reported.add((rule, elsewhere.line))
                yield rule, elsewhere
            continue
        if site and (each.by & LOCAL or each.rounds or deciding.chooses_what_runs):
            # What ranks decide by their data, or by how they leave a loop, is to be repaired there.
            site = (_where_decided(script, each.decided) if each.rounds == "count" else None) or each.decided
            site = (where_made(script, each.decided) if each.by & LOCAL else None) or site
        places = (each.decided, frozenset(event.site for event in _events(each)))
        if site and (rule, site.line) not in reported and not (each.second and places in met):
            reported.add((rule, site.line))
            met.add(places)
            yield rule, _violation(script, rule, deciding.found, site, deciding)


def _asks_for_root(script: Script, found: Divergence) -> bool:
    """Return whether ranks part by a number that only its name makes a rank, and that is the root of the collective."""
    branch, site = script.branches.get(found.decided), found.first.site
    call = node_at(script.source.tree, site.line, site.column, ast.Call) if site.path == script.source.path else None
    root = call_argument(call, *ROOTS[found.first.kind]) if call and found.first.kind in ROOTS else None
    key = script.evaluated.value(root) if root else None
    named = {part for part in parts(key) if part.op == "rank" and not part.args[1]} if key else set[Key]()
    asked = {part for part in parts(branch.test) if part.op == "rank"} if branch else set[Key]()
    return bool(asked) and asked <= named


def _where_decided(script: Script, loop: Site) -> Site | None:
    """Return where a branch that only some ranks take assigns a bound of a loop, or a function deals its elements."""
    node = node_at(script.source.tree, loop.line, loop.column, ast.For)
    key = script.evaluated.value(node.iter) if node else None
    if node and key:
        around = script.names.enclosing_function(node)
        shares = [part for part in parts(key) if _is_unequal_share(part)]
        for each in nodes_below(script.source.tree) if shares else ():
            if not isinstance(each, ast.Subscript):
                continue
            inside = script.names.enclosing_function(each)
            if inside and inside is not around and script.evaluated.value(each) in shares:
                return Site(script.source.path, each.lineno, each.col_offset + 1, each.end_lineno or each.lineno)
    chosen = [part for part in parts(key) if part.op == "if" and part.args[0].differs_by & BY_RANK] if key else []
    for stmt in nodes_below(script.source.tree) if chosen else ():
        if not isinstance(stmt, ast.Assign) or not isinstance(script.source.parents.get(stmt), ast.If):
            continue
        value = script.evaluated.value(stmt.value)
        if value and not value.is_constant and any(value in part.args[1:] for part in chosen):
            return Site(script.source.path, stmt.lineno, stmt.col_offset + 1, stmt.end_lineno or stmt.lineno)
    return None


def rule_of(found: Divergence) -> str:
    """Return the rule that a divergence violates."""
    kind = found.first.kind
    if found.by & LOCAL:
        return "DW405" if found.rounds else "DW406"
    if found.rounds:
        return "DW217" if found.rounds == "count" else "DW405"
    if kind.endswith(WRAPPED):
        return "DW402"
    if found.first.implied:
        return "DW403"
    return "DW404" if found.leaves else "DW401"


def _violation(script: Script, rule: str, found: Divergence, site: Site, deciding: DecidingBranch) -> Violation:
    return Violation(
        line=site.line,
        column_bytes=site.column,
        end_line=max([site.end_line, *(node.end_lineno or node.lineno for node in deciding.nodes())]),
        message=_message(script, found, site, deciding),
        confidence=CONFIDENCE[rule] - (0.1 if site != found.first.site else 0),
        severity=_severity(found, script, deciding),
        branch=found.decided.line,
        related=related_places(found),
        patch=lambda: divergence_patch(script, rule, found, deciding, check),
    )


def _message(script: Script, found: Divergence, site: Site, deciding: DecidingBranch) -> str:
    event, line = found.first, found.decided.line
    where = "" if site == event.site else f" ({_shown(event.site, script)})"
    if found.by & LOCAL:
        what = "how often" if found.rounds else "whether"
        by = "data of one rank" if line == site.line else "what this line gives each rank of its own"
        decides = f"line {line} decides by {by} {what} {event.kind}{where} is reached"
        return f"{decides}: ranks may go on differently"
    if found.rounds == "count":
        runs = f"the ranks run the loop of line {line} a different number of times"
        return f"{runs}, and each round needs all: {event.kind}{where}"
    if found.rounds:
        return f"some ranks leave the loop at line {line}, the others go on to {event.kind}{where}"
    if found.second is not None:
        second = f"{found.second.kind} ({_shown(found.second.site, script)})"
        return f"after line {line} one rank calls {event.kind}{where} where another calls {second}"
    who, others = deciding.who
    test = f" (`{deciding.test}`)" if deciding.test else ""
    if deciding.side == "after":
        leave = "leaves" if others == "rank 0" else "leave"
        way = leave if deciding.leaves_surely else "may leave"
        return f"{event.kind}{where} is not reached by all: {others} {way} before it under line {line}{test}"
    direct = [call.event for call in deciding.calls if call.event and call.event.implied == event.implied and not where]
    kinds = list(dict.fromkeys(each.kind for each in (event, *direct)))
    be = "is" if len(kinds) == 1 else "are"
    return f"{_listed(kinds)}{where} {be} reached by {who} alone: line {line} keeps {others} out{test}"


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _raises(script: Script, branch: Site) -> bool:
    """Return whether a branch of the script ends with an error of its own."""
    node = (
        node_at(script.source.tree, branch.line, branch.column, ast.If) if branch.path == script.source.path else None
    )
    return node is not None and isinstance(node.body[-1], ast.Raise)


def _severity(found: Divergence, script: Script, deciding: DecidingBranch) -> Severity | None:
    """Return the severity of a finding, None for that of its rule: the less of it is known, the lower."""
    if not found.first.sure and OF_ENGINE.search(deciding.test):
        return "info"  # the script lets all ranks through where a library communicates in the call
    if found.by & LOCAL and _raises(script, found.decided):
        return "info"  # where what the ranks read is alike, all of them raise or none
    if found.by == LOCAL and (asks_for_presence(script, found) or (found.rounds == "count" and not found.sure)):
        return "info"
    on_demand = not found.sure and deciding.side != "after"
    if (found.first.kind in OF_MESH and not found.sure) or asks_if_divided(script, found.first):
        return "info"
    if found.first.kind.startswith(OF_ACCELERATE) and prepares_several(script):
        return "info"  # under DDP these calls do not communicate
    made = ("constructor",) if _asks_for_member(script, found) else ("constructor", "new_group")
    if any(
        not event.wrapped or event.on_demand or (on_demand and any(word in event.kind for word in made))
        for event in _events(found)
    ):
        return "info"  # the model may not be sharded, or be wrapped already: what is made on demand is made once
    if _is_kept(script, found) or (found.leaves and _sets_size_behind(script, found.leaves)):
        return "info"
    elsewhere = found.first.site.path != script.source.path
    perhaps = found.rounds == "count" and not found.sure
    if found.rounds == "count" and found.by == BY_RANK and _is_share_of_stream(script, found.decided):
        return "info"  # all ranks may get as much
    by_both = found.by == BY_RANK | LOCAL and not _keeps_one_out(script, found) and asks_for_rank(script, found)
    if (elsewhere and (found.leaves or perhaps)) or by_both or _is_lost_in_loop(script, found, deciding):
        return "info"  # other conditions may keep the ranks together
    if elsewhere or not found.first.sure or found.by & LOCAL or found.rounds == "count":
        return "warning"
    behind = deciding.side == "after"
    if behind and not deciding.leaves_surely:
        return "warning"
    if not found.sure and (behind or deciding.site != found.first.site or not deciding.is_known):
        return "warning"
    return None


def _asks_for_member(script: Script, found: Divergence) -> bool:
    """Return whether the ranks part where each asks if it is one of several ranks."""
    branch = script.branches.get(found.decided)
    asked = [part for part in parts(branch.test) if part.op == "compare" and part.args[0] == "In"] if branch else []
    return any(part.args[1].op == "rank" for part in asked)


def _refuses_rest(script: Script) -> bool:
    """Return whether the script ends where the number of ranks does not divide another number."""
    for node in nodes_of_kinds(script.source.tree, ast.Assert, ast.If):
        match node:
            case ast.Assert(test=test):
                pass
            case ast.If(test=test, body=[*_, ast.Raise()]):
                pass
            case _:
                continue
        if any(_is_rest_by_ranks(script, each) for each in ast.walk(test)):
            return True
    return False


def _is_rest_by_ranks(script: Script, node: ast.AST) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mod) or not script.is_world_size(node.right):
        return False
    divided = script.evaluated.value(node.left)
    return divided is not None and any(part.op == "length" for part in parts(divided))


def _is_share_of_stream(script: Script, loop: Site) -> bool:
    """Return whether a loop goes over every n-th element that loops in loops yield, of which the number is not known.

    Batches of files of one size may be as many for each rank. So are those of shares of which one may be longer by an
    element, for most lengths.
    """
    node = node_at(script.source.tree, loop.line, loop.column, ast.For)
    key = script.evaluated.value(node.iter) if node else None
    return key is not None and (any(map(_is_of_nested_loops, parts(key))) or _is_batched(key))


def _is_batched(key: Key) -> bool:
    """Return whether a range counts off batches of the rank's share of a sequence whose length is not known."""
    if key.op != "range" or len(key.args) != LENGTH_AND_STEP:
        return False
    _, stop, step = key.args
    share = stop.args[0] if stop.op == "length" else None
    large = step.is_constant and isinstance(step.value, int) and step.value >= LARGE
    dealt = share is not None and share.op == "item" and share.args[1].op == "slice" and is_dealt_out(share.args[1])
    return bool(large and share and dealt and length(share, PAIR[0]) is None)


def _is_of_nested_loops(key: Key) -> bool:
    """Return whether every n-th element is taken of what loops in loops yield."""
    if key.op != "item" or not is_dealt_out(key.args[1]):
        return False
    held = key.args[0]
    return held.op == "built" and held.args[0] > 1 and length(held, PAIR[0]) is None


def _is_unequal_share(key: Key) -> bool:
    """Return whether a sequence is every n-th of elements, and may be longer on one rank."""
    return key.op == "item" and key.args[1].op == "slice" and is_dealt_out(key.args[1]) and may_differ(key, length)


def _keeps_one_out(script: Script, found: Divergence) -> bool:
    """Return whether the deciding condition surely keeps one of the two ranks out, whatever the data of the other."""
    branch = script.branches.get(found.decided)
    keys = script.evaluated.keys
    return branch is not None and any(keys.specialise(branch.test, RANKS[rank]).is_constant for rank in found.ranks)


def _is_lost_in_loop(script: Script, found: Divergence, deciding: DecidingBranch) -> bool:
    """Return whether data of one rank decide only by what loops of other functions change.

    Of what comes of it there nothing more is known than that it went in, unless the average of it decides.
    """
    branch = script.branches.get(found.decided)
    local = [each for each in parts(branch.test) if each.differs_by & LOCAL] if branch and found.by & LOCAL else []
    sources = [each for each in local if not any(isinstance(arg, Key) and arg.differs_by & LOCAL for arg in each.args)]
    divided = (each.args[1] for each in local if each.op == "binary" and each.args[0] == "Div")
    averaged = {part for each in divided for part in parts(each)}
    return bool(sources) and all(
        each.op == "altered"
        and each not in averaged
        and not (each.args[1] == found.decided.path and each.args[2] in deciding.lines_of_function)
        for each in sources
    )


def _sets_size_behind(script: Script, leaves: Site) -> bool:
    """Return whether the statements behind the place where ranks leave set the number of ranks."""
    around = [
        node.end_lineno or node.lineno
        for node in nodes_of_kinds(script.source.tree, *FUNCTIONS)
        if node.lineno <= leaves.line <= (node.end_lineno or node.lineno)
    ]
    lines = script.source.text.splitlines()[leaves.line : min(around, default=None)]
    return any(SETS_SIZE.search(line) for line in lines)


def _is_kept(script: Script, found: Divergence) -> bool:
    """Return whether a function or a branch on the way keeps its results: what it makes is not made again."""
    lines = [site.line for site in (*found.calls, found.first.site) if site.path == script.source.path]
    return any(
        node.lineno < line <= (node.body[-1].end_lineno or node.lineno)
        for node in nodes_of_kinds(script.source.tree, ast.If, *FUNCTIONS)
        if (isinstance(node, ast.If) and makes_on_demand(node)) or (isinstance(node, FUNCTIONS) and _is_cached(node))
        for line in lines
    )


def _is_cached(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(last_name(each) in KEEPING for each in function.decorator_list)


def _events(found: Divergence) -> list[Event]:
    return [found.first, found.second] if found.second else [found.first]


def _shown(site: Site, script: Script) -> str:
    return f"line {site.line}" if site.path == script.source.path else f"{site.path.rpartition('/')[2]}:{site.line}"
