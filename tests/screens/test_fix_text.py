"""The parts of a fix as text: code is a block that is never reflowed, and is copied alone."""

import msgspec
import pytest
from ddpwizard.app.fixes.build import FixContext, build_fixes
from ddpwizard.app.fixes.fix_text import fix_lines, short_fix_lines
from ddpwizard.screens.fix.text import STEPS, fix_parts, part_as_text
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
CAUSE = KNOWLEDGE.causes["batchnorm-unsynced"]
FIX = next(fix for fix in build_fixes(CAUSE, FixContext(), KNOWLEDGE) if fix.id == "average-before-evaluation")


def shown() -> list[str]:
    return "\n".join(row.plain for row in fix_parts(FIX, CAUSE)[STEPS]).split("\n")


def test_code_keeps_its_lines_between_empty_ones():
    lines = shown()
    first = lines.index("  for name, buffer in model.module.named_buffers():")
    assert [line.removeprefix("  ") for line in lines[first : first + 3]] == FIX.code.splitlines()
    assert not lines[first - 1]
    assert not lines[first + 3]
    assert lines[first - 2] == "On every rank, before evaluating or saving:"


def test_the_code_alone_is_copied():
    assert part_as_text(FIX, CAUSE, STEPS)[1] == FIX.code + "\n"
    compile(part_as_text(FIX, CAUSE, STEPS)[1], "copied", "exec")


def test_plain_mode_shows_the_code_as_a_block():
    lines = fix_lines(FIX)
    first = lines.index("    for name, buffer in model.module.named_buffers():")
    assert not lines[first - 1]
    assert [line.removeprefix("    ") for line in lines[first : first + 3]] == FIX.code.splitlines()


@pytest.mark.parametrize(
    ("code", "replaced"),
    [
        ("ddpwizard plan --model MODEL --gpus 8", "MODEL"),
        (
            "py-spy dump --subprocesses --pid PID\ntorchrun --rdzv-id=JOB --rdzv-endpoint=HOST:29400 train.py",
            "PID, JOB, HOST",
        ),
        ("docker run IMAGE torchrun train.py   # IMAGE: the one of your job", ""),
        ("CUDA_LAUNCH_BLOCKING=1 torchrun --standalone --nproc-per-node=2 train.py", ""),
        ("export LD_LIBRARY_PATH=$HOST", ""),
    ],
)
def test_words_to_replace_in_code_are_named(code: str, replaced: str):
    named = [f"Replace before you run it: {replaced}."] if replaced else []
    fix = msgspec.structs.replace(FIX, code=code)
    for lines in (fix_lines(fix), short_fix_lines(fix)):
        assert [line.strip() for line in lines if line.strip().startswith("Replace before")] == named
    explained = msgspec.structs.replace(FIX, code="kill PID", text="PID is the number of the process.")
    assert not [line for line in short_fix_lines(explained) if "Replace before" in line]
