"""The programs whose truth is recorded do what the table says, on two ranks over gloo, and end well when patched."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.measured_programs import CHECKS, PROGRAMS, WITHOUT_PATCH, Truth, path_of, read_truth
from helpers.patched_files import patch_program
from helpers.torchrun_server import run_programs

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


def results(folder: Path, programs: list[Path], options: list[str]) -> dict[str, Ran]:
    """Copy programs to a folder, as they write files next to themselves, and return what they do, by their names."""
    folder.mkdir()
    for program in programs:
        (shutil.copytree if program.is_dir() else shutil.copy)(program, folder / program.name)
    codes = run_programs(["--checks", str(CHECKS), *options, str(folder)], folder.parent, limit_s=600)
    return {
        program.removesuffix("/main.py").removesuffix(".py"): Ran(each, (folder / program).with_suffix(""))
        for program, each in codes.items()
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Ran]]:
    """Results of each program, broken and healthy."""
    root = tmp_path_factory.mktemp("programs")
    hanging = [path_of("broken", row.name) for row in TRUTH if row.outcome == "hang"]
    ending = [path_of("broken", row.name) for row in TRUTH if row.outcome != "hang"]
    healthy = [path_of("healthy", row.name) for row in TRUTH]
    with ThreadPoolExecutor(3) as pool:
        hung = pool.submit(results, root / "hanging", hanging, HANGS)
        ended = pool.submit(results, root / "ending", ending, [])
        return {"healthy": results(root / "healthy", healthy, []), "broken": hung.result() | ended.result()}


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
    return results(root / "ran", programs, [])


def outcome(codes: list[int]) -> str:
    """Return what the exit codes of both ranks say; a rank is also killed when the other has failed."""
    from helpers.run_on_two_ranks import CHECK_FAILED  # imports torch, which only the worker with these tests needs

    failed = {code for code in codes if code not in (0, -9)}
    if failed:
        return "wrong" if failed == {CHECK_FAILED} else "crash"
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
