"""The main journey with the keyboard on a real job: hang, verdict, patch, proof, undo; no process is left."""

import asyncio
from pathlib import Path

import pytest
from ddpwizard.app.options import Options
from ddpwizard.app.system import procfs
from ddpwizard.app.triage.triage import evidence_of_report
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.shell.state import WizardState
from ddpwizard.screens.triage.triage import TriageScreen
from helpers.built_in_knowledge import built_in_knowledge
from helpers.screen_pilot import check_left, frame, shows, walk


def text_of(path: Path) -> str:
    return path.read_text()


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.long
@walk
async def test_demo_from_the_hang_to_the_proof() -> None:
    state = WizardState(Options())
    app = WizardApp(state, "demo")
    async with app.run_test(size=(100, 30)) as pilot:
        await shows(pilot, "A real job of four processes starts here")
        assert frame(pilot).splitlines()[-1].split() == ["?", "help", "q", "quit"], "nothing to act on yet"
        await shows(pilot, "looks hung", "waits in all_reduce at train.py:", "◀ rank 0", limit_s=120)
        screen = app.screen
        assert isinstance(screen, TriageScreen)
        report = screen.report
        assert report is not None
        script = Path((report.verdict.where or "").rpartition(":")[0])
        before = text_of(script)
        assert (report.verdict.culprits, report.verdict.cause) == ([0], "rank-conditional-collective")
        evidence = {item.id for item in evidence_of_report(report, built_in_knowledge().findings())}
        assert {"job.ranks-in-different-collectives", "job.culprit-line-under-rank-test"} <= evidence
        pids = [row.pid for row in report.ranks if row.pid]
        assert len(pids) == 4
        await pilot.press("f")
        await shows(pilot, "Proof:", "a apply", limit_s=30)
        await pilot.press("a")
        await shows(pilot, "Write 1 file?")
        await pilot.press("2")
        await shows(pilot, "✓ applied")
        assert text_of(script) != before
        await pilot.press("v")
        await shows(pilot, "Start this job to prove the fix?", "Runs: ", "train.py", limit_s=30)
        await pilot.press("2")
        await shows(pilot, "✓ proved in", limit_s=120)
        await pilot.press("u")
        await shows(pilot, "Undone in")
        assert text_of(script) == before
        assert "✗" not in frame(pilot)
        await pilot.press("q")
    kinds = [event.kind for event in state.case.session.events]  # type: ignore[union-attr]
    assert [kind for kind in kinds if kind in ("triage", "fix", "proof", "closed")] == [
        "triage",
        "fix",
        "proof",
        "fix",
        "closed",
    ]
    assert not script.parent.exists()
    await asyncio.to_thread(check_left, str(script.parent))
    assert not [pid for pid in pids if procfs.process_of(pid)]
