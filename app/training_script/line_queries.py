"""Look up the code at a line: its statement and calls, and the function, loops and conditions around it."""

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from . import control_flow
from .collectives import POINT_TO_POINT, WAITING_CALLS
from .control_flow import Guard
from .frame import StackFrame
from .frame_scope import FrameScope, ScriptModule
from .source import ScriptSource
from .syntax import Function, called_function_name, contains_line, last_name

if TYPE_CHECKING:
    from .model.frames import StackEvaluation

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.AsyncFor | ast.While | Comprehension


class LineQueries:
    """The code at the lines of one file. If this Python cannot parse the file, only its text is known."""

    def __init__(self, text: str, path: str = "", files: "ScriptFiles | None" = None) -> None:
        self.source = ScriptSource.tolerant(text)
        self.module, self.path, self._files = self.source.tree, path, files
        nodes = list(ast.walk(self.module))  # outer nodes first
        self._functions = [node for node in nodes if isinstance(node, Function)]
        self._statements = [node for node in nodes if isinstance(node, ast.stmt)]
        self._loops = [node for node in nodes if isinstance(node, Loop)]
        self._calls = [node for node in nodes if isinstance(node, ast.Call)]

    def line(self, number: int) -> str:
        """Return the text of one line."""
        return self.source.line(number)

    def statement(self, line: int) -> str:
        """Return the text of the statement at a line; of a compound statement, its header."""
        found = next((node for node in reversed(self._statements) if contains_line(node, line)), None)
        if found is None:
            return self.line(line)
        body = getattr(found, "body", None)
        last = max(body[0].lineno - 1, found.lineno) if isinstance(body, list) and body else found.end_lineno or line
        return "\n".join(self.line(n) for n in range(found.lineno, last + 1))

    def poll_around(self, line: int) -> str:
        """Return the text of the innermost polling loop around a line, or an empty string.

        It communicates nothing: a ``while``, or a ``for`` that retries (``except OSError: time.sleep(delay)``).
        """
        for loop in self.loops(line):
            again = isinstance(loop, ast.While) or any(
                isinstance(node, ast.ExceptHandler) and any(contains_line(inner, line) for inner in node.body)
                for node in ast.walk(loop)
            )
            text = ast.unparse(loop)
            of_a_socket = {"send", "recv"} if "connect" in text else set[str]()
            if again and of_a_socket.issuperset(_collectives_in(loop, self.module)):
                return text
        return ""

    def awaited(self, line: int) -> str | None:
        """Return the collective whose handle a line waits for (``work.wait()``), or None."""
        waits = [
            call.func.value
            for call in self.calls(line)
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("wait", "synchronize")
        ]
        function = self.function_at(line)
        for handle in waits:
            if isinstance(handle, ast.Call) and called_function_name(handle) in WAITING_CALLS:
                return called_function_name(handle)
            if "store" in last_name(handle).lower():
                continue  # a key-value store has a wait() too
            made = [
                called_function_name(call)
                for call in ast.walk(self.module if isinstance(handle, ast.Attribute) else function)
                if isinstance(call, ast.Call) and _is_asynchronous(call)
            ]
            name = handle.id if isinstance(handle, ast.Name) else ""
            own = [
                called_function_name(node.value)
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and _is_asynchronous(node.value)
                and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
            ]
            if own or made:
                return (own or made)[0]
        return None

    def breakpoint_of(self, line: int) -> int | None:
        """Return the line of the ``breakpoint()`` that stopped at a line, or None. Debuggers show the next line."""
        function = self.function_at(line)
        calls = [
            c
            for c in ast.walk(function)
            if isinstance(c, ast.Call) and called_function_name(c) in ("breakpoint", "set_trace")
        ]
        lines = [call.lineno for call in calls if self.function_at(call.lineno) is function]
        before = [each for each in lines if each <= line]
        return max(before) if before else lines[0] if len(lines) == 1 else None

    def registers_exit(self) -> bool:
        """Return whether the file registers an exit handler."""
        return "atexit" in self.source.text

    def calls(self, line: int) -> list[ast.Call]:
        """Return the calls at a line, innermost last."""
        return [node for node in self._calls if contains_line(node, line)]

    def collective_call(self, line: int, name: str) -> ast.Call | None:
        """Return the call of that collective at a line, or None."""
        return next((call for call in self.calls(line) if called_function_name(call) == name), None)

    def function_at(self, line: int) -> ast.AST:
        """Return the innermost function around the line, else the module."""
        return next((node for node in reversed(self._functions) if contains_line(node, line)), self.module)

    def names_around(self, line: int) -> set[str]:
        """Return the name of the class whose method holds the line, else of the function."""
        function = self.function_at(line)
        classes = [node for node in self._statements if isinstance(node, ast.ClassDef) and function in node.body]
        return {node.name for node in classes} or {name for name in [getattr(function, "name", "")] if name}

    def mentions(self, names: set[str]) -> list[int]:
        """Return the lines on which any of these names is used."""
        nodes = ast.walk(self.module) if names else ()
        return [node.lineno for node in nodes if isinstance(node, ast.Name) and node.id in names]

    def scope(self, line: int, function: str, outer: "tuple[FrameScope, int] | None" = None) -> FrameScope:
        """Return the scope of a line. ``outer``: scope and line of the calling frame, for the arguments it passes."""
        here = self.function_at(line)
        caller = None
        if outer and isinstance(here, Function):
            name = function.rpartition(".")[2]
            calls = (node for node in ast.walk(outer[0].function) if isinstance(node, ast.Call))
            named = [call for call in calls if contains_line(call, outer[1]) and called_function_name(call) == name]
            caller = (outer[0], named[0]) if named else None
        return FrameScope(self.script, here, caller)

    @cached_property
    def script(self) -> ScriptModule:
        """The file for the evaluation of its frames, together with the other files of its job."""
        if self._files:
            return ScriptModule(self.path, self.module, self._files.stacks)
        from .model.frames import StackEvaluation

        path = self.path or "script.py"
        return ScriptModule(path, self.module, StackEvaluation({path: self.module}.get))

    def guards(self, line: int, scope: FrameScope) -> list[Guard]:
        """Return the conditions under which the line is reached within its function, innermost first."""
        return control_flow.enclosing_conditions(line, scope)

    def loops(self, line: int) -> list[Loop]:
        """Return the loops around a line within its function, innermost first. A loop's own header is not inside it."""
        function = self.function_at(line)
        loops = [node for node in self._loops if _is_within(node, line) and self.function_at(node.lineno) is function]
        return loops[::-1]

    def iterates(self, line: int) -> bool:
        """Return whether a line is the header of a ``for`` loop, which fetches the next item."""
        return any(isinstance(loop, (ast.For, ast.AsyncFor)) and contains_line(loop.iter, line) for loop in self._loops)

    def is_generator(self, line: int) -> bool:
        """Return whether the innermost function around a line is a generator function."""
        function = self.function_at(line)
        yields = (node.lineno for node in ast.walk(function) if isinstance(node, (ast.Yield, ast.YieldFrom)))
        return isinstance(function, Function) and any(self.function_at(at) is function for at in yields)

    def handlers(self, line: int) -> list[ast.ExceptHandler]:
        """Return the exception handlers around a line after which the program continues, innermost first."""
        tries = [
            node
            for node in ast.walk(self.function_at(line))
            if isinstance(node, ast.Try) and any(contains_line(s, line) for s in node.body)
        ]
        return [
            handler
            for node in reversed(tries)
            for handler in node.handlers
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler))
        ]

    def blocks_of_condition(self, line: int) -> tuple[list[ast.stmt], list[ast.stmt]] | None:
        """Return both blocks of the ``if`` that begins at a line, or None if it has no ``else``."""
        for node in ast.walk(self.module):
            if isinstance(node, ast.If) and node.lineno == line and node.orelse:
                return node.body, node.orelse
        return None


