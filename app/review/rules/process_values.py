"""DW113, DW114 and DW414: values that differ between processes, or are texts, where ranks need one number."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.keys import BY_RANK, LOCAL, Key, parts
from ...training_script.model.lengths import number
from ...training_script.model.members import PAIR
from ...training_script.model.noted_calls import MEETING_POINT
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.nodes import nodes_below
from ..rule_context import Script, Violation
from ..side_effects import is_side_effect
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node

RANK = re.compile(r"(?:\w+_)?(?:RANK|PROCID|LOCALID)|(?:\w+_)?(?:WORLD_SIZE|NTASKS)")
OF_ENVIRONMENT = ("environ", "getenv")
HASH_SEED = re.compile("PYTHONHASHSEED")
QUOTED = re.compile(rf"""["'](?:{RANK.pattern})["']""")
READS = ("os.environ.get", "os.getenv", "os.environ.__getitem__")


def check_text(script: Script) -> list[Violation]:
    """DW114: return the ranks that are read as texts and compared with numbers."""
    compared: dict[ast.expr, list[ast.Compare]] = {}
    if not (any(map(script.mentions, OF_ENVIRONMENT)) and script.mentions(QUOTED)):
        return []
    for node in nodes_below(script.source.tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            continue
        sides = node.left, node.comparators[0]
        number = next((each for each in sides if isinstance(each, ast.Constant) and type(each.value) is int), None)
        other = sides[1] if sides[0] is number else sides[0]
        origins = script.names.origins(other) if number is not None else []
        if origins and all(_variable(script, each) for each in origins):
            for each in origins:
                assert isinstance(each, ast.expr)
                compared.setdefault(each, []).append(node)
    found: list[Violation] = []
    for read, tests in compared.items():
        lines = ", ".join(str(line) for line in sorted({test.lineno for test in tests}))
        found.append(
            violation_at_node(
                read,
                f"{_variable(script, read)} is a text here, as the launcher sets it, and compared with a "
                f"number in line {lines}: they are never equal",
                0.9,
                related=[
                    RelatedPlace(path=script.source.path, line=test.lineno, message="it is compared here")
                    for test in tests
                ],
            )
        )
    return found


def _variable(script: Script, node: ast.AST) -> str:
    """Return the variable of the environment that an expression reads as a text, or an empty string."""
    match node:
        case ast.Call(func=func, args=[ast.Constant(value=str() as name), *_]) if script.names.qualified(func) in READS:
            return name if RANK.fullmatch(name) else ""
        case ast.Subscript(value=held, slice=ast.Constant(value=str() as name)):
            return name if script.names.qualified(held) == "os.environ" and RANK.fullmatch(name) else ""
        case _:
            return ""


def check_address(script: Script, run: Run) -> Iterator[Violation]:
    """DW113: yield the addresses and ports at which the ranks are to meet that each process has of its own."""
    later = list(run.of("torch.distributed.init_process_group")) if run.distributed else []
    starts = any(each.started for each in run.reached)  # the ranks, which get what it has found
    for reach, fact in run.of(*(f".{name}" for name in MEETING_POINT)):
        given = fact.values[0].key
        own = (given.differs_by & LOCAL and (reach.started or not starts)) or _is_numbered(run, given)
        if own and reach.several and any(together(reach, init) for init, _ in later):
            yield from violation_at(
                script,
                reach,
                f"each rank sets {fact.name[1:]} to a value of its own: they wait for each other at different places",
                0.85,
            )
    for reach, fact in later:
        method = argument(fact, 1, "init_method")
        if method and ((_is_own(reach, method.key) and (reach.started or not starts)) or _is_numbered(run, method.key)):
            yield from violation_at(
                script,
                reach,
                "each rank passes another address: they wait for each other at different places",
                0.85,
            )


def _is_numbered(run: Run, address: Key) -> bool:
    """Return whether the number of the rank goes into an address, and another one on two ranks of a group."""
    if not address.differs_by & BY_RANK or any(
        part.op == "if" and part.args[0].differs_by & BY_RANK for part in parts(address)
    ):
        return False
    numbers = [part for part in parts(address) if part.op == "binary" and part.differs_by & BY_RANK]
    numbers = numbers or [part for part in parts(address) if part.op == "rank"]
    found = [{number(each, member) for member in PAIR} for each in numbers]
    return any(None not in each and len(each) > 1 for each in found)


def _is_own(reach: Reach, address: Key) -> bool:
    """Return whether each rank makes an address of its own: the rank does not decide which of them makes it."""
    chosen = any(part.op == "if" and part.args[0].differs_by & BY_RANK for part in parts(address))
    return reach.several and bool(address.differs_by & LOCAL) and not chosen


def _is_of_text(call: ast.Call) -> bool:
    """Return whether a call shows that it is given a text."""
    inside = [node for arg in call.args for node in ast.walk(arg)]
    compared = {id(node) for each in inside if isinstance(each, ast.Compare) for node in ast.walk(each)}
    nodes = [node for node in inside if id(node) not in compared]
    return any(
        isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str")
        for node in nodes
    )


def check_hash(script: Script, run: Run) -> Iterator[Violation]:
    """DW414: yield the remainders of hashes by which ranks share something out."""
    if script.mentions(HASH_SEED):
        return
    for reach, fact in run.of("hash"):
        parent = script.source.parents.get(fact.node) if script.is_here(reach) else None
        given = fact.values[0] if fact.values and not _is_of_numbers(fact.node) else None
        rest = parent.right if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mod) else None
        if script.is_here(reach) and _is_shown(script, fact.node):
            continue
        if rest and (script.is_world_size(rest) or _is_of_text(fact.node)) and given and given.key.op != "number":
            yield from violation_at(
                script,
                reach,
                "each process has hash values of its own for texts: what the ranks share out by this is taken twice or "
                "by none",
                0.75,
            )


def _is_shown(script: Script, node: ast.AST) -> bool:
    """Return whether a value is only printed or logged."""
    at = script.source.parents.get(node)
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.Call) and is_side_effect(at):
            return True
        at = script.source.parents.get(at)
    return False


def _is_of_numbers(call: ast.Call) -> bool:
    """Return whether what is hashed is a tuple in which no element is a text by its look: mostly a seed."""
    given = call.args[0] if call.args else None
    texts = (ast.JoinedStr, ast.Call, ast.Constant)
    return isinstance(given, ast.Tuple) and not any(
        isinstance(each, texts) and not (isinstance(each, ast.Constant) and isinstance(each.value, int))
        for each in given.elts
    )
