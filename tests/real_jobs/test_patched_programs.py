"""Patches of the review, proved by running: each program fails or hangs on two ranks, and ends well with its patch.

All of them run in one job, from one import of torch; plain ``python`` ends well before (where a program allows it) and
after. A second review finds nothing. Patches that need torchrun itself, or two nodes, are in ``test_patched_scripts``.
"""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers.patched_programs import PROGRAMS
from helpers.review_snippets import KNOWLEDGE, apply_fixes
from helpers.torchrun_server import run_programs

pytestmark = pytest.mark.jobs


def patched(name: str) -> str:
    """Return a program with all of its patches; a second review must find nothing."""
    after, done = apply_fixes(PROGRAMS[name].text)
    assert PROGRAMS[name].patch in [finding.fix.id for finding in done if finding.fix], name
    assert review_text(after, "train.py", KNOWLEDGE) == [], after
    return after


def test_patched_programs_end_well_where_they_did_not(tmp_path: Path) -> None:
    plain: list[str] = []
    for name, program in PROGRAMS.items():
        before, after = program.text, patched(name)
        texts = {"before": before, "after": after}
        texts |= {} if program.launched else {"alone_after": after}
        texts |= {"alone": before} if program.alone and not program.launched else {}
        for kind, text in texts.items():
            (tmp_path / f"{name}-{kind}.py").write_text(text)
            plain += [f"{name}-{kind}.py"] * kind.startswith("alone")
    codes = run_programs([str(tmp_path), *plain], tmp_path, limit_s=600)
    wrong = [(name, code) for name, code in codes.items() if any(code) is not name.endswith("-before.py")]
    assert not wrong, "\n".join(f"{name}: {logs(tmp_path, name)}" for name, _ in wrong)


def logs(folder: Path, name: str) -> str:
    return " | ".join(path.read_text()[-300:] for path in sorted((folder / name.removesuffix(".py")).glob("*.log")))
