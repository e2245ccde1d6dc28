"""Ranks that have passed a line, decided from stack samples."""

from pathlib import Path

from ddpwizard.app.fixes.progress_check import ProgressCheck
from ddpwizard.app.fixes.relaunch import Relaunch
from ddpwizard.app.training_script.frame import StackFrame
from helpers.synthetic_job import SCRIPT, report_of, stack

BEFORE = """def validate():
    if rank == 0:
        dist.all_reduce(x)
        print(x)

def main():
    for epoch in range(9):
        train()
        validate()
        dist.barrier()
main()
"""
AFTER = BEFORE.replace("    if rank == 0:\n        dist.all_reduce(x)\n", "    dist.all_reduce(x)\n    if rank == 0:\n")
NOW_AND_THEN = AFTER.replace("        validate()\n", "        if epoch % 3 == 2:\n            validate()\n")
COPY = "/tmp/copy/train.py"


def course(after: str, before: str = BEFORE) -> ProgressCheck:
    call = next(n for n, line in enumerate(before.splitlines(), 1) if "  validate()" in line)
    places = [stack("all_reduce", ("<module>", 99), ("main", call), ("validate", 3))]
    places += [stack("barrier", ("<module>", 99), ("main", call + 1))] * 2
    report = report_of(before, *places)
    relaunch = Relaunch(
        command=[],
        script_index=0,
        script=Path(SCRIPT),
        cwd=Path("/tmp/copy"),
        environ={},
        root=Path(SCRIPT).parent,
        copy=Path("/tmp/copy"),
        files={SCRIPT: after},
    )
    return ProgressCheck(report, relaunch)


def at(*frames: tuple[str, int]) -> list[StackFrame]:
    return [StackFrame(function, COPY, line) for function, line in frames]


def test_rank_behind_the_line_has_passed() -> None:
    seen = course(AFTER)
    seen.see({0: at(("main", 9), ("validate", 4)), 1: at(("main", 10)), 2: at(("main", 8))})
    assert seen.passed == {0, 1}


def test_rank_at_or_before_the_line_has_not_passed() -> None:
    seen = course(AFTER)
    seen.see({0: at(("main", 9), ("validate", 2)), 1: at(("main", 9)), 2: at(("main", 8), ("train", 90))})
    assert seen.passed == set()


def test_rank_seen_at_the_line_and_then_elsewhere_has_passed() -> None:
    seen = course(AFTER)
    seen.see({0: at(("main", 9), ("validate", 2))})
    seen.see({0: at(("main", 8))})
    assert seen.passed == {0}


def test_conditional_line_counts_only_if_the_rank_was_seen_there() -> None:
    before = BEFORE.replace("        validate()\n", "        if epoch % 3 == 2:\n            validate()\n")
    seen = course(NOW_AND_THEN, before)
    seen.see({0: at(("main", 11)), 1: at(("main", 11))})
    assert seen.passed == set()
    seen.see({0: at(("main", 10), ("validate", 2))})
    seen.see({0: at(("main", 11)), 1: at(("main", 11))})
    assert seen.passed == {0}


def test_frames_outside_of_the_copy_are_ignored() -> None:
    seen = course(AFTER)
    seen.see({0: [StackFrame("main", SCRIPT, 10)]})
    assert seen.passed == set()
