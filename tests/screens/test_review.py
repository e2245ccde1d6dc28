"""The review screen: findings one by one with their patch, as ``git add -p`` goes through changes."""

from pathlib import Path

import pytest
from ddpwizard.app.review.migrations.engine import migrate
from ddpwizard.screens.app import WizardApp
from helpers.migration_scripts_list import SCRIPTS
from helpers.recorded_state import RecordedState
from helpers.screen_pilot import frame, shows, walk

SIZE = (80, 24)
BARRIER = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
FIXED = "import torch.distributed as dist\ndist.barrier()\n"
NO_PATCH = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\nelse:\n    print(1)\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with five scripts; the third finding has no patch."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"a": BARRIER, "b": BARRIER, "c": NO_PATCH, "d": BARRIER, "e": "x = 1\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def changed(project: Path) -> list[str]:
    return [path.name for path in sorted(project.glob("*.py")) if path.read_text() == FIXED]


@walk
async def test_findings_are_accepted_and_skipped_one_by_one_and_undone(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=SIZE) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4  a.py:3  DW401", "patch hoist-collective, unsafe", "+dist.barrier()", "y accept")
        await pilot.press("y")
        await shows(pilot, "2 of 4  b.py:3", "1 accepted, 0 skipped, 3 left")
        await pilot.press("n")
        await shows(pilot, "3 of 4  c.py:3", "no patch, the condition has an else branch")
        assert "y accept  " not in frame(pilot)
        await pilot.press("y", "n")
        await shows(pilot, "4 of 4  d.py:3")
        assert changed(project) == []
        await pilot.press("y")
        await shows(pilot, "2 of 4 applied, in 2 files", "applied hoist-collective (DW401) to d.py", "ddpwizard undo")
        assert changed(project) == ["a.py", "d.py"]
        assert "n skip  " not in frame(pilot)
        await pilot.press("u")
        await shows(pilot, "reverted: 2 files as before", "1 of 4")
        assert changed(project) == []


@walk
async def test_help_lists_the_keys_of_the_review_first(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=SIZE) as pilot:
        await pilot.press(*"a.py", "enter")
        await shows(pilot, "1 of 1  a.py:3  DW401")
        await pilot.press("question_mark")
        await shows(pilot, "Keys")
        listed = [row.split()[0] for row in frame(pilot).partition("Keys")[2].splitlines() if row.strip()]
        assert listed[:5] == ["y", "n", "s", "m", "f"]
        await pilot.press("escape")
        await shows(pilot, "1 of 1  a.py:3  DW401")
        await pilot.press("y")
        await shows(pilot, "1 of 1 applied", "u undo")
        await pilot.press("question_mark")
        await shows(pilot, "Revert the patches that were written")


@walk
async def test_s_stops_and_writes_what_was_accepted(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=SIZE) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4")
        await pilot.press("n")
        await shows(pilot, "2 of 4")
        await pilot.press("y")
        await shows(pilot, "3 of 4")
        await pilot.press("s")
        await shows(pilot, "1 of 4 applied, in 1 file")
        assert changed(project) == ["b.py"]


@walk
async def test_escape_does_not_drop_accepted_patches_without_a_word(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=SIZE) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4")
        await pilot.press("y")
        await shows(pilot, "2 of 4")
        await pilot.press("escape")
        await shows(pilot, "1 accepted, nothing written: s writes them, escape again leaves")
        await pilot.press("escape")
        await shows(pilot, "What is wrong?")
        assert changed(project) == []


@walk
async def test_a_script_is_migrated_after_its_diff_is_shown(project: Path) -> None:
    text = (SCRIPTS / "data_parallel.py").read_text()
    (project / "train.py").write_text(text)
    async with WizardApp(RecordedState(), "review").run_test(size=(80, 40)) as pilot:
        await pilot.press(*"train.py", "space", *"--to", "space", *"ddp", "enter")
        await shows(pilot, "Migrate to ddp", "try it with: torchrun", "+def set_up()", "y write")
        assert (project / "train.py").read_text() == text
        await pilot.press("y")
        await shows(pilot, "migrated train.py to ddp; revert with: ddpwizard undo")
        assert (project / "train.py").read_text() == migrate(text, "train.py", "ddp").after
        await pilot.press("u")
        await shows(pilot, "reverted")
        assert (project / "train.py").read_text() == text


