"""Read a script with its own encoding, and find places in its text."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.review.patches.apply_edits import apply_edits
from ddpwizard.app.training_script.source import BOM, ScriptSource, decode_source


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"x = 'a'\r\n", "utf-8"),
        ("x = 'größe'\n".encode(), "utf-8"),
        (b"\xef\xbb\xbfx = 1\n", "utf-8"),
        ("# -*- coding: latin-1 -*-\nx = 'größe'\n".encode("latin-1"), "iso-8859-1"),
        ("#!/usr/bin/python\n# vim: fileencoding=cp1252\nx = '€'\n".encode("cp1252"), "cp1252"),
    ],
)
def test_source_is_decoded_with_its_own_encoding_and_back(data: bytes, encoding: str) -> None:
    text, name = decode_source(data, Path("t.py"))
    assert name == encoding
    assert text.encode(name) == data
    ScriptSource(text, "t.py")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = 1\ny = '\xff'\n", "t.py:2: not utf-8 text (byte 0xff)"),
        (b"# coding: martian\nx = 1\n", "unknown encoding"),
        (b"# coding: ascii\nx = '\xe9'\n", "t.py:2: not ascii text"),
        ("x = 1\n".encode("utf-16"), "t.py:1: not utf-8 text (byte 0xff)"),
        *(
            (f"# coding: {name}\nx = 1\n".encode(), f"not source in the encoding {name}")
            for name in ("rot13", "base64", "undefined", "punycode")
        ),
        (b"# coding: unicode_escape\nx = '\\x41'\n", "not source in the encoding unicode_escape"),
    ],
)
def test_undecodable_bytes_are_reported_with_their_line(data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=r"t\.py") as error:
        decode_source(data, Path("t.py"))
    assert message in error.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nprint 'old'\n", "t.py:2: not valid Python"),
        ("x = '\0'\n", "binary"),
        ("(" * 500 + ")" * 500, "t.py"),
    ],
)
def test_unparsable_source_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        ScriptSource(text, "t.py")
    assert message in error.value.message


def test_positions_count_characters_not_bytes() -> None:
    source = ScriptSource(BOM + "größe = 1; x = größe\r\ny = 'ü'; z = größe\r\n", "t.py")
    for stmt in source.tree.body:
        assert isinstance(stmt, ast.Assign)
        assert source.code(stmt.targets[0]) in ("größe", "x", "y", "z")
    assert source.column_characters(1, source.tree.body[1].col_offset + 1) == 12
    assert source.column_characters(2, source.tree.body[-1].col_offset + 1) == 10
    assert source.line(1) == "größe = 1; x = größe"


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("f()", "f(x=1)"),
        ("f(a)", "f(a, x=1)"),
        ("f(a,)", "f(a, x=1,)"),
        ("f((a))", "f((a), x=1)"),
        ("f(b=(a), )", "f(b=(a), x=1, )"),
        ("f(a, b=1)(c)", "f(a, b=1)(c, x=1)"),
        ("f(*a, **b)", "f(*a, **b, x=1)"),
        ("f(\n    a,  # (first)\n)", "f(\n    a, x=1,  # (first)\n)"),
        ("f(a\r\n  # last\r\n)", "f(a, x=1\r\n  # last\r\n)"),
        ("f(a for a in b)", None),
        (f"f((a  {'#' * 100}\n))", None),
    ],
)
def test_an_argument_goes_behind_the_others(call: str, after: str | None) -> None:
    source = ScriptSource(call, "")
    (stmt,) = source.tree.body
    assert isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call)
    edit = source.add_argument(stmt.value, "x=1")
    assert (edit and apply_edits(call, [edit])) == after