def collectives_in(block: Sequence[ast.stmt], module: ast.Module) -> list[str]:
    """Return the collectives that a block calls, in the order of the text, also through functions of the file."""
    return [name for statement in block for name in _collectives_in(statement, module)]


def _collectives_in(node: ast.AST, module: ast.Module, depth: int = 4) -> list[str]:
    found: list[str] = []
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0)):
        name = called_function_name(call)
        if name in WAITING_CALLS or (name == "backward" and isinstance(call.func, ast.Attribute)):
            found.append(name)
        elif depth:
            functions = [f for f in ast.walk(module) if isinstance(f, Function) and f.name == name]
            found += [n for f in functions[:1] for s in f.body for n in _collectives_in(s, module, depth - 1)]
    return found


def _is_asynchronous(call: ast.Call) -> bool:
    name = called_function_name(call)
    return name in ("isend", "irecv", "batch_isend_irecv") or (
        name in WAITING_CALLS - POINT_TO_POINT and any(keyword.arg == "async_op" for keyword in call.keywords)
    )


def _is_within(loop: Loop, line: int) -> bool:
    if isinstance(loop, Comprehension):
        return contains_line(loop, line)
    return loop.body[0].lineno <= line <= (loop.body[-1].end_lineno or 0)


class ScriptFiles:
    """The files of the user's frames, by path, each parsed when it is first needed."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts, self._parsed = texts, dict[str, LineQueries]()
        self._scopes: dict[tuple[StackFrame, ...], list[FrameScope]] = {}

    @property
    def paths(self) -> list[str]:
        """The files whose text is known."""
        return list(self._texts)

    def __getitem__(self, path: str) -> LineQueries:
        if path not in self._parsed:
            self._parsed[path] = LineQueries(self._texts.get(path, ""), path, self)
        return self._parsed[path]

    @cached_property
    def stacks(self) -> "StackEvaluation":
        """The evaluation of the files for the frames of stacks."""
        from .model.frames import StackEvaluation

        return StackEvaluation(lambda path: self[path].module if path in self._texts else None)

    def scopes(self, frames: Sequence[StackFrame]) -> list[FrameScope]:
        """Return the scope of each frame (outermost first), with the arguments from the frame before."""
        key = tuple(frames)
        if key not in self._scopes:
            before = self.scopes(key[:-1]) if key else []  # stacks of one job have most of their outer frames in common
            outer = (before[-1], key[-2].line) if before else None
            last = [self[key[-1].path].scope(key[-1].line, key[-1].function, outer)] if key else []
            self._scopes[key] = [*before, *last]
        return self._scopes[key]
