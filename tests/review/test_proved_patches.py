"""Every patch of the review has a script that goes wrong on two ranks, and goes right there with the patch.

The scripts are run by the tests in ``real_jobs``.
"""

import ast
import re
from pathlib import Path

import pytest
from ddpwizard.app.review import patches
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.review.types import ReviewFinding
from helpers.cause_programs import RUN_BY_REVIEW
from helpers.hang_cases import HANGS
from helpers.jobs import SCRIPTS as SCRIPTS_THAT_HANG
from helpers.measured_programs import WITHOUT_PATCH, path_of, read_truth
from helpers.patched_files import SCRIPTS_WITH_PATCH, patched_script
from helpers.patched_scripts import (
    DEVICE,
    GLOBAL_RANK_PASSED,
    LOCAL_RANK_AS_RANK,
    PORT_OF_THE_SCRIPT,
    SCRIPTS,
    WRITER_OF_EACH_NODE,
)
from helpers.review_snippets import KNOWLEDGE, apply_fixes

# What goes wrong without these fixes needs a GPU, or NCCL, or an older checkpoint; and the fix that never has edits.
RULES_NOT_RUN = {"DW102", "DW104", "DW304"}
NOT_RUN = {"gpu-of-rank", "select-gpu", "tensor-on-gpu", "checkpoint-before-wrap", "rejoin-ranks"}
FIX_ID = re.compile(r"[a-z]+(?:-[a-z0-9]+)+")


@pytest.fixture(scope="module")
def proved() -> list[ReviewFinding]:
    """The findings with a patch in all scripts that are run before and after it."""
    texts = [each.text for each in SCRIPTS.values()]
    texts += [DEVICE, GLOBAL_RANK_PASSED, LOCAL_RANK_AS_RANK, PORT_OF_THE_SCRIPT, WRITER_OF_EACH_NODE]
    others = {row.name for row in read_truth()} - WITHOUT_PATCH - SCRIPTS_WITH_PATCH.keys()
    broken = [path_of("broken", name) for name in others]
    files = [file for path in broken for file in ([path] if path.is_file() else path.glob("*.py"))]
    files += [SCRIPTS_THAT_HANG / name for name in {hang.script for hang in HANGS}]
    found = [finding for name in SCRIPTS_WITH_PATCH for finding in patched_script(name)[1]]
    found += [finding for text in texts for finding in apply_fixes(text)[1]]
    found += [finding for file in files for finding in review_file(file, KNOWLEDGE)]
    return [finding for finding in found if finding.fix and finding.fix.edits]


def test_every_rule_with_a_patch_is_proved(proved: list[ReviewFinding]) -> None:
    patched = {rule for rule, spec in KNOWLEDGE.rules.items() if spec.safety != "display"}
    assert patched - {finding.rule for finding in proved} == RULES_NOT_RUN


def test_every_fix_is_proved(proved: list[ReviewFinding]) -> None:
    fixes = {finding.fix.id for finding in proved if finding.fix}
    assert fixes_of_the_review() - fixes == NOT_RUN


def test_causes_whose_patch_is_run(proved: list[ReviewFinding]) -> None:
    assert {finding.cause for finding in proved} == RUN_BY_REVIEW


def fixes_of_the_review() -> set[str]:
    """Return the ids of fixes in the code of the rules and the patches."""
    folder = Path(next(iter(patches.__path__)))
    code = [file.read_text() for file in (*folder.glob("*.py"), *(folder.parent / "rules").glob("*.py"))]
    constants = (node.value for text in code for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    ids = {value for value in constants if isinstance(value, str) and FIX_ID.fullmatch(value)}
    return ids - KNOWLEDGE.causes.keys()
