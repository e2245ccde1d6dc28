"""Source of a script: read with its own encoding, with the positions of syntax nodes in the text.

The text is not normalised: newlines, tabs, a byte order mark and the declared encoding stay as they are.
"""

import ast
import io
import re
import tokenize
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

from ..errors import UserError
from ..system.files import read_regular_file
from ..text.python_source import parse_deep
from .edits import Edit
from .newer_syntax import newer_syntax
from .nodes import nodes_below, parents_below

BOM = "\ufeff"
NEWLINE = re.compile(r"\r\n|\r|\n")
LIMIT_BYTES = 20 * 1024 * 1024
# What may be behind the last argument of a call.
CLOSED = re.compile(r"(?P<parentheses>(?:\s*\))*)[ \t]*,?\s*(?:#[^\r\n]*[\r\n]\s*)*\Z")
UNIT = "    "  # one level of indentation, where the script shows no other


def decode_source(data: bytes, path: Path) -> tuple[str, str]:
    """Return the text of a file and its encoding, by byte order mark and coding cookie (PEP 263), else UTF-8.

    Encoding the text again gives the same bytes.

    Raises:
        UserError: The bytes are not text in that encoding, or cannot be written again in it.
    """
    try:
        name = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:
        if "missing" not in error.msg:
            raise UserError(f"{path}: {error.msg}", "save it as UTF-8, or give the right coding line") from error
        name = "utf-8"  # one of the first two lines is not
    name = "utf-8" if name == "utf-8-sig" else name
    try:
        text = data.decode(name)
        if name == "utf-8" or text.encode(name) == data:
            return text, name
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}:{line}: not {name} text (byte 0x{data[error.start]:02x})",
            "save it as UTF-8, or name its encoding in a coding line",
        ) from error
    except (LookupError, UnicodeError):  # rot13, undefined: known to Python, and not for source
        pass
    raise UserError(f"{path}: not source in the encoding {name}", "save it as UTF-8")


def read_source(path: Path) -> tuple[bytes, str, str]:
    """Return the content of a script, its text, and its encoding.

    The text is unchanged, newlines and byte order mark included (as in ``FilePatch.before``).

    Raises:
        UserError: It is missing, not a regular file, too large, not readable, or not text.
    """
    content = read_regular_file(path, LIMIT_BYTES, "give the path of a script that can be read")
    return content, *decode_source(content, path)


def parse(text: str, path: str) -> ast.Module:
    """Parse Python source; a byte order mark is skipped.

    Raises:
        UserError: It is binary, or not valid Python for the version that runs ddpwizard; names the line.
    """
    if "\0" in text:
        raise UserError(f"{path}: a binary file, not a Python script", "give a .py file")
    try:
        return parse_deep(text.removeprefix(BOM))
    except SyntaxError as error:
        place = f"{path}:{error.lineno or 1}"
        if newer := newer_syntax(error):
            raise UserError(f"{place}: {newer}", "install ddpwizard with a newer Python to review it") from error
        raise UserError(f"{place}: not valid Python: {error.msg}", "give a Python 3 script that parses") from error
    except (RecursionError, MemoryError) as error:
        raise UserError(f"{path}: nested too deeply to be read", "split its longest expression") from error
    except ValueError as error:
        raise UserError(f"{path}: cannot be parsed: {error}", "give a Python 3 script that parses") from error


