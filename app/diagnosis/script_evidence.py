"""The review of a training script as evidence of a case."""

from pathlib import Path

from ..review.types import ReviewFinding
from .case import SCRIPT_PATH, Case
from .job_evidence import add_review


def take_script(case: Case, path: Path) -> list[ReviewFinding]:
    """Review a script and add its findings to the case; the case keeps the path.

    Raises:
        UserError: The file is missing, binary, or no Python.
    """
    from ..review.file_review import review_file

    findings = review_file(path, case.knowledge)
    case.answer(SCRIPT_PATH, str(path))
    case.mark_probed("review")
    add_review(case, findings)
    return findings


def review_summary(path: Path, findings: list[ReviewFinding], rules: int) -> str:
    """Return one line on a review: the number of findings, or how many checks found nothing."""
    if not findings:
        return f"{path.name}: none of the {rules} checks found anything; they do not cover everything"
    places = ", ".join(f"{finding.rule} at line {finding.line}" for finding in findings[:3])
    more = f", and {len(findings) - 3} more" if len(findings) > 3 else ""
    return f"{path.name}: {places}{more}"
