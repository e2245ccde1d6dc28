"""Settings of review in ``pyproject.toml``."""

from pathlib import Path

import pytest
from ddpwizard.app.review.settings import settings_for

KNOWN = ("DW101", "DW203", "DW401")


def write(directory: Path, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(text)


def test_settings_of_the_nearest_file_with_the_table(tmp_path: Path) -> None:
    write(
        tmp_path,
        '[tool.ddpwizard.review]\nexclude = ["gen/"]\nignore = ["DW101"]\n[tool.ddpwizard.review.severity]\n'
        'DW203 = "info"\n',
    )
    write(tmp_path / "pkg", "[tool.ruff]\nline-length = 100\n")
    settings = settings_for(tmp_path / "pkg", KNOWN)
    assert settings.base == tmp_path
    assert settings.exclude == ("gen/",)
    assert settings.rules(KNOWN) == ["DW203", "DW401"]
    assert settings.severity == {"DW203": "info"}
    assert settings.problems == ()


def test_search_ends_at_the_root_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, '[tool.ddpwizard.review]\nselect = ["DW101"]\n')
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    assert settings_for(tmp_path / "repository", KNOWN).select is None
    assert settings_for(tmp_path, KNOWN).rules(KNOWN) == ["DW101"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("excludes = []", "tool.ddpwizard.review.excludes is no setting"),
        ('exclude = "gen"', "exclude is not a list of texts"),
        ("select = [1]", "select is not a list of texts"),
        ('ignore = ["DW999"]', "ignore: DW999 is no rule"),
        ('severity = "info"', "severity is not a table"),
        ('severity = { DW101 = "fatal" }', "severity.DW101 is none of error, warning, info"),
        ("severity = { DW101 = [] }", "severity.DW101 is none of"),
        ('severity = { DW999 = "info" }', "severity: DW999 is no rule"),
    ],
)
def test_invalid_setting_is_one_line_and_left_out(tmp_path: Path, table: str, problem: str) -> None:
    write(tmp_path, f"[tool.ddpwizard.review]\n{table}\n")
    settings = settings_for(tmp_path, KNOWN)
    (line,) = settings.problems
    assert line.startswith(f"{tmp_path}/pyproject.toml: ")
    assert problem in line
    assert settings.rules(KNOWN) == list(KNOWN)


@pytest.mark.parametrize("text", ["[tool\n", "\xff", "x = 1\n" * 400_000], ids=["TOML", "encoding", "size"])
def test_file_that_cannot_be_read_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    (line,) = settings_for(tmp_path, KNOWN).problems
    assert "pyproject.toml" in line


def test_table_of_another_shape_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, "[tool.ddpwizard]\nreview = 3\n")
    assert "is not a table" in settings_for(tmp_path, KNOWN).problems[0]
    write(tmp_path, "tool = 3\n")
    assert settings_for(tmp_path, KNOWN).problems == ()
