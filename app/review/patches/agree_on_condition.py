"""The patches that let all ranks decide together what each decided by data of its own."""

import ast
import re
from typing import NamedTuple

from ...training_script.control_flow import way_out
from ...training_script.edits import Edit
from ...training_script.model.keys import BY_RANK, LOCAL
from ...training_script.reaching_values import Absent, values_at
from ...training_script.source import ScriptSource
from ...training_script.syntax import FUNCTIONS, last_name
from ...training_script.torch_classes import LOADER_CLASSES
from ..rule_context import Patch, Script, no_patch
from .join_loop import join_loop
from .torch_names import distributed_module, free_name, import_line, tensor_device, torch_module

CONDITION, ROUNDS = "agree-on-condition", "agree-on-rounds"
FLAGS = ("stop", "stop_all", "any_rank_stops")
DECISIONS = ("agreed", "agreed_on_all", "decided_together")
GOES_ON = ("go_on", "go_on_together", "all_go_on")
COUNTS = ("rounds", "common_rounds", "rounds_of_all")
PARTS = ("own_part", "own_items", "items_of_rank")
OF_FILES = ("exists", "is_file", "isfile", "is_dir", "isdir")
LENGTHLESS = re.compile(r"Iterable|webdataset|\byield\b")
OTHER_LIBRARIES = re.compile(r"^\s*(?:import|from) (?:horovod|mpi4py)", re.MULTILINE)
WITH_LENGTH = {"list", "tuple", "sorted", "range", "set", "dict"}
NO_NAMES = "no name for torch.distributed is bound at the top of the script: import it, and reduce the decision"
NO_DEVICE = "the device on which the process group can reduce is not known: reduce the decision on that of this rank"


class Flag(NamedTuple):
    """The names of the modules and of a new variable by which a decision is reduced, and the device of its tensor."""

    distributed: str
    torch: str
    name: str
    device: str
    guarded: bool = True  # the script also runs without a process group


def agreement(source: ScriptSource, line: int, indent: str, value: str, operation: str, flag: Flag) -> list[Edit]:
    """Return the edits that reduce a value over all ranks in front of a line."""
    code = [f"{flag.name} = {flag.torch}.tensor({value}{flag.device})"]
    reduce = f"{flag.distributed}.all_reduce({flag.name}, op={flag.distributed}.ReduceOp.{operation})"
    if flag.guarded:
        code.append(f"if {flag.distributed}.is_initialized():")
        reduce = source.one_level(indent) + reduce
    code.append(reduce)
    return [source.insert_line(line, each, indent) for each in code]


def as_number(source: ScriptSource, test: ast.expr) -> str:
    """Return the code of a condition as a number that can be reduced."""
    code = source.one_line(test)
    plain = isinstance(test, ast.Compare) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))
    return f"float({code})" if plain else f"float(bool({code}))"


def agree_on_condition(script: Script, stmt: ast.If) -> Patch:
    """Return the patch after which all ranks take the same branch of a condition."""
    source = script.source
    if source.text.startswith("elif", source.start(stmt)):
        return no_patch(CONDITION, "it is an elif: decide in a statement of its own, and reduce that over all ranks")
    stops = isinstance(stmt.body[-1], ast.Break | ast.Return) and not stmt.orelse
    flag = reduction_at(script, stmt, FLAGS if stops else DECISIONS)
    if isinstance(flag, str):
        return no_patch(CONDITION, flag)
    all_of_them = _asks_for_file(stmt.test) or _is_about_what_body_reads(stmt)
    edits = agreement(
        source,
        stmt.lineno,
        source.indent(stmt.lineno),
        as_number(source, stmt.test),
        "MIN" if all_of_them else "MAX",
        flag,
    )
    who = "only if it is so on every rank" if all_of_them else "as soon as it is so on one rank"
    return Patch(
        id=CONDITION,
        safety="unsafe",
        why_unsafe=f"all ranks take the branch {who}, and wait for each other to decide",
        edits=[*edits, source.replace(stmt.test, f"{flag.name}.item()")],
    )


def agree_on_rounds(script: Script, loop: ast.For | ast.AsyncFor | ast.While) -> Patch:
    """Return the patch after which all ranks run a loop as often as the rank with the fewest rounds."""
    flag = reduction_at(script, loop, GOES_ON if isinstance(loop, ast.While) else COUNTS)
    if isinstance(flag, str):
        return no_patch(ROUNDS, flag)
    edits = _of_while(script.source, loop, flag) if isinstance(loop, ast.While) else _of_for(script, loop, flag)
    if edits is None:
        why = "the number of rounds is not known before the loop: give every rank the same number"
        return join_loop(script, loop, why) if isinstance(loop, ast.For) else no_patch(ROUNDS, why)
    return Patch(
        id=ROUNDS,
        safety="unsafe",
        why_unsafe="ranks with more rounds than another leave the rest of their data unused",
        edits=edits,
    )


def _of_while(source: ScriptSource, loop: ast.While, flag: Flag) -> list[Edit] | None:
    """Return the edits that reduce the condition in each round."""
    first = loop.body[0]
    if loop.orelse or first.lineno == loop.lineno:
        return None
    line = source.first_line_with_comments(first, source.header_end(loop))
    indent = source.indent(first.lineno)
    return [
        source.replace(loop.test, "True"),
        *agreement(source, line, indent, as_number(source, loop.test), "MIN", flag),
        source.insert_line(line, f"if not {flag.name}.item():", indent),
        source.insert_line(line, f"{source.one_level(indent)}break", indent),
    ]


