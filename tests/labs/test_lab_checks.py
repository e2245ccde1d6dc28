"""The numbers that a repaired lab leaves: how they are read, and the words of a proof for those that differ."""

import asyncio
import sys
from pathlib import Path

import pytest
from ddpwizard.app.labs.lab_checks import failed_check_text, measured_value
from ddpwizard.app.labs.lab_proof import what_is_missing
from ddpwizard.app.labs.lab_session import LabSession
from ddpwizard.app.labs.workspace import make_workspace
from ddpwizard.knowledge.labs import LabCheck, read_labs
from helpers.built_in_knowledge import built_in_knowledge
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()
LABS = read_labs()
LOSS = LabCheck(what="the loss", pattern=r"loss (?P<value>\S+)", value=0.5, within=0.1)
ROWS = LabCheck(what="the number of rows", file="row-?.txt", pattern=r"^\d+$", value=4, why="two for each rank")


@pytest.mark.parametrize(
    ("check", "output", "files", "value"),
    [
        (LOSS, "loss 3\nloss 0.52\n", {}, 0.52),
        (LOSS, "loss nothing\n", {}, None),
        (LOSS, "", {}, None),
        (ROWS, "7\n", {}, None),
        (ROWS, "7\n", {"row-?.txt": "1\n2\nx 3\n4\n"}, 3),
        (ROWS, "", {"row-?.txt": ""}, 0),
    ],
)
def test_number_is_the_last_value_or_how_often_the_pattern_matches(
    check: LabCheck, output: str, files: dict[str, str], value: float | None
) -> None:
    assert measured_value(check, output, files) == value


def test_words_for_a_number_say_what_it_is_and_why_it_should_be_another_one() -> None:
    assert failed_check_text(LOSS, "loss 2\n", {}) == "the loss is 2 instead of about 0.5"
    assert failed_check_text(LOSS, "", {}) == "the loss is not printed"
    assert (
        failed_check_text(ROWS, "", {"row-?.txt": "1\n"}) == "the number of rows is 1 instead of 4: two for each rank"
    )
    assert failed_check_text(ROWS, "", {}) == "row-?.txt was not written: two for each rank"


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [
        ("for name in '01': open(f'row-{name}.txt', 'w').write('1\\n2\\n')", "proved", "the number of rows is 4"),
        ("open('row-0.txt', 'w').write('1\\n')", "another result", "the number of rows is 1 instead of 4"),
        ("", "another result", "row-?.txt was not written"),
    ],
)
def test_proof_reads_the_files_of_its_own_run(script: str, outcome: str, words: str, tmp_path: Path) -> None:
    directory = tmp_path / "lab"
    directory.mkdir()
    (directory / "train.py").write_text('import os\nprint("trained", os.environ["LOCAL_RANK"])\n')
    lab = replace(
        LABS["bare-python-launch"], directory=directory, launch="python train.py", repaired="trained", checks=[ROWS]
    )
    session = LabSession(lab, KNOWLEDGE, sys.executable, tmp_path / "copy")
    session.script.write_text("open('row-0.txt', 'w').write('1\\n2\\n3\\n4\\n')\nprint(1 / 0)\n")
    asyncio.run(session.start())
    asyncio.run(session.start_original())
    session.show_answer()
    session.script.write_text(f"{script}\nprint('trained well')\n")
    proof = asyncio.run(session.prove())
    assert proof.outcome == outcome and words in proof.what
    assert (outcome == "proved") == ('prints "trained well"' in proof.what)


def test_review_names_what_is_missing_in_a_half_repair(tmp_path: Path) -> None:
    lab = LABS["missing-sampler"]
    make_workspace(lab, tmp_path)
    script = tmp_path / "train.py"
    assert not what_is_missing(lab, tmp_path, KNOWLEDGE), "the findings of the lab itself are its failure"
    half = script.read_text().replace("batch_size=8, shuffle=True", "batch_size=8, sampler=sampler")
    half = half.replace("    loader = ", "    sampler = DistributedSampler(data)\n    loader = ")
    half = half.replace("DataLoader, Dataset\n", "DataLoader, Dataset, DistributedSampler\n")
    script.write_text(half)
    assert "set_epoch of this sampler is not called" in what_is_missing(lab, tmp_path, KNOWLEDGE)
    whole = half.replace("for epoch in range(2):\n", "for epoch in range(2):\n        sampler.set_epoch(epoch)\n")
    script.write_text(whole)
    assert not what_is_missing(lab, tmp_path, KNOWLEDGE)
