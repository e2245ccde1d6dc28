"""Locks and turns under which a statement runs: ranks come there one after another, or only one at a time.

Read from one file: what a function of it takes or releases is followed, what another file does is not.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from .name_resolution import Names
from .rank_names import TURN_CONTEXTS
from .syntax import FUNCTIONS, Function, is_generator, last_name, nodes_of_body

# A file without any of these words has no lock.
WORDS = re.compile(r"lock|mutex|semaphore|acquire|process_first", re.IGNORECASE)
FILE_LOCKS = {"FileLock", "SoftFileLock", "UnixFileLock", "InterProcessLock", "LockFile", "TemporaryFileLock"}
LOCK_MODULES = ("portalocker", "filelock", "fasteners")
FLOCK = ("fcntl.flock", "fcntl.lockf")
LOCK_NAME = re.compile(r"(?:\w*_)?\w*(?:lock|mutex|semaphore)", re.IGNORECASE)
DEPTH = 3  # of functions that take or release a lock


class HeldLock(NamedTuple):
    """A lock, or turns that ranks take.

    ``taken``: the expression that takes it; ``of_ranks``: ranks surely wait there for each other, if they take the same
    one; ``file``: the expression of the file that tells which one, None if there is none.
    """

    taken: ast.expr
    of_ranks: bool
    file: ast.expr | None = None


class _Change(NamedTuple):
    """The lock with this key is taken, or released (None); key "" is every lock. ``closes``: perhaps only a file."""

    key: str
    lock: HeldLock | None = None
    closes: bool = False


# What each statement of a file takes and releases, as each call behind it asks.
_CHANGES: "WeakKeyDictionary[Names, dict[tuple[ast.stmt, int], list[_Change]]]" = WeakKeyDictionary()


def lock_around(names: Names, node: ast.AST, depth: int = DEPTH) -> HeldLock | None:
    """Return the lock or the turn that is surely or perhaps held where a node of the file runs, or None.

    Of several, one by which ranks surely wait for each other is preferred.
    """
    held: dict[str, HeldLock] = {}
    for change in _changes_before(names, node, depth):
        if change.lock:
            held[change.key] = change.lock
        elif change.key:
            held.pop(change.key, None)
        else:
            held.clear()
    around = [*_turns_around(names, node, depth), *held.values()]
    return next((each for each in around if each.of_ranks), around[0] if around else None)


@lru_cache(maxsize=2)
def has_locks(text: str) -> bool:
    """Return whether a text may take a lock; each run of a script asks."""
    return bool(WORDS.search(text))


def _turns_around(names: Names, node: ast.AST, depth: int) -> Iterator[HeldLock]:
    """Yield the locks of the ``with`` statements around a node, innermost first."""
    below, at = node, names.source.parents.get(node)
    while at is not None and not isinstance(below, FUNCTIONS):
        if isinstance(at, ast.With | ast.AsyncWith) and below in at.body:
            yield from filter(None, (_entered(names, item.context_expr, depth) for item in at.items))
        below, at = at, names.source.parents.get(at)


def _entered(names: Names, context: ast.expr, depth: int) -> HeldLock | None:
    """Return the lock that a context manager holds during its block."""
    if last_name(context) in TURN_CONTEXTS:
        return HeldLock(context, True)
    if lock := _made_lock(names, context):
        return lock._replace(taken=context)
    if isinstance(context, ast.Call):
        taken = _own_change(names, context)
        if taken and taken.lock:
            return taken.lock
        function = names.function(context)
        if function and depth and is_generator(function):
            paused = (each for each in nodes_of_body(function) if isinstance(each, ast.Yield))
            found = next(filter(None, (lock_around(names, each, depth - 1) for each in paused)), None)
            return found._replace(taken=context) if found else None
    return HeldLock(context, False) if LOCK_NAME.fullmatch(last_name(context)) else None


def _made_lock(names: Names, node: ast.expr) -> HeldLock | None:
    """Return the lock between processes that an expression makes or names."""
    for each in names.origins(node) if isinstance(node, ast.Name | ast.Attribute) else [node]:
        if not isinstance(each, ast.Call):
            continue
        module, _, name = names.qualified(each.func).rpartition(".")
        if name in FILE_LOCKS or (module.startswith(LOCK_MODULES) and name.endswith("Lock")):
            return HeldLock(node, True, each.args[0] if each.args else None)
    return None


def _changes_before(names: Names, node: ast.AST, depth: int) -> list[_Change]:
    """Return what the statements before a node in its function take and release, in order."""
    parents = names.source.parents
    blocks: list[Sequence[ast.stmt]] = []
    below, at = node, parents.get(node)
    while at is not None and not isinstance(below, FUNCTIONS):
        for name in ("finalbody", "orelse", "body"):
            block = getattr(at, name, None)
            if isinstance(block, list) and below in block:
                blocks.append(block[: block.index(below)])
                if isinstance(at, ast.Try) and name != "body":
                    blocks.append(at.body)
        if isinstance(at, ast.Try) and below in at.handlers:
            blocks.append(at.body)
        below, at = at, parents.get(at)
    return [change for block in reversed(blocks) for stmt in block for change in _changes(names, stmt, depth)]


def _changes(names: Names, stmt: ast.stmt, depth: int) -> list[_Change]:
    """Return what a statement takes and releases, in order."""
    known = _CHANGES.setdefault(names, {})
    changes = known.get((stmt, depth))
    if changes is None:
        changes = known[stmt, depth] = [*_changes_in(names, stmt, depth)]
    return changes


def _changes_in(names: Names, stmt: ast.stmt, depth: int) -> Iterator[_Change]:
    """Yield what a statement takes and releases. What a condition decides is taken only perhaps."""
    if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
        return
    conditional = isinstance(stmt, ast.If | ast.For | ast.AsyncFor | ast.While | ast.Match)
    calls = [each for each in nodes_of_body(stmt) if isinstance(each, ast.Call)]
    for call in sorted(calls, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0)):
        if change := _own_change(names, call) or _change_of_function(names, call, depth):
            lock = change.lock
            yield change._replace(lock=lock and lock._replace(of_ranks=lock.of_ranks and not conditional))
    if isinstance(stmt, ast.With | ast.AsyncWith):
        for item in stmt.items:
            ended = (item.optional_vars, item.context_expr, _receiver(item.context_expr))
            yield from (_Change(_key(each), closes=True) for each in ended if each)


def _own_change(names: Names, call: ast.Call) -> _Change | None:
    """Return what a call itself takes or releases."""
    full, receiver = names.qualified(call.func), _receiver(call)
    if full in FLOCK and len(call.args) > 1:
        asked = ast.unparse(call.args[1])
        if "LOCK_UN" in asked:
            return _Change(_key(call.args[0]))
        if "LOCK_EX" in asked:
            lock = HeldLock(call, "LOCK_NB" not in asked, _opened(names, call.args[0]))
            return _Change(_key(call.args[0]), lock)
        return None
    if full == "portalocker.lock" and call.args:
        return _Change(_key(call.args[0]), HeldLock(call, True, _opened(names, call.args[0])))
    if full == "portalocker.unlock" and call.args:
        return _Change(_key(call.args[0]))
    match last_name(call):
        case "acquire" if receiver is not None:
            made = _made_lock(names, receiver)
            waits = not (call.args or call.keywords)
            return _Change(_key(receiver), HeldLock(call, made is not None and waits, made.file if made else None))
        case "release" | "close" as name if receiver is not None:
            return _Change(_key(receiver), closes=name == "close")
    return None


def _change_of_function(names: Names, call: ast.Call, depth: int) -> _Change | None:
    """Return what a call of a function of the file leaves taken or released."""
    function = names.function(call) if depth else None
    if function is None or is_generator(function):
        return None
    held: dict[str, HeldLock] = {}
    for change in _changes_of(names, function, depth - 1):
        if change.lock:
            held[change.key] = change.lock
        elif held.pop(change.key, None) is None and not change.closes:
            return _Change("")
    taken = next(iter(held.values()), None)
    return _Change(function.name, taken._replace(taken=call)) if taken else None


def _changes_of(names: Names, function: Function, depth: int) -> Iterator[_Change]:
    for stmt in function.body:
        yield from _changes(names, stmt, depth)


def _receiver(node: ast.expr) -> ast.expr | None:
    func = node.func if isinstance(node, ast.Call) else None
    return func.value if isinstance(func, ast.Attribute) else None


def _key(node: ast.expr) -> str:
    """Return what tells a lock from the others: its expression, for a file that of the file itself."""
    if isinstance(node, ast.Call) and last_name(node) == "fileno" and (file := _receiver(node)):
        node = file
    return ast.unparse(node)


def _opened(names: Names, node: ast.expr) -> ast.expr | None:
    """Return the path of an open file."""
    if isinstance(node, ast.Call) and last_name(node) == "fileno" and (file := _receiver(node)):
        node = file
    opened = (each for each in names.origins(node) if isinstance(each, ast.Call) and last_name(each) == "open")
    return next((each.args[0] for each in opened if each.args), None)