def _of_for(script: Script, loop: ast.For | ast.AsyncFor, flag: Flag) -> list[Edit] | None:
    """Return the edits that reduce the number of rounds before the loop."""
    source, indent = script.source, script.source.indent(loop.lineno)
    if isinstance(loop, ast.AsyncFor):
        return None
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[first, end, *_]) if script.depends_on_rank(first) and not (
            script.depends_on_rank(end)
        ):
            before = agreement(source, loop.lineno, indent, source.one_line(first), "MAX", flag)
            return [*before, source.replace(first, f"int({flag.name}.item())")]
        case ast.Call(func=ast.Name(id="range"), args=[count], keywords=[]):
            before = agreement(source, loop.lineno, indent, source.one_line(count), "MIN", flag)
            return [*before, source.replace(count, f"int({flag.name}.item())")]
        case ast.Call(func=ast.Name(id="range"), args=[ast.Name() | ast.Constant() as first, ast.Name() as end]):
            rounds = f"{source.code(end)} - {source.code(first)}"
            before = agreement(source, loop.lineno, indent, rounds, "MIN", flag)
            return [*before, source.replace(end, f"{source.code(first)} + int({flag.name}.item())")]
        case _:
            pass
    iterated = _innermost(loop.iter)
    imported = import_line(source, "from itertools import islice")
    if imported is None or not _has_length(script, iterated, loop):
        return None
    edits: list[Edit] = [] if "islice" in script.names.module.bindings else [imported]
    code = source.one_line(iterated)
    if not isinstance(iterated, ast.Name | ast.Attribute):
        part = free_name(script, PARTS)
        if not part:
            return None
        edits.append(source.insert_line(loop.lineno, f"{part} = {code}", indent))
        code = part
    edits += agreement(source, loop.lineno, indent, f"len({code})", "MIN", flag)
    return [*edits, source.replace(iterated, f"islice({code}, int({flag.name}.item()))")]


def _innermost(iterable: ast.expr) -> ast.expr:
    """Return what is iterated inside of ``enumerate`` and of a progress bar."""
    while isinstance(iterable, ast.Call) and last_name(iterable) in ("enumerate", "tqdm", "trange") and iterable.args:
        iterable = iterable.args[0]
    return iterable


def _has_length(script: Script, iterated: ast.expr, loop: ast.stmt) -> bool:
    """Return whether ``len()`` of what is iterated surely works before the loop."""
    if isinstance(iterated, ast.Name | ast.Attribute):
        values = values_at(script.names, iterated, loop)
        return bool(values) and all(
            not isinstance(value, Absent) and isinstance(value, ast.expr) and _gives_length(script, value)
            for value in values
        )
    return _gives_length(script, iterated)


def _gives_length(script: Script, value: ast.expr) -> bool:
    match value:
        case ast.List() | ast.Tuple() | ast.ListComp() | ast.Subscript(slice=ast.Slice()):
            return True
        case ast.Call(func=function):
            full = script.names.qualified(function)
            if full in LOADER_CLASSES:
                return not LENGTHLESS.search(script.source.text)
            return isinstance(function, ast.Name) and not full and function.id in WITH_LENGTH
    return False


def reduction_at(script: Script, stmt: ast.stmt, names: tuple[str, ...]) -> Flag | str:
    """Return how a decision at a statement can be reduced, or why it cannot."""
    distributed, torch = distributed_module(script, stmt), torch_module(script, stmt)
    name = free_name(script, names)
    if not distributed or not torch or not name:
        return NO_NAMES
    if OTHER_LIBRARIES.search(script.source.text):
        return "the ranks communicate by another library: reduce the decision with its allreduce"
    if may_end_apart(script, stmt):
        return "ranks may end the loop around it at different times (join, a generator, other data): decide before it"
    device = tensor_device(script, stmt, torch)
    return NO_DEVICE if device is None else Flag(distributed, torch, name, device)


def may_end_apart(script: Script, stmt: ast.stmt) -> bool:
    """Return whether ranks need not come here equally often.

    That is so in ``with model.join()``, in generators, and in loops of another number of rounds on each rank.
    """
    at: ast.AST | None = script.source.parents.get(stmt)
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.With) and any(last_name(item.context_expr) in ("join", "Join") for item in at.items):
            return True
        if isinstance(at, ast.For) and _rounds_differ(script, at):
            return True
        at = script.source.parents.get(at)
    return at is not None and any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(at))


def _rounds_differ(script: Script, loop: ast.For) -> bool:
    """Return whether the number of rounds of a loop depends on the rank or on its data."""
    place = script.source.path, loop.lineno, loop.col_offset + 1
    amounts = {
        each.amount for run in script.runs for fact in run.reached for each in fact.loops if each.site[:3] == place
    }
    return any(amount.differs_by & (BY_RANK | LOCAL) for amount in amounts)


def _is_about_what_body_reads(stmt: ast.If) -> bool:
    """Return whether a condition asks for a value that its branch reads: a rank without it cannot take the branch."""
    if way_out(stmt.body):
        return False
    asked = {node.id for node in ast.walk(stmt.test) if isinstance(node, ast.Name)}
    read = (node for each in stmt.body for node in ast.walk(each) if isinstance(node, ast.Name))
    return any(node.id in asked and isinstance(node.ctx, ast.Load) for node in read)


def _asks_for_file(test: ast.expr) -> bool:
    """Return whether a condition asks for files that are there: a rank without them cannot take the branch."""
    asked = [node for node in ast.walk(test) if isinstance(node, ast.Call) and last_name(node) in OF_FILES]
    negated = [
        node
        for each in ast.walk(test)
        if isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not)
        for node in ast.walk(each.operand)
    ]
    return any(node not in negated for node in asked)
