"""The review of a training script as evidence of a case."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import UserError
from ..evidence import SCRIPT_ERROR
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
    take_findings(case, path, findings)
    return findings


def add_divergences(case: Case, path: Path) -> None:
    """Add the findings on collectives that the ranks of a script do not reach alike, unless the log shows an error of
    the script. A script that cannot be read adds nothing."""
    from ..review.file_review import findings_in
    from ..review.rules.divergences import RULES
    from ..training_script.source import read_source

    if not any(item.id == SCRIPT_ERROR for item in case.evidence):
        with suppress(UserError):
            add_review(case, findings_in(read_source(path)[1], str(path), case.knowledge, RULES))


def take_findings(case: Case, path: Path, findings: Sequence[ReviewFinding]) -> None:
    """Add the findings of a review to the case, which keeps the path if it is that of a script."""
    if not path.is_dir():
        case.answer(SCRIPT_PATH, str(path))
    case.mark_probed("review")
    add_review(case, findings)


def review_summary(path: Path, findings: list[ReviewFinding], rules: int) -> str:
    """Return one line on a review: the number of findings, or how many checks found nothing."""
    name = path.resolve().name if path.is_dir() else path.name
    if not findings:
        return f"{name}: none of the {rules} checks found anything; they do not cover everything"
    in_file = {finding.path: "" if not path.is_dir() else f"{Path(finding.path).name} " for finding in findings}
    places = ", ".join(f"{finding.rule} at {in_file[finding.path]}line {finding.line}" for finding in findings[:3])
    more = f", and {len(findings) - 3} more" if len(findings) > 3 else ""
    return f"{name}: {places}{more}"
