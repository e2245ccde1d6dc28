"""The patches of a review one by one: what is accepted is written together, and undone together."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.patch_walk import PatchWalk, walk_patches, written_lines
from ddpwizard.app.fixes.undo import undo_fix
from helpers.buggy_script import BUGGY_SCRIPT
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
BARRIER = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
NO_PATCH = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\nelse:\n    print(1)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five files: three with one finding each, one without a patch, one that is no Python."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a": BARRIER, "b": BARRIER, "c": NO_PATCH, "d": BARRIER, "e": "x = 1\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "f.py").write_text("print 1\n")
    return tmp_path


def texts(project: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(project.glob("*.py"))}


def test_accepted_patches_are_written_together_and_undone_together(project: Path) -> None:
    before = texts(project)
    walk = walk_patches(project, KNOWLEDGE)
    assert [walk.position(at) for at in range(4)] == ["1 of 4", "2 of 4", "3 of 4", "4 of 4"]
    assert [each.path for each in walk.skipped_files] == [str(project / "f.py")]
    assert walk.decide(0, True) == 1
    assert walk.decide(1, False) == 2
    assert walk.decide(2, False) == 3
    assert texts(project) == before
    assert walk.decide(3, True) is None
    assert walk.progress() == "2 accepted, 2 skipped, 0 left"
    written = walk.write()
    assert written
    fixed = "import torch.distributed as dist\ndist.barrier()\n"
    assert texts(project) == before | {"a.py": fixed, "d.py": fixed}
    assert written_lines(written) == [
        "applied hoist-collective (DW401) to a.py",
        "applied hoist-collective (DW401) to d.py",
        f"revert with: ddpwizard undo {written.applied.id}",
    ]
    undo_fix(written.applied.id)
    assert texts(project) == before


def test_decision_can_be_changed_until_all_are_written(project: Path) -> None:
    before = texts(project)
    walk = walk_patches(project, KNOWLEDGE)
    walk.decide(0, True)
    walk.decide(0, False)
    assert walk.write() is None
    assert texts(project) == before


def test_finding_without_a_patch_is_not_accepted(project: Path) -> None:
    walk = walk_patches(project / "c.py", KNOWLEDGE)
    assert walk.patch_line(0).startswith("no patch, the condition has an else branch")
    with pytest.raises(UserError, match="no patch"):
        walk.decide(0, True)


def test_file_that_changed_meanwhile_is_left_alone_with_all_others(project: Path) -> None:
    walk = walk_patches(project, KNOWLEDGE)
    walk.decide(0, True)
    walk.decide(3, True)
    (project / "d.py").write_text("# new\n" + BARRIER)
    changed = texts(project)
    with pytest.raises(UserError, match=r"d\.py changed since it was reviewed"):
        walk.write()
    assert texts(project) == changed


def accept(walk: PatchWalk, rules: set[str]) -> None:
    for at, finding in enumerate(walk.findings):
        walk.decide(at, finding.rule in rules)


@pytest.mark.parametrize("rules", [{"DW101"}, {"DW201", "DW203"}, {"DW101", "DW201", "DW203", "DW401"}])
def test_any_choice_of_the_patches_of_one_file_is_made(rules: set[str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(BUGGY_SCRIPT)
    walk = walk_patches(script, KNOWLEDGE)
    accept(walk, rules)
    written = walk.write()
    assert written
    assert {finding.rule for finding in written.done} == rules
    left = {finding.rule for finding in walk_patches(script, KNOWLEDGE).findings}
    assert left == {finding.rule for finding in walk.findings} - rules


def test_patches_that_overlap_are_both_made(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    nested = "        if y:\n            dist.barrier()\n"
    script.write_text(
        "import torch.distributed as dist\ndef f(rank, x, y):\n    if rank == 0:\n        dist.all_reduce(x)\n"
        f"    if rank == 0:\n{nested}"
    )
    walk = walk_patches(script, KNOWLEDGE)
    for at in range(len(walk.findings)):
        walk.decide(at, True)
    written = walk.write()
    assert written
    assert len(written.done) == len(walk.findings) == 2
    assert walk_patches(script, KNOWLEDGE).findings == []
