"""``ddpwizard undo``: revert the last apply or the one with an id, or report why not in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.fixes.apply import apply_fix
from ddpwizard.app.fixes.records import AppliedFix
from ddpwizard.app.fixes.types import FilePatch, Fix
from helpers.command import ddpwizard, refused
from helpers.pseudo_terminal import Terminal


@pytest.fixture
def applied(tmp_path: Path) -> AppliedFix:
    """A script that was patched from ``x = 1`` to ``x = 2``."""
    (tmp_path / "t.py").write_text("x = 1\n")
    patch = FilePatch(path=str(tmp_path / "t.py"), before="x = 1\n", after="x = 2\n")
    return apply_fix(Fix(id="patch", cause="port-in-use", title="t", safety="safe", patches=[patch]), tmp_path)


def test_undo_reverts_the_last_apply(applied: AppliedFix) -> None:
    done = ddpwizard("undo", "--yes")
    assert done.returncode == 0
    assert done.stdout.startswith("Reverted patch (t), applied ")
    assert done.stdout.endswith(f"id {applied.id}\n  {applied.paths[0]}\n")
    assert Path(applied.paths[0]).read_text() == "x = 1\n"


def test_undo_shows_the_change_first(applied: AppliedFix) -> None:
    shown = ddpwizard("undo", "--yes").stderr
    assert shown.startswith("Reverts patch (t), applied ")
    assert "\n-x = 2\n+x = 1\n" in shown


def test_undo_asks_in_a_terminal(applied: AppliedFix) -> None:
    path = Path(applied.paths[0])
    with Terminal([sys.executable, "-m", "ddpwizard", "undo"]) as terminal:
        terminal.wait_for("Revert it?")
        terminal.send("n", "enter")
        terminal.wait_for("nothing was reverted")
    assert path.read_text() == "x = 2\n"


def test_undo_needs_yes_where_nobody_can_be_asked(applied: AppliedFix) -> None:
    """A script that calls it, or standard input from /dev/null, is no consent."""
    path = Path(applied.paths[0])
    shown = ddpwizard("undo", applied.id)
    assert f"ddpwizard undo {applied.id} --yes" in refused(shown, 2)
    assert "\n-x = 2\n+x = 1\n" in shown.stderr
    assert f"ddpwizard undo {applied.id} --yes" in refused(ddpwizard("undo", "--json"), 2)
    assert path.read_text() == "x = 2\n"


def test_diff_prints_the_patch_alone(applied: AppliedFix) -> None:
    path = Path(applied.paths[0])
    done = ddpwizard("undo", "--diff", cwd=path.parent)
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run(["patch", "-p1"], input=done.stdout, text=True, cwd=path.parent, check=True, capture_output=True)
    assert path.read_text() == "x = 1\n"


@pytest.mark.parametrize("given", [["--diff", "--yes"], ["--list", "--yes"], ["--diff", "--json"], ["--list", "ID"]])
def test_options_that_contradict_each_other_are_refused(applied: AppliedFix, given: list[str]) -> None:
    refused(ddpwizard("undo", *given), 2)
    assert Path(applied.paths[0]).read_text() == "x = 2\n"


def test_list_shows_each_fix_with_its_state(applied: AppliedFix) -> None:
    row = f"{applied.id}  applied  "
    done = ddpwizard("undo", "--list")
    assert row in done.stdout and "patch (t)" in done.stdout and applied.paths[0] in done.stdout
    ddpwizard("undo", "--yes")
    document = json.loads(ddpwizard("undo", "--list", "--json").stdout)
    assert document["schema"] == "ddpwizard.undo-list/1"
    assert [(each["id"], each["state"]) for each in document["fixes"]] == [(applied.id, "taken back")]


def test_undo_by_id_as_json(applied: AppliedFix) -> None:
    document = json.loads(ddpwizard("undo", applied.id, "--yes", "--json").stdout)
    assert document["schema"] == "ddpwizard.undo/1"
    assert (document["id"], document["fix"], document["cause"]) == (applied.id, "patch", "port-in-use")
    assert document["paths"] == applied.paths


def test_second_undo_of_a_fix_is_refused(applied: AppliedFix) -> None:
    assert ddpwizard("undo", "--yes").returncode == 0
    assert "nothing to revert" in refused(ddpwizard("undo"), 2)
    assert "already reverted" in refused(ddpwizard("undo", applied.id), 2)


def test_undo_refuses_a_changed_file(applied: AppliedFix) -> None:
    Path(applied.paths[0]).write_text("x = 3\n")
    line = refused(ddpwizard("undo"), 2)
    assert "was changed since" in line
    assert "the original is in" in line
    assert Path(applied.paths[0]).read_text() == "x = 3\n"


def test_unknown_id_is_a_usage_error(applied: AppliedFix) -> None:
    line = refused(ddpwizard("undo", "nowhere"), 2)
    assert "no apply with the id 'nowhere'" in line
    assert applied.id in line


def test_without_a_state_directory_nothing_was_applied():
    nowhere = {"XDG_STATE_HOME": "/proc/no-such-directory"}
    listed = ddpwizard("undo", "--list", env=nowhere)
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "no fix was applied yet" in listed.stderr
    assert "nothing to revert" in refused(ddpwizard("undo", env=nowhere), 2)
