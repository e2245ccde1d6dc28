"""Functions of a file that run in their own thread and put items into a queue."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from .syntax import Function, called_function_name, last_name

PUTS = ("put", "put_nowait")
DEPTH = 2  # levels of called functions of the same file


class QueueProducer(NamedTuple):
    """A function that a thread runs, the line it begins on, and the names of the queues it puts into."""

    name: str
    line: int
    queues: frozenset[str]


def queue_producers(module: ast.Module) -> list[QueueProducer]:
    """Return the functions that run in threads and fill a queue."""
    functions = {node.name: node for node in ast.walk(module) if isinstance(node, Function)}
    found: list[QueueProducer] = []
    for function in [*_run_methods(module), *(functions[name] for name in _targets(module) if name in functions)]:
        if queues := frozenset(_filled(function, functions, DEPTH)):
            found.append(QueueProducer(function.name, function.lineno, queues))
    return found


def consumed_queue(module: ast.Module, line: int) -> str:
    """Return the name of the queue that a line gets an item from, or an empty string."""
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and node.lineno <= line]
    gets = [
        call for call in calls if called_function_name(call) in ("get", "get_nowait") and (call.end_lineno or 0) >= line
    ]
    return next((last_name(call.func.value) for call in gets if isinstance(call.func, ast.Attribute)), "")


def _targets(module: ast.Module) -> Iterator[str]:
    """Yield the names of the functions passed to ``Thread(target=…)`` and ``executor.submit(…)``."""
    for call in ast.walk(module):
        if isinstance(call, ast.Call):
            if called_function_name(call).endswith("Thread"):
                yield from (last_name(each.value) for each in call.keywords if each.arg == "target")
            if called_function_name(call) == "submit" and call.args:
                yield last_name(call.args[0])


def _run_methods(module: ast.Module) -> Iterator[Function]:
    """Yield the ``run`` methods of classes derived from ``Thread``."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and any(last_name(base).endswith("Thread") for base in node.bases):
            yield from (each for each in node.body if isinstance(each, Function) and each.name == "run")


def _filled(function: Function, functions: dict[str, Function], depth: int) -> Iterator[str]:
    for call in ast.walk(function):
        if not isinstance(call, ast.Call):
            continue
        if called_function_name(call) in PUTS and isinstance(call.func, ast.Attribute):
            yield last_name(call.func.value)
        elif depth and (inner := functions.get(called_function_name(call))) and inner is not function:
            yield from _filled(inner, functions, depth - 1)