class ScriptSource:
    """A parsed script. Lines count from 1; offsets are characters from the start of ``text``."""

    def __init__(self, text: str, path: str, tree: ast.Module | None = None) -> None:
        """Parse ``text``, unless its ``tree`` is given.

        Raises:
            UserError: It is binary, or not valid Python for the version that runs ddpwizard; names the line.
        """
        self.text, self.path = text, path
        self._shift = len(BOM) if text.startswith(BOM) else 0
        self.tree = tree or parse(text, path)
        self.starts = [0, *(match.end() for match in NEWLINE.finditer(text))]

    @classmethod
    def tolerant(cls, text: str, path: str = "") -> "ScriptSource":
        """Return the source of ``text``, with an empty tree if it cannot be parsed."""
        try:
            return cls(text, path)
        except UserError:
            return cls(text, path, ast.Module(body=[], type_ignores=[]))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        return parents_below(self.tree)

    @cached_property
    def inside_strings(self) -> set[int]:
        """Lines that begin inside a string: their indentation is content."""
        strings = (ast.Constant, ast.JoinedStr)
        return {
            line
            for node in nodes_below(self.tree)
            if isinstance(node, strings) and not (isinstance(node, ast.Constant) and not _is_text(node.value))
            for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
        }

    @property
    def newline(self) -> str:
        """The newline this file uses, by its first line."""
        found = NEWLINE.search(self.text)
        return found[0] if found else "\n"

    @cached_property
    def unit(self) -> str:
        """The white space by which the first block of this file is indented."""
        for node in nodes_below(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body[0].lineno > node.lineno:
                outer, inner = self.indent(node.lineno), self.indent(body[0].lineno)
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :]
        return UNIT

    def one_level(self, indent: str) -> str:
        """Return one more level of indentation for code of this file that is indented like this."""
        if not indent or indent[0] == self.unit[0]:
            return self.unit
        return "\t" if indent[0] == "\t" else UNIT

    def line(self, number: int) -> str:
        """Return a line without its newline; an empty string if there is no such line."""
        if not 0 < number <= len(self.starts):
            return ""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n").removeprefix(BOM)

    def indent(self, number: int) -> str:
        """Return the white space a line begins with."""
        return re.match(r"[ \t\f]*", self.line(number))[0]  # type: ignore[index]

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return the offset of the first character of ``node``."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.arg) -> int:
        """Return the offset behind the last character of ``node``."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def code(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of ``node``."""
        return self.text[self.start(node) : self.end(node)]

    def one_line(self, node: ast.expr) -> str:
        """Return the text of an expression; if it spans several lines, the same code on one line."""
        return self.code(node) if node.lineno == node.end_lineno else ast.unparse(node)

    def column_characters(self, line: int, column_bytes: int) -> int:
        """Return a column that counts UTF-8 bytes, as those of the syntax tree do, in characters; both are from 1."""
        start = self.starts[line - 1] + (self._shift if line == 1 else 0)
        return self._offset(line, column_bytes - 1) - start + 1

    def line_at(self, offset: int) -> int:
        """Return the number of the line that holds ``offset``."""
        return bisect_right(self.starts, offset)

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Return the edit that replaces ``node`` by ``text``."""
        return Edit(self.start(node), self.end(node), text)

    def add_argument(self, call: ast.Call, code: str) -> Edit | None:
        """Return the edit that adds an argument behind the others, or None where that may change what they are."""
        given = [self.end(each) for each in (*call.args, *(keyword.value for keyword in call.keywords))]
        close = self.end(call) - 1
        if not given:
            return Edit(close, close, code)
        end = max(given)
        behind = CLOSED.match(self.text, end, close)
        if end > close or behind is None:  # a generator without parentheses of its own, or a comment
            return None
        return Edit(behind.end("parentheses"), behind.end("parentheses"), f", {code}")

    def insert_line(self, before: int, code: str, indent: str) -> Edit:
        """Return the edit that inserts a line of code before a line."""
        at = self.starts[before - 1] + (self._shift if before == 1 else 0)
        return Edit(at, at, indent + code + self.newline)

    def remove_lines(self, first: int, last: int) -> Edit:
        """Return the edit that removes whole lines."""
        end = self.starts[last] if last < len(self.starts) else len(self.text)
        return Edit(self.starts[first - 1] + (self._shift if first == 1 else 0), end, "")

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """Return the statement that ``node`` is, or is a part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block_of(self, node: ast.AST) -> list[ast.stmt]:
        """Return the block that a statement is in; empty for what is in none."""
        parent = self.parents.get(node)
        blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
        return next((block for block in blocks if isinstance(block, list) and node in block), [])

    def indented(self, stmt: ast.stmt) -> list[Edit]:
        """Return the edits that move the lines of a statement one level in; the inside of texts stays."""
        step = self.one_level(self.indent(stmt.lineno))
        return [
            Edit(self.starts[number - 1], self.starts[number - 1], step)
            for number in range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1)
            if self.line(number).strip() and number not in self.inside_strings
        ]

    def put_below(self, stmt: ast.stmt, header: str) -> list[Edit]:
        """Return the edits that put a statement below a new line, such as ``if test:``, one level in."""
        line = self.insert_line(stmt.lineno, header, self.indent(stmt.lineno))
        first, *rest = self.indented(stmt)
        return [Edit(first.start, first.end, line.text + first.text), *rest]

    def alone(self, stmt: ast.stmt) -> bool:
        """Return whether the lines of ``stmt`` hold nothing else but a comment."""
        before = self.text[self.starts[stmt.lineno - 1] : self.start(stmt)].removeprefix(BOM)
        last = self.line(stmt.end_lineno or stmt.lineno)
        end = self.starts[(stmt.end_lineno or stmt.lineno) - 1]
        after = last[self.end(stmt) - end - (self._shift if stmt.end_lineno == 1 else 0) :].strip()
        return not before.strip() and (not after or after.startswith("#"))

    def first_line_with_comments(self, stmt: ast.stmt, floor: int) -> int:
        """Return the first of the comment lines above ``stmt`` (all below line ``floor``), or its own line."""
        own = min([stmt.lineno, *(node.lineno for node in getattr(stmt, "decorator_list", []))])
        between = range(max(self._code_line_above(own), floor) + 1, own)
        return next((number for number in between if self.line(number).strip()), own)

    def header_end(self, stmt: ast.For | ast.AsyncFor | ast.While | ast.If | ast.With | ast.AsyncWith) -> int:
        """Return the last line of the head (``if …:``) of a compound statement, which may span several."""
        return self._code_line_above(self.first_line_with_comments(stmt.body[0], stmt.lineno))

    def _code_line_above(self, number: int) -> int:
        number -= 1
        while number > 0 and (not self.line(number).strip() or self.line(number).lstrip().startswith("#")):
            number -= 1
        return number

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self.starts[line - 1] + (self._shift if line == 1 else 0)
        # Columns of the syntax tree count UTF-8 bytes.
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        text = self.text[start:end]
        if text.isascii():
            return start + column_bytes
        return start + len(text.encode("utf-8", "surrogatepass")[:column_bytes].decode("utf-8", "surrogatepass"))


def _is_text(value: object) -> bool:
    return isinstance(value, (str, bytes))