@walk
async def test_a_refused_migration_names_the_place(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=SIZE) as pilot:
        await pilot.press(*"a.py", "enter")
        await shows(pilot, "1 of 1", "m migrate")
        await pilot.press("m")
        await shows(pilot, "Migrate a.py to", "fsdp2: DistributedDataParallel, or one process")
        await pilot.press("3")
        await shows(pilot, "a.py:1: not migrated: no call of backward")
        assert "y write" not in frame(pilot)


@walk
async def test_a_script_without_findings_can_be_migrated(project: Path) -> None:
    (project / "e.py").write_text((SCRIPTS / "data_parallel.py").read_text())
    async with WizardApp(RecordedState(), "review").run_test(size=(80, 40)) as pilot:
        await pilot.press(*"e.py", "enter")
        await shows(pilot, "e.py: none of the", "m migrates the script to DDP")
        await pilot.press("m")
        await shows(pilot, "Migrate e.py to")
        await pilot.press("1")
        await shows(pilot, "Migrate to ddp", "y write")
        await pilot.press("escape", "tab", "!")
        await shows(pilot, "e.py!")


@walk
async def test_stop_without_an_accepted_patch_writes_nothing(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=(60, 20)) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4")
        await pilot.press("s")
        await shows(pilot, "Nothing applied: no patch was accepted.")
        assert changed(project) == []


@walk
async def test_enter_opens_the_fix_of_the_marked_finding(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=(100, 30)) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4  a.py:3")
        await pilot.press("enter")
        await shows(pilot, "Fix 1 of", "--- a/a.py", "+dist.barrier()")
        assert "b.py" not in frame(pilot)
        await pilot.press("escape", "down", "down", "down")
        await shows(pilot, "4 of 4  d.py:3")
        await pilot.press("enter")
        await shows(pilot, "Fix 1 of", "--- a/d.py", "+dist.barrier()")
        assert "a.py" not in frame(pilot)
        await pilot.press("escape", "up")
        await shows(pilot, "3 of 4  c.py:3")
        await pilot.press("enter")
        await shows(pilot, "Fix 1 of", "c.py:3", "No patch: the condition has an else branch")


@walk
async def test_a_changed_file_is_not_patched_as_it_was_reviewed(project: Path) -> None:
    async with WizardApp(RecordedState(), "review").run_test(size=(100, 30)) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4  a.py:3")
        (project / "a.py").write_text("import time\n" + BARRIER.replace("barrier()", "barrier(None)"))
        await pilot.press("enter")
        await shows(pilot, "Fix 1 of", "the file has changed since it was reviewed")


@walk
async def test_findings_are_up_to_date_after_a_file_has_changed(project: Path) -> None:
    state = RecordedState()
    async with WizardApp(state, "review").run_test(size=(100, 30)) as pilot:
        await pilot.press(".", "enter")
        await shows(pilot, "1 of 4  a.py:3")
        case = state.case
        await pilot.press("n")
        await shows(pilot, "2 of 4  b.py:3", "0 accepted, 1 skipped, 3 left")
        await pilot.press("enter")
        await shows(pilot, "Fix 1 of", "--- a/b.py")
        await pilot.press("a")
        await shows(pilot, "Yes, apply it")
        await pilot.press("2")
        await shows(pilot, "applied")
        assert changed(project) == ["b.py"]
        await pilot.press("escape")
        await shows(pilot, "1 of 3  a.py:3")
        await pilot.press("down", "down")
        await shows(pilot, "3 of 3  d.py:3")
        await pilot.press("y")
        await shows(pilot, "1 accepted, 1 skipped, 1 left")
        assert state.case is case
