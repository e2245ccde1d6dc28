"""Apply all patches of the review: to the files of a program, and to the long scripts that several tests patch."""

import functools
from collections.abc import Sequence
from pathlib import Path

from ddpwizard.app.review.file_review import findings_in, review_file
from ddpwizard.app.review.review import apply_patches
from ddpwizard.app.review.types import ReviewFinding
from helpers.built_in_knowledge import built_in_knowledge
from helpers.measured_programs import WITHOUT_PATCH, path_of, read_truth
from helpers.patched_programs import PROGRAMS
from helpers.review_snippets import apply_fixes

KNOWLEDGE = built_in_knowledge()
HEAD = """\
# -*- coding: utf-8 -*-
# Größe
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
"""
# What fails is repaired in these, and a mistake behind it is left to a person: the optimizer whose state one rank loads
# (DW225), and the counter of each round (DW480), which no longer matters behind the barrier.
LEFT = {"resume_epochs", "prepared_rounds"}
SCRIPTS_WITH_PATCH = {name: HEAD + program.text for name, program in PROGRAMS.items()} | {
    row.name: path_of("broken", row.name).read_text()
    for row in read_truth()
    if row.name not in WITHOUT_PATCH | LEFT and path_of("broken", row.name).is_file()
}


@functools.cache
def patched_script(name: str) -> tuple[str, Sequence[ReviewFinding]]:
    """Return one of ``SCRIPTS_WITH_PATCH`` with all of its patches, and the findings that are fixed."""
    return apply_fixes(SCRIPTS_WITH_PATCH[name])


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
