"""What a test says on each rank.

Tests are tried on a pretended job of four ranks on two nodes. What is no rank is an *atom*: unknown, but the same on
every rank, so both of its values are tried.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import product

from .names import Names
from .rank_values import RankKind, RankValues, is_constant_default
from .syntax import nodes_of_body

WORLD, PER_NODE = 4, 2
RANKS = range(WORLD)
MOST_ATOMS = 8
MAIN = re.compile(
    r"_?(?:is|am)_(?:the_)?(?:global_|world_|dist_)?(?:main|master|primary|chief|rank_?zero|rank_?0|zero|leader|root)"
    r"(?:_(?:process|rank|proc|worker|node))?|is_(?:world_)?process_zero|is_global_zero"
    r"|(?:main|master|primary|leader)_(?:process|rank|proc|worker)|rank_?(?:zero|0)"
)
LOCAL_MAIN = re.compile(r"_?is_local_(?:main|master)(?:_(?:process|rank))?|is_local_process_zero")
DISTRIBUTED = re.compile(
    r"_?(?:is_|use_|in_|using_)?(?:distributed|ddp|dist|multi_?gpu|multiprocessing_distributed|torchrun|parallel)"
    r"(?:_run|_mode|_training)?"
    r"|is_dist_avail_and_initialized|is_available|is_initialized|is_dist_initialized|is_torchelastic_launched"
)
WORLD_SIZE = re.compile(r"(?:get_)?(?:\w+_)?world_size|num_processes|n_?procs|num_ranks|Get_size")


class RankConditions:
    """Tests on the rank in one file."""

    def __init__(self, names: Names, ranks: RankValues) -> None:
        self.names, self.ranks = names, ranks
        self._mentions: dict[ast.AST, bool] = {}

    def mentions(self, test: ast.expr) -> bool:
        """Whether a rank decides in ``test``, by itself or through a name it stands for."""
        if test not in self._mentions:
            self._mentions[test] = False
            self._mentions[test] = self._mentioned(test)
        return self._mentions[test]

    def _mentioned(self, test: ast.expr) -> bool:
        for node in (test, *nodes_of_body(test)):
            if not isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
                continue
            if self.ranks.rank(node) or self._main(node):
                return True
            if not isinstance(node, ast.Subscript) and any(self.mentions(value) for value in self._stands_for(node)):
                return True
        return False

    def _stands_for(self, node: ast.Name | ast.Attribute | ast.Call) -> list[ast.expr]:
        """What a name is assigned, or a function of the file returns."""
        if isinstance(node, ast.Call):
            function = self.names.function(node)
            found = nodes_of_body(function) if function and function.name != "__init__" else ()
            return [n.value for n in found if isinstance(n, ast.Return) and n.value]
        return [b.value for b in self.names.bindings(node) if b.value and b.kind == "assign" and b.place is None]

    def _main(self, node: ast.AST) -> RankKind | None:
        """Whether ``node`` asks by name if this is the first process: of all, or of its node."""
        target = node.func if isinstance(node, ast.Call) else node
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if isinstance(node, ast.Call) and self.names.function(node) and not MAIN.fullmatch(name):
            return None
        if LOCAL_MAIN.fullmatch(name):
            return "local"
        return "global" if MAIN.fullmatch(name) else None

    def truth(self, test: ast.expr, rank: int, atoms: "UnknownParts", depth: int = 8) -> bool:
        """What ``test`` says on ``rank``, the unknown parts taken from ``atoms``."""
        match test:
            case ast.BoolOp(op=op, values=values):
                parts = [self.truth(value, rank, atoms, depth) for value in values]
                return all(parts) if isinstance(op, ast.And) else any(parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(operand, rank, atoms, depth)
            case ast.Constant(value=value):
                return bool(value)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                known = self._compare(left, op, right, rank)
                if known is not None:
                    return known
                if isinstance(op, (ast.NotEq, ast.IsNot, ast.NotIn)):
                    opposite = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}[type(op)]()
                    return not atoms.value(ast.Compare(left, [opposite], [right]))
                return atoms.value(test)
            case ast.IfExp(test=condition, body=body, orelse=orelse):
                taken = body if self.truth(condition, rank, atoms, depth) else orelse
                return self.truth(taken, rank, atoms, depth)
            case ast.Call(func=ast.Name(id="bool"), args=[inner]):
                return self.truth(inner, rank, atoms, depth)
            case ast.Name() | ast.Attribute() | ast.Call():
                return self._flag(test, rank, atoms, depth)
        return atoms.value(test)

    def _flag(self, test: ast.Name | ast.Attribute | ast.Call, rank: int, atoms: "UnknownParts", depth: int) -> bool:
        number = self.number(test, rank)
        if number is not None:
            return bool(number)
        known = self._definition(test)
        if known is not None and depth:
            return self.truth(known, rank, atoms, depth - 1)
        if first := self._main(test):
            return (rank if first == "global" else rank % PER_NODE) == 0
        target = test.func if isinstance(test, ast.Call) else test
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if DISTRIBUTED.fullmatch(name.lower()):
            return True
        return atoms.value(test)

    def _definition(self, test: ast.Name | ast.Attribute | ast.Call) -> ast.expr | None:
        """The one test on a rank that a flag or a small function stands for, constants left aside."""
        if not isinstance(test, ast.Call) and any(b.kind != "assign" for b in self.names.bindings(test)):
            return None
        left = [value for value in self._stands_for(test) if not is_constant_default(value)]
        return left[0] if len(left) == 1 and self.mentions(left[0]) else None

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr, rank: int) -> bool | None:
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            item, items = self.number(left, rank), [self.number(e, rank) for e in right.elts]
            return None if item is None or None in items else (item in items) == isinstance(op, ast.In)
        a, b = self.number(left, rank), self.number(right, rank)
        if a is None or b is None:
            return None
        match op:
            case ast.Eq() | ast.Is():
                return a == b
            case ast.NotEq() | ast.IsNot():
                return a != b
            case ast.Lt():
                return a < b
            case ast.LtE():
                return a <= b
            case ast.Gt():
                return a > b
            case ast.GtE():
                return a >= b
        return None

    def number(self, expr: ast.expr, rank: int) -> int | None:
        """The number ``expr`` is on ``rank`` of the pretended job, if that can be told."""
        match expr:
            case ast.Constant(value=bool()):
                return None
            case ast.Constant(value=int(value)):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.number(operand, rank)
                return None if inner is None else -inner
            case ast.BinOp(left=left, op=op, right=right):
                found = self.ranks.rank(expr)
                if found:
                    return _of(found.kind, rank)
                a, b = self.number(left, rank), self.number(right, rank)
                return None if a is None or b is None else _arithmetic(a, op, b)
            case ast.Name() | ast.Attribute() | ast.Call() | ast.Subscript():
                found = self.ranks.rank(expr)
                return _of(found.kind, rank) if found else self._size(expr)
        return None

    def _size(self, expr: ast.expr) -> int | None:
        if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "int" and expr.args:
            return self._size(expr.args[0])
        if "WORLD_SIZE" in ast.unparse(expr) and not isinstance(expr, ast.Name):
            return PER_NODE if "LOCAL_WORLD_SIZE" in ast.unparse(expr) else WORLD
        target = expr.func if isinstance(expr, ast.Call) else expr
        name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""
        if WORLD_SIZE.fullmatch(name) and not (isinstance(expr, ast.Call) and (expr.args or expr.keywords)):
            return PER_NODE if "local" in name.lower() else WORLD
        return None


class UnknownParts:
    """The unknown parts of tests, each with a value that is tried; a part met for the first time is noted."""

    def __init__(self, values: Mapping[str, bool]) -> None:
        self.values = values
        self.met: set[str] = set()

    def value(self, test: ast.expr) -> bool:
        key = ast.unparse(test)
        self.met.add(key)
        return self.values.get(key, True)


def truth_assignments(atoms: set[str]) -> Iterator[dict[str, bool]]:
    """Every way the atoms can be, all true first; nothing where they are too many to try."""
    ordered = sorted(atoms)
    if len(ordered) <= MOST_ATOMS:
        for values in product((True, False), repeat=len(ordered)):
            yield dict(zip(ordered, values, strict=True))


def _of(kind: RankKind, rank: int) -> int | None:
    match kind:
        case "global":
            return rank
        case "local":
            return rank % PER_NODE
        case "node":
            return rank // PER_NODE
    return None


def _arithmetic(a: int, op: ast.operator, b: int) -> int | None:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Mod() if b:
            return a % b
        case ast.FloorDiv() if b:
            return a // b
    return None
