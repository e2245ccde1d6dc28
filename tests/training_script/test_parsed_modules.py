"""Modules that are parsed once for all scripts that import them."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model import parsed_modules
from ddpwizard.app.training_script.model.function_bodies import count_nodes
from ddpwizard.app.training_script.model.parsed_modules import LONGEST_HELPER, ParsedModule, ParsedModules

RANK = "rank = 1\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "helper.py"
    path.write_text(RANK)
    return path


def test_a_module_is_parsed_once_until_its_file_changes(path: Path) -> None:
    modules = ParsedModules()
    module = modules.get(path)
    assert module and modules.get(path) is module
    path.write_text("world_size = 1\n")
    changed = modules.get(path)
    assert changed and [*changed.bound_by] == ["world_size"]
    path.write_text("def nothing():\n    return 1\n" * LONGEST_HELPER)
    assert modules.get(path) is None


def test_a_short_module_is_parsed_whatever_it_mentions(path: Path) -> None:
    path.write_text("def nothing():\n    return 1\n")
    assert ParsedModules().get(path)


def test_what_a_review_parsed_is_imported_only_if_the_file_has_its_text(path: Path) -> None:
    modules = ParsedModules()
    reviewed = ParsedModule(ast.parse(RANK))
    modules.keep(path, RANK, reviewed)
    assert modules.get(path) is reviewed
    modules.keep(path, "rank = 2\n", ParsedModule(ast.parse("rank = 2\n")))
    read = modules.get(path)
    assert read and ast.unparse(read.tree) == RANK.strip()


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("found = find()\ntry:\n    check()\nexcept ImportError:\n    found = False\n", "found = find()"),
        ("try:\n    found = True\nexcept ImportError:\n    found = False\n", "found = True"),
        ("try:\n    check()\nexcept ImportError:\n    found = False\n", "found = False"),
        ("if old:\n    found = 1\nelse:\n    check()\n    found = 2\n", "found = 2"),
    ],
)
def test_what_a_handler_binds_counts_where_nothing_else_binds_it(text: str, bound: str) -> None:
    assert ast.unparse(ParsedModule(ast.parse(text)).bound_by["found"]) == bound


@pytest.mark.parametrize(
    ("text", "rebound"),
    [
        ("# the global rank\ndef f():\n    x = 'global x'\n", set[str]()),
        ("def f():\n    global x\n    x = 1\n", {"x"}),
        ("def f(): global x; x = 1\n", {"x"}),
        ("def f():\r    y = 1; global\tx\r    x = y\r", {"x"}),
    ],
)
def test_names_that_functions_rebind_are_found_in_every_layout(text: str, rebound: set[str]) -> None:
    assert ParsedModule(ast.parse(text), text).rebound == rebound


FUNCTIONS = """\
import torch.distributed as dist

@decorated(1)
def first(rank=0, *more, key=None, **named):
    text = '''
of several lines'''
    def inner():
        return rank
    return inner() + len(text)

if dist.is_available():
    class Model(Base):
        size = 1

        def forward(self, value):
            # a comment
            for part in value:
                yield part

        async def later(self): \\
            return (yield self.size)
else:
\ttry:
\t\tfrom x import first
\texcept ImportError as error:
\t\tdef third():
\t\t\tglobal rank
\t\t\trank = 1

\t\t\treturn error
"""


def test_the_modules_that_were_used_last_are_kept_whole_and_older_ones_as_outlines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsed_modules, "MOST_NODES", 2 * len(FUNCTIONS) // parsed_modules.BYTES_PER_NODE)
    monkeypatch.setattr(parsed_modules, "MOST_OUTLINE_NODES", count_nodes(ast.parse(FUNCTIONS)) - 1)
    paths = [tmp_path / f"{name}.py" for name in "abcd"]
    for path in paths:
        path.write_text(FUNCTIONS)
    modules = ParsedModules()
    modules.keep(tmp_path / "e.py", FUNCTIONS, ParsedModule(ast.parse(FUNCTIONS)))
    first, second, _ = (modules.get(path) for path in paths[:3])
    outline = modules.get(paths[0])
    assert first and outline and outline is not first
    assert outline.rebound == {"rank"}
    assert "source" in vars(outline.tree.body[1])  # its text only
    assert ast.dump(outline.tree, include_attributes=True) == ast.dump(first.tree, include_attributes=True)
    assert modules.get(paths[3]) and modules.get(paths[1]) is not second
    assert modules.get(paths[0]) is not outline  # the oldest outline is dropped
    assert tmp_path / "e.py" not in modules  # nothing has imported it


def test_a_name_is_what_it_is_where_a_library_is_there() -> None:
    there = "    def begin(name):\n        print(name)\n        return name\n"
    missing = "    def begin(name):\n        raise ImportError(name)\n"
    for text in (f"if FOUND:\n{there}else:\n{missing}", f"if not FOUND:\n{missing}else:\n{there}"):
        bound = ParsedModule(ast.parse(text)).bound_by["begin"]
        assert isinstance(bound, ast.FunctionDef)
        assert len(bound.body) == 2
