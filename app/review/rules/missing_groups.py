"""DW115: calls that need the process group before it is made, or in a program where it is not made for them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ...training_script.collectives import GROUP_PLACE, POINT_TO_POINT
from ...training_script.model.function_steps import Noted
from ...training_script.model.noted_calls import DESTROY, INIT, OF_GROUP
from ...training_script.model.reach import ALL, Reach, Run, argument, together
from ...training_script.model.sequences import Event
from ...training_script.model.users import runs_as_script
from ...training_script.nodes import node_at, nodes_of_kinds
from ...training_script.project_imports import read_module
from ...training_script.syntax import FUNCTIONS, Function, last_name
from ...training_script.torch_classes import DDP_CLASSES, SAMPLER_CLASSES
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

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
ASKS = re.compile(r"is_initialized|is_available|\btry:")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the first call that needs the process group before it is made."""
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
    if not runs_as_script(script.source.text):
        return  # a module, before which a script may make one
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
        if where is None or ASKS.search(script.source.code(where)) or _asks_by_helper(script, where):
            return True
    return False


def _asks_by_helper(script: Script, where: ast.AST) -> bool:
    """Return whether a condition in a part of the script is what a function of the program tells about the group."""
    for call in _calls_in_conditions(script, where):
        function, tree = script.names.function(call), script.source.tree
        called = script.evaluated.value(call.func) if function is None else None
        if called is not None and called.op == "function":
            path, line = called.args
            tree = script.evaluated.tree_of(Path(path)) or tree
            function = next((each for each in nodes_of_kinds(tree, *FUNCTIONS) if each.lineno == line), None)
        if function is not None and _tells_of_group(tree, function, set()):
            return True
    return False


def _calls_in_conditions(script: Script, where: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that are conditions themselves, or parts of one by ``not``, ``and`` and ``or``."""
    pending: list[ast.AST] = [each.test for each in nodes_of_kinds(where, ast.If, ast.IfExp, ast.While, ast.Assert)]
    pending += nodes_of_kinds(where, ast.BoolOp)
    for each in pending:  # which grows meanwhile
        match each:
            case ast.BoolOp(values=values):
                pending += values
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                pending.append(inner)
            case ast.Name():
                pending += [made.value for made in script.names.bindings(each) if isinstance(made.value, ast.Call)]
            case ast.Call():
                yield each
            case _:
                pass


def _tells_of_group(tree: ast.AST, function: Function, seen: set[ast.AST]) -> bool:
    """Return whether a function returns something, makes no group, and asks for one, or another one does for it."""
    seen.add(function)
    calls = {last_name(each.func) for each in nodes_of_kinds(function, ast.Call)}
    returns = any(each.value is not None for each in nodes_of_kinds(function, ast.Return))
    if not returns or INIT.rpartition(".")[2] in calls:
        return False
    others = [each for each in nodes_of_kinds(tree, *FUNCTIONS) if each.name in calls and each not in seen]
    return "is_initialized" in calls or any(_tells_of_group(tree, each, seen) for each in others)
