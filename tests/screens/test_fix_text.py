"""The parts of a fix as text: code is a block that is never reflowed, and is copied alone."""

from ddpwizard.app.fixes.build import FixContext, build_fixes
from ddpwizard.app.fixes.fix_text import fix_lines
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
