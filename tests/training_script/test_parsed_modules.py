"""Modules that are parsed once for all scripts that import them."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model import parsed_modules
from ddpwizard.app.training_script.model.parsed_modules import ParsedModule, ParsedModules

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
    path.write_text("nothing = 1\n")
    assert modules.get(path) is None


def test_what_a_review_parsed_is_imported_only_if_the_file_has_its_text(path: Path) -> None:
    modules = ParsedModules()
    reviewed = ParsedModule(ast.parse(RANK))
    modules.keep(path, RANK, reviewed)
    assert modules.get(path) is reviewed
    modules.keep(path, "rank = 2\n", ParsedModule(ast.parse("rank = 2\n")))
    read = modules.get(path)
    assert read and ast.unparse(read.tree) == RANK.strip()


def test_the_modules_that_were_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed_modules, "MOST_PARSED_BYTES", 2 * len(RANK))
    paths = [tmp_path / f"{name}.py" for name in "abc"]
    for path in paths:
        path.write_text(RANK)
    modules = ParsedModules()
    first, second = modules.get(paths[0]), modules.get(paths[1])
    assert modules.get(paths[0]) is first and modules.get(paths[2])
    assert modules.get(paths[0]) is first and modules.get(paths[1]) is not second
