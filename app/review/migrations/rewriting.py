"""The edits of a migration on one script, its reports, and the functions that it adds."""

import ast
import re
import sys

from ...training_script.edits import Edit
from ...training_script.source import UNIT
from ..patches.apply_edits import apply_edits
from .facts import TrainingFacts
from .helper_code import HelperCode
from .types import Note, Refusal


class Rewriting:
    """Edits of one script, collected in any order."""

    def __init__(self, facts: TrainingFacts, helpers: HelperCode) -> None:
        self.facts, self.helpers = facts, helpers
        self.source = facts.source
        self.reports: list[Note] = []
        self.changed: set[ast.AST] = set()
        self.wrapped_at: ast.stmt | None = None  # the model is wrapped before this statement
        self.wrapped_name: ast.expr | None = None  # the name of the wrapped model
        self.was_conditional = False  # the DataParallel that was there was under a condition
        self._edits: list[Edit] = []
        self._lines: dict[int, list[str]] = {}  # code to insert before a line, in order

    def report(self, node: ast.expr | ast.stmt, message: str) -> None:
        """Report what changes, or what is left to do, at the line of a node."""
        self.reports.append(Note(node.lineno, message))

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Replace a node by other code; inside an f-string too."""
        self.changed.add(node)
        self._edits.append(self._edit_of(node, text))

    def replace_argument(self, keyword: ast.keyword, text: str) -> None:
        """Replace ``name=value`` in a call."""
        value = keyword.value
        start = self.source.text.rindex(keyword.arg or "", 0, self.source.start(value))
        self._edits.append(Edit(start, self.source.end(value), text))

    def add_argument(self, call: ast.Call, text: str) -> None:
        """Add an argument at the end of a call.

        Raises:
            Refusal: Its last argument is a generator without parentheses, or behind a comment in its own.
        """
        edit = self.source.add_argument(call, text)
        if edit is None:
            raise Refusal(call.lineno, f"this call needs {text}: put its last argument on a line without a comment")
        self._edits.append(edit)

    def insert_behind(self, node: ast.expr | ast.arg, text: str) -> None:
        """Insert code right behind a node."""
        at = self.source.end(node)
        self._edits.append(Edit(at, at, text))

    def surround(self, node: ast.expr, before: str, after: str) -> None:
        """Put code around a node, which may be edited itself."""
        self.changed.add(node)
        if (string := self._f_string(node)) is not None:
            edit = self._edit_in_string(string, node, "")
            code = self.source.text[edit.start : edit.end]
            self._edits.append(Edit(edit.start, edit.end, before + code + after))
            return
        start, end = self.source.start(node), self.source.end(node)
        self._edits += [Edit(start, start, before), Edit(end, end, after)]

    def insert_before(self, stmt: ast.stmt, *code: str) -> None:
        """Insert lines of code before the line of a statement, with its indentation."""
        first = min([stmt.lineno, *(each.lineno for each in getattr(stmt, "decorator_list", []))])
        self.insert_at(first, self.source.indent(stmt.lineno), *code)

    def insert_after(self, stmt: ast.stmt, *code: str) -> None:
        """Insert lines of code after a statement, with its indentation."""
        self.insert_at((stmt.end_lineno or stmt.lineno) + 1, self.source.indent(stmt.lineno), *code)

    def insert_at(self, line: int, indent: str, *code: str) -> None:
        """Insert lines of code before a line."""
        self._lines.setdefault(line, []).extend(indent + each if each else "" for each in code)

    def remove(self, stmt: ast.stmt) -> None:
        """Remove the lines of a statement that is alone on them, and the edits in it."""
        self._remove_to(stmt, stmt.end_lineno or stmt.lineno)

    def remove_with_blank_lines(self, stmt: ast.stmt) -> None:
        """Remove a function and the empty lines behind it."""
        last = stmt.end_lineno or stmt.lineno
        while last < len(self.source.starts) and not self.source.line(last + 1).strip():
            last += 1
        self._remove_to(stmt, last)

    def _remove_to(self, stmt: ast.stmt, last: int) -> None:
        removed = self.source.remove_lines(stmt.lineno, last)
        self.changed.update(ast.walk(stmt))
        self._edits = [each for each in self._edits if not removed.start <= each.start < removed.end] + [removed]
        for number in range(stmt.lineno + 1, last + 1):
            self._lines.pop(number, None)

    def surround_call(self, call: ast.Call, before: str, after: str) -> None:
        """Replace what is around the only argument of a call: ``f(x)`` becomes ``before x after``."""
        given = call.args[0]
        self.changed.update((call, call.func))
        self._edits += [
            Edit(self.source.start(call), self.source.start(given), before),
            Edit(self.source.end(given), self.source.end(call), after),
        ]

    def indent(self, block: list[ast.stmt]) -> None:
        """Move statements one level in, with the lines that were inserted between them."""
        first, last = block[0].lineno, block[-1].end_lineno or block[-1].lineno
        for stmt in block:
            self._edits += self.source.indented(stmt)
        for number in range(first + 1, last + 1):
            self._lines[number] = [UNIT + line if line else line for line in self._lines.get(number, [])]

    def changes_lines(self, first: int, last: int) -> bool:
        """Return whether an edit or an inserted line is between two lines."""
        starts = self.source.starts
        begin, end = starts[first - 1], starts[last] if last < len(starts) else len(self.source.text)
        inserted = any(code and first <= number <= last for number, code in self._lines.items())
        return inserted or any(begin <= edit.start < end for edit in self._edits)

    def text(self) -> str:
        """Return the script with all edits, imports and functions."""
        return apply_edits(self.source.text, [*self._insertions(), *self._edits])

    def _insertions(self) -> list[Edit]:
        text = self.source.text
        lines = {number: list(code) for number, code in self._lines.items()}
        place, leading = self._place_of_helpers()
        standard, others = self.helpers.imports(leading)
        functions = "\n\n".join(self.helpers.functions())
        head = "".join(f"{line}\n" for line in others)
        if functions:
            behind = text[self._offset(place) :]
            head += "\n\n" + functions + ("\n\n" if behind.strip() and not behind.startswith("\n\n") else "")
        edits = [Edit(self._offset(place), self._offset(place), self._on_new_line(place, head))] if head else []
        if standard:
            at = self._offset(self._first_import(place))
            edits.insert(0, Edit(at, at, "".join(f"{line}\n" for line in standard) + self._line_between(place)))
        for number, code in lines.items():
            at = self._offset(number)
            edits.append(Edit(at, at, self._on_new_line(number, "".join(f"{line}\n" for line in code))))
        return edits

    def _on_new_line(self, number: int, code: str) -> str:
        at = self._offset(number)
        return "\n" + code if code and at and self.source.text[at - 1] != "\n" else code

    def _offset(self, number: int) -> int:
        starts = self.source.starts
        return starts[number - 1] if number <= len(starts) else len(self.source.text)

    def _place_of_helpers(self) -> tuple[int, dict[str, str]]:
        """Return the line behind the first imports of the script, and what they import, by name."""
        line, leading = 1, dict[str, str]()
        for number, stmt in enumerate(self.source.tree.body):
            docstring = not number and isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
            if isinstance(stmt, ast.Import):
                leading |= {each.asname or each.name: each.name for each in stmt.names}
            elif isinstance(stmt, ast.ImportFrom):
                leading |= {each.asname or each.name: f"{stmt.module}.{each.name}" for each in stmt.names}
            elif not docstring:
                break
            line = (stmt.end_lineno or stmt.lineno) + 1
        return line, leading

    def _first_import(self, otherwise: int) -> int:
        """Return the line of the first import that may have others before it."""
        for stmt in self.source.tree.body:
            if isinstance(stmt, (ast.Import, ast.ImportFrom)) and getattr(stmt, "module", "") != "__future__":
                return stmt.lineno
        return otherwise

    def _line_between(self, otherwise: int) -> str:
        """Return the empty line between imports of the standard library and others, where the others come next."""
        line = self.source.line(self._first_import(otherwise)).split()
        is_standard = len(line) > 1 and line[1].partition(".")[0] in sys.stdlib_module_names
        return "" if is_standard else "\n"

    # ---- f-strings: before Python 3.12 their parts have no places of their own

    def _f_string(self, node: ast.AST) -> ast.JoinedStr | None:
        found = None
        while not isinstance(node, ast.stmt):
            node = self.source.parents[node]
            found = node if isinstance(node, ast.JoinedStr) else found
        return found

    def _edit_of(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        if isinstance(node, ast.expr) and (string := self._f_string(node)) is not None:
            return self._edit_in_string(string, node, text)
        return self.source.replace(node, text)

    def _edit_in_string(self, string: ast.JoinedStr, node: ast.expr, text: str) -> Edit:
        wanted = ast.dump(node)
        same = [each for each in ast.walk(string) if isinstance(each, ast.expr) and ast.dump(each) == wanted]
        tokens = re.findall(r"\w+|[^\w\s]", ast.unparse(node))
        behind = r"\b" if tokens[-1].isidentifier() else ""
        pattern = re.compile(r"(?<![\w.])" + r"\s*".join(map(re.escape, tokens)) + behind)
        start, code = self.source.start(string), self.source.code(string)
        inside = _in_braces(code)
        found = [each for each in pattern.finditer(code) if each.start() in inside]
        if len(found) != len(same):
            raise Refusal(node.lineno, f"the f-string with {ast.unparse(node)} cannot be edited: compute it before")
        at = found[same.index(node)]
        return Edit(start + at.start(), start + at.end(), text)


def _in_braces(code: str) -> set[int]:
    """Return the offsets inside the replacement fields of an f-string."""
    found: set[int] = set()
    depth = opened = 0
    for part in re.finditer(r"\{\{|\}\}|[{}]", code):
        if part[0] == "{":
            opened = opened if depth else part.end()
            depth += 1
        elif part[0] == "}" and depth:
            depth -= 1
            if not depth:
                found.update(range(opened, part.start()))
    return found
