"""Fixes of causes in the user's file, proved: each program fails on two ranks, and ends well with its patch."""

from pathlib import Path

import pytest
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from helpers.built_in_knowledge import built_in_knowledge
from helpers.cause_programs import CAUSE_PROGRAMS
from helpers.torchrun_server import run_programs

pytestmark = [pytest.mark.jobs, pytest.mark.long]

KNOWLEDGE = built_in_knowledge()


def test_patched_programs_end_well_where_they_failed(tmp_path: Path) -> None:
    for cause, (wanted, text) in CAUSE_PROGRAMS.items():
        script = tmp_path / f"{cause}-before.py"
        script.write_text(text)
        fixes = build_fixes(KNOWLEDGE.causes[cause], FixContext(script=str(script)), KNOWLEDGE)
        (patch,) = next(fix for fix in fixes if fix.id == wanted).patches
        (tmp_path / f"{cause}-after.py").write_text(patch.after)
    codes = run_programs(["--limit-s=240", str(tmp_path)], tmp_path, limit_s=600)
    assert len(codes) == 2 * len(CAUSE_PROGRAMS)
    wrong = [name for name, code in codes.items() if any(code) is name.endswith("-after.py")]
    logs = {name: [log.read_text()[-500:] for log in (tmp_path / Path(name).stem).glob("*.log")] for name in wrong}
    assert not wrong, logs
