"""Scripts as users write them, migrated: what git says to the change, the second migration, what is refused."""

import re
import subprocess
from pathlib import Path

import pytest
from ddpwizard.app.review.migrations.engine import migrate
from ddpwizard.app.review.migrations.targets import TARGETS
from ddpwizard.app.review.review import review_text
from helpers.built_in_knowledge import built_in_knowledge
from helpers.migration_scripts_list import CAN_BE_MIGRATED, SCRIPTS

CANNOT_BE_KEPT = {
    ("iterable_dataset", "ddp"): (20, "IterableDataset"),
    ("iterable_dataset", "resume"): (20, "IterableDataset"),
    ("own_sampler", "ddp"): (13, "sampler"),
    ("two_optimizers", "ddp"): (31, "several optimizers"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_git_takes_the_change_and_a_second_migration_makes_none(target: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in CAN_BE_MIGRATED:
        text = (SCRIPTS / f"{name}.py").read_text()
        script = tmp_path / f"{name}.py"
        script.write_text(text)
        made = migrate(text, f"{name}.py", target)
        assert not made.refusals and made.after != text, name
        compile(made.after, name, "exec")
        checked = subprocess.run(["git", "apply", "-"], input=made.diff(), text=True, cwd=tmp_path, capture_output=True)
        assert checked.returncode == 0, (name, checked.stderr)
        assert script.read_text() == made.after
        assert migrate(made.after, f"{name}.py", target).after == made.after, name


@pytest.mark.parametrize("target", TARGETS)
def test_the_review_has_nothing_against_a_migrated_script(target: str) -> None:
    for name in CAN_BE_MIGRATED:
        made = migrate((SCRIPTS / f"{name}.py").read_text(), f"{name}.py", target)
        found = review_text(made.after, f"{name}.py", built_in_knowledge())
        assert [each for each in found if each.severity != "info" or each.rule == "DW406"] == [], name


def test_rank_0_decides_what_is_computed_with_statistics_of_a_rank() -> None:
    text = (SCRIPTS / "trainer_config.py").read_text()
    before, after = (
        len(re.findall(r"if decided_by_rank_0\(", each))
        for each in (text, migrate(text, "trainer_config.py", "ddp").after)
    )
    assert (before, after) == (0, 1)


@pytest.mark.parametrize(("name", "target"), CANNOT_BE_KEPT)
def test_what_cannot_be_kept_is_refused_with_the_place(name: str, target: str) -> None:
    line, words = CANNOT_BE_KEPT[name, target]
    text = (SCRIPTS / f"{name}.py").read_text()
    refused = migrate(text, f"{name}.py", target)
    assert refused.after == text
    assert [note.line for note in refused.refusals] == [line]
    assert words in refused.refusals[0].message


@pytest.mark.parametrize("target", sorted(TARGETS.keys() - {"resume"}))
def test_batch_normalisation_is_reported(target: str) -> None:
    made = migrate((SCRIPTS / "batch_norm.py").read_text(), "batch_norm.py", target)
    notes = [*made.reports, *made.refusals]
    assert any(note.line == 13 and "BatchNorm" in note.message for note in notes)
