"""Apply all patches of the review to the files of a program."""

from pathlib import Path

from ddpwizard.app.review.file_review import findings_in, review_file
from ddpwizard.app.review.review import apply_patches
from ddpwizard.app.review.types import ReviewFinding
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()


def patch_program(program: Path) -> list[ReviewFinding]:
    """Patch a file, or the files in a folder, and return the findings that are fixed.

    A second review must find none of these, and no patch.
    """
    done: list[ReviewFinding] = []
    for file in sorted(program.glob("*.py")) if program.is_dir() else [program]:
        after, fixed = apply_patches(
            file.read_text(), lambda text, file=file: findings_in(text, str(file), KNOWLEDGE), ("safe", "unsafe")
        )
        file.write_text(after)
        again = review_file(file, KNOWLEDGE) if fixed else []
        assert not {each.rule for each in again} & {each.rule for each in fixed}, after
        done += fixed
    return done
