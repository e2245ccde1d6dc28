"""The programs whose truth is recorded do what the table says, on two ranks over gloo, and end well when patched."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers import run_on_two_ranks
from helpers.measured_programs import CHECKS, PROGRAMS, WITHOUT_PATCH, Truth, path_of, read_truth
from helpers.patched_files import patch_program

pytestmark = [pytest.mark.jobs, pytest.mark.long]

TRUTH = read_truth()
# Programs that hang use no processor: all of them run at once, and only they end at the limit.
HANGS = ["--limit-s", "12", "--at-a-time", str(len(TRUTH))]


class Ran(NamedTuple):
    """Exit codes of both ranks, and the folder with their logs."""

    codes: list[int]
    folder: Path

    def __str__(self) -> str:
        logs = [(self.folder / f"{rank}.log").read_text()[-600:] for rank in range(len(self.codes))]
        return "\n".join([str(self.codes), *logs])


def start(folder: Path, programs: list[Path], options: list[str]) -> subprocess.Popen[str]:
    """Copy programs to a folder, as they write files next to themselves, and run them there."""
    folder.mkdir()
    for program in programs:
        (shutil.copytree if program.is_dir() else shutil.copy)(program, folder / program.name)
    command = [sys.executable, run_on_two_ranks.__file__, "--checks", str(CHECKS), *options, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Ran]]:
    """Results of each program, broken and healthy."""
    root = tmp_path_factory.mktemp("programs")
    hanging = [path_of("broken", row.name) for row in TRUTH if row.outcome == "hang"]
    ending = [path_of("broken", row.name) for row in TRUTH if row.outcome != "hang"]
    healthy = [path_of("healthy", row.name) for row in TRUTH]
    jobs = [
        ("broken", root / "hanging", start(root / "hanging", hanging, HANGS)),
        ("broken", root / "ending", start(root / "ending", ending, [])),
        ("healthy", root / "healthy", start(root / "healthy", healthy, [])),
    ]
    ran: dict[str, dict[str, Ran]] = {"broken": {}, "healthy": {}}
    for kind, folder, job in jobs:
        ran[kind] |= results(folder, job)
    return ran


def results(folder: Path, job: subprocess.Popen[str]) -> dict[str, Ran]:
    """Return what the programs of a job did, by their names."""
    output, _ = job.communicate(timeout=600)
    return {
        program.removesuffix("/main.py").removesuffix(".py"): Ran(codes, (folder / program).with_suffix(""))
        for program, codes in json.loads(output).items()
    }


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """Results of each broken program that the review patches, with all of its patches."""
    root = tmp_path_factory.mktemp("patched")
    (root / "texts").mkdir()
    programs: list[Path] = []
    for row in TRUTH:
        program = path_of("broken", row.name)
        copied = root / "texts" / program.name
        (shutil.copytree if program.is_dir() else shutil.copy)(program, copied)
        programs += [copied] if patch_program(copied) else []
    return results(root / "ran", start(root / "ran", programs, []))


def outcome(codes: list[int]) -> str:
    """Return what the exit codes of both ranks say; a rank is also killed when the other has failed."""
    failed = {code for code in codes if code not in (0, -9)}
    if failed:
        return "wrong" if failed == {run_on_two_ranks.CHECK_FAILED} else "crash"
    return "hang" if -9 in codes else "ends well"


@pytest.mark.parametrize("row", TRUTH, ids=lambda row: row.name)
def test_a_broken_program_does_what_is_recorded(row: Truth, ran: dict[str, dict[str, Ran]]) -> None:
    assert outcome(ran["broken"][row.name].codes) == row.outcome, str(ran["broken"][row.name])


@pytest.mark.parametrize("name", [row.name for row in TRUTH])
def test_its_healthy_twin_ends_well(name: str, ran: dict[str, dict[str, Ran]]) -> None:
    assert not any(ran["healthy"][name].codes), str(ran["healthy"][name])


@pytest.mark.parametrize("name", [row.name for row in TRUTH if row.name not in WITHOUT_PATCH])
def test_a_patched_program_ends_well(name: str, patched: dict[str, Ran]) -> None:
    assert not any(patched[name].codes), str(patched[name])


def test_the_others_have_no_patch(patched: dict[str, Ran]) -> None:
    assert not patched.keys() & WITHOUT_PATCH


def test_each_program_has_a_row_and_a_line_of_its_own() -> None:
    for kind in ("broken", "healthy"):
        assert sorted(path.stem for path in (PROGRAMS / kind).iterdir()) == sorted(row.name for row in TRUTH)
    for row in TRUTH:
        broken, healthy = (texts_of(kind, row.name) for kind in ("broken", "healthy"))
        assert broken != healthy, row.name
        assert (PROGRAMS / "broken" / row.file).read_text().splitlines()[row.line - 1].strip(), row.name


def texts_of(kind: str, name: str) -> list[str]:
    """Return the texts of the files of a program."""
    path = path_of(kind, name)
    return [file.read_text() for file in ([path] if path.is_file() else sorted(path.glob("*.py")))]
