"""``make calibrate`` on generated cases: what a class of evidence is worth, and which clues to remove."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import calibrate
from ddpwizard.knowledge.calibration import Calibration
from ddpwizard.knowledge.schema import Cause, Clue
from helpers.built_in_knowledge import built_in_knowledge

ROOT = Path(__file__).resolve().parents[2]
BUILT_IN = built_in_knowledge()
FIRST, SECOND, THIRD = list(BUILT_IN.causes.values())[:3]


def with_clues(cause: Cause, **clues: Any) -> Cause:
    found = [Clue(all=[word], weight=weight, why="It is odd.") for word, weight in clues.items()]
    return msgspec.structs.replace(cause, clues=found, signatures=[], generic=False, one_process=False)


# "quokka" is right whenever it is used, "wombat" once in five times.
KNOWLEDGE = msgspec.structs.replace(
    BUILT_IN,
    causes={
        FIRST.id: with_clues(FIRST, quokka="moderate"),
        SECOND.id: with_clues(SECOND, wombat="strong"),
        THIRD.id: with_clues(THIRD),
    },
    stems={},
)
SURE = msgspec.structs.replace(
    KNOWLEDGE, causes=KNOWLEDGE.causes | {FIRST.id: with_clues(FIRST, quokka="decisive")}, stems={}
)
ROWS = [
    {
        "id": f"case-{number}",
        "text": "the ranks see a quokka" if number % 2 else "the ranks see a wombat",
        "cause": FIRST.id if number % 2 else (SECOND.id if number % 10 == 0 else THIRD.id),
        "source": f"https://example.org/{number // 4}",
    }
    for number in range(40)
]


@pytest.fixture(scope="module")
def cases() -> list[calibrate.ReadCase]:
    return [calibrate.read_case(row, KNOWLEDGE) for row in ROWS]


def test_precision_of_each_clue_is_counted(cases: list[calibrate.ReadCase]):
    found = {id_: (len(right), sum(right)) for id_, right in calibrate.precision(cases, KNOWLEDGE).items()}
    assert found == {f"clue:{FIRST.id}/0": (20, 20), f"clue:{SECOND.id}/0": (20, 4)}


def test_clue_that_is_wrong_more_often_than_right_is_listed(cases: list[calibrate.ReadCase]):
    assert calibrate.clues_to_remove(calibrate.precision(cases, KNOWLEDGE)) == [f"clue:{SECOND.id}/0"]
    assert calibrate.clues_to_remove({"clue:x/0": [False] * (calibrate.LEAST_FIRES - 1)}) == []


def test_fit_lowers_what_was_wrong_and_raises_what_was_right(cases: list[calibrate.ReadCase]):
    fitted = calibrate.fit(cases, KNOWLEDGE)
    assert fitted.multipliers["moderate clue"] > 1 > fitted.multipliers["strong clue"]
    assert calibrate.loss(cases, KNOWLEDGE, fitted) < calibrate.loss(cases, KNOWLEDGE, Calibration())


def test_prior_of_a_cause_follows_its_share_of_the_cases(cases: list[calibrate.ReadCase]):
    priors = calibrate.priors_of(cases, KNOWLEDGE)  # 20, 4 and 16 cases
    assert priors[FIRST.id] > priors[THIRD.id] > 0 > priors[SECOND.id]
    assert set(calibrate.priors_of([], KNOWLEDGE).values()) == {0.0}
    assert calibrate.priors_of(cases[:1], KNOWLEDGE)[FIRST.id] == 0.0, "no case has it: it may be newer than the labels"


def test_cases_of_one_source_are_in_one_fold(cases: list[calibrate.ReadCase]):
    folds = [calibrate.fold_of(case) for case in cases]
    assert len(set(folds)) > 1
    assert all(len(set(folds[start : start + 4])) == 1 for start in range(0, len(folds), 4))
    assert len(calibrate.cross_validated(cases, KNOWLEDGE, calibrate.fold_of)) == len(cases)


@pytest.mark.parametrize(
    ("text", "also_ok", "kept_out"),
    [
        ("the ranks see a quokka", [FIRST.id], True),
        ("the ranks see a quokka", [SECOND.id], False),
        ("my soup is salty", [], True),
    ],
)
def test_case_about_something_else_is_right_without_a_likely_cause_or_with_an_accepted_one(
    text: str, also_ok: list[str], kept_out: bool
):
    case = calibrate.read_case({"id": "x", "text": text, "cause": "out-of-scope", "also_ok": also_ok}, SURE)
    (outcome,) = calibrate.diagnosed([case], SURE, Calibration())
    assert outcome.is_kept_out == kept_out
    assert calibrate.scores_of([outcome])["out of scope"] == float(kept_out)


@pytest.mark.slow
def test_command_prints_the_figures(tmp_path: Path):
    stored = calibrate.CALIBRATION_FILE.read_bytes()
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for file, cause in zip(files, ("port-in-use", "out-of-scope"), strict=True):
        row = {"id": file.stem, "text": "torchrun: EADDRINUSE", "cause": cause, "source": ""}
        file.write_text(json.dumps(row) + "\n")
    done = subprocess.run(
        [sys.executable, "tests/bench/calibrate.py", *map(str, files)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "clue:port-in-use/0" in done.stdout and "out of scope: " in done.stdout
    assert stored == calibrate.CALIBRATION_FILE.read_bytes(), "written only with --write"
