"""Every rule with a patch has a script that goes wrong on two ranks, and goes right there with the patch.

The scripts are run by the tests in ``real_jobs``.
"""

from ddpwizard.app.review.file_review import review_file
from helpers.hang_cases import HANGS
from helpers.jobs import SCRIPTS as SCRIPTS_THAT_HANG
from helpers.measured_programs import path_of, read_truth
from helpers.patched_programs import PROGRAMS
from helpers.patched_scripts import DEVICE, LOCAL_RANK_AS_RANK, SCRIPTS, WRITER_OF_EACH_NODE
from helpers.review_snippets import KNOWLEDGE, apply_fixes

ON_GPUS = {"DW102", "DW104"}


def test_every_rule_with_a_patch_is_proved() -> None:
    texts = [each.text for each in (*PROGRAMS.values(), *SCRIPTS.values())]
    texts += [DEVICE, LOCAL_RANK_AS_RANK, WRITER_OF_EACH_NODE]
    broken = (path_of("broken", row.name) for row in read_truth())
    files = [file for path in broken for file in ([path] if path.is_file() else path.glob("*.py"))]
    proved = {finding.rule for text in texts for finding in apply_fixes(text)[1]}
    proved |= {each.rule for file in files for each in review_file(file, KNOWLEDGE) if each.fix and each.fix.edits}
    hangs = (SCRIPTS_THAT_HANG / name for name in {hang.script for hang in HANGS})
    proved |= {each.rule for file in hangs for each in review_file(file, KNOWLEDGE) if each.fix and each.fix.edits}
    patched = {rule for rule, spec in KNOWLEDGE.rules.items() if spec.safety != "display"}
    assert patched - proved == ON_GPUS
