"""``ddpwizard undo``: revert the last apply or the one with an id, or report why not in one line."""

import json
from pathlib import Path

import pytest
from ddpwizard.app.fixes.apply import AppliedFix, apply_fix
from ddpwizard.app.fixes.types import FilePatch, Fix
from helpers.command import ddpwizard, refused


@pytest.fixture
def applied(tmp_path: Path) -> AppliedFix:
    """A script that was patched from ``x = 1`` to ``x = 2``."""
    (tmp_path / "t.py").write_text("x = 1\n")
    patch = FilePatch(path=str(tmp_path / "t.py"), before="x = 1\n", after="x = 2\n")
    return apply_fix(Fix(id="patch", cause="port-in-use", title="t", safety="safe", patches=[patch]), tmp_path)


def test_undo_reverts_the_last_apply(applied: AppliedFix) -> None:
    done = ddpwizard("undo")
    assert done.returncode == 0
    assert done.stdout.startswith("Reverted patch, applied ")
    assert done.stdout.endswith(f"id {applied.id}\n  {applied.paths[0]}\n")
    assert Path(applied.paths[0]).read_text() == "x = 1\n"


def test_undo_by_id_as_json(applied: AppliedFix) -> None:
    document = json.loads(ddpwizard("undo", applied.id, "--json").stdout)
    assert document["schema"] == "ddpwizard.undo/1"
    assert (document["id"], document["fix"], document["cause"]) == (applied.id, "patch", "port-in-use")
    assert document["paths"] == applied.paths


def test_second_undo_of_a_fix_is_refused(applied: AppliedFix) -> None:
    assert ddpwizard("undo").returncode == 0
    assert "nothing to take back" in refused(ddpwizard("undo"), 2)
    assert "taken back already" in refused(ddpwizard("undo", applied.id), 2)


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
