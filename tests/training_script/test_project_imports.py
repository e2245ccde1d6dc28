"""The file of a project that an import names."""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.name_resolution import Names
from ddpwizard.app.training_script.project_imports import ProjectImports
from ddpwizard.app.training_script.source import ScriptSource

FILES = ("pyproject.toml", "top.py", "src/inner/__init__.py", "package/__init__.py", "package/train.py", "package/a.py")


@pytest.mark.parametrize(
    ("name", "level", "expected"),
    [
        ("package.a", 0, ["package/a.py"]),
        ("package", 0, ["package/__init__.py"]),
        ("top", 0, ["top.py"]),
        ("inner", 0, ["src/inner/__init__.py"]),
        ("a", 1, ["package/a.py"]),
        ("", 1, ["package/__init__.py"]),
        ("package.a", 2, ["package/a.py"]),
        ("a", 2, []),
        ("a", 100, []),
        ("torch", 0, []),
    ],
)
def test_an_import_names_a_file_of_the_project(name: str, level: int, expected: list[str], tmp_path: Path):
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    script = tmp_path / "package" / "train.py"
    imports = ProjectImports(script)
    found = [path for path in imports.candidates(name, level, script) if path.is_file()]
    assert found == [tmp_path / each for each in expected]
    assert imports.find(name, level, script) == next(iter(found), None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from . import a\na.f", ".a.f"),
        ("from .a import f\nf", ".a.f"),
        ("from .. import a\na.f", "..a.f"),
        ("from ..a import f as g\ng", "..a.f"),
        ("import a.b\na.b.f", "a.b.f"),
    ],
)
def test_the_name_of_something_imported_has_a_dot_for_each_level(code: str, expected: str):
    names = Names(ScriptSource(code, "/x/train.py"))
    last = names.source.tree.body[-1]
    assert isinstance(last, ast.Expr)
    assert names.qualified(last.value) == expected


@pytest.mark.parametrize(("name", "found"), [("own.a", True), ("other", False)])
def test_an_installed_package_imports_its_own_files_and_no_other_package(name: str, found: bool, tmp_path: Path):
    installed = tmp_path / "lib" / "site-packages"
    for file in ("own/__init__.py", "own/a.py", "other/__init__.py"):
        (installed / file).parent.mkdir(parents=True, exist_ok=True)
        (installed / file).touch()
    script = installed / "own" / "a.py"
    assert bool(ProjectImports(script).find(name, 0, script)) == found


def test_a_link_to_a_missing_file_is_no_module_and_a_missing_directory_holds_none(tmp_path: Path):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "linked.py").symlink_to(tmp_path / "pyproject.toml")
    imports = ProjectImports(tmp_path / "train.py")
    found = [
        imports.find(name, 1, tmp_path / "train.py") for name in ("gone", "linked", "absent.inner", "linked.inner")
    ]
    assert found == [None, tmp_path / "linked.py", None, None]
