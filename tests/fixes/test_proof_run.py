"""A run for proof of a plain script that failed here, with and without the kernel's namespaces."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes import proof
from ddpwizard.app.fixes.proof import ProofResult, prove_by_run
from ddpwizard.app.fixes.proof_plan import plan_command_proof
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.session import Session

BROKEN = 'batch = {}\nopen("log.txt", "a").write("step")\nprint(batch["image_path"])\n'
FIXED = BROKEN.replace("{}", '{"image_path": "a.png"}')


@pytest.fixture
def job(tmp_path: Path) -> Path:
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / "train.py").write_text(BROKEN)
    (directory / "log.txt").write_text("mine")
    log = f"Traceback\n  File \"{directory}/train.py\", line 3\nKeyError: 'image_path'\n"
    (directory / "crash.log").write_text(log)
    return directory


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that refuses them."""

    async def refused(_directory: Path) -> str:
        return "unshare: Operation not permitted"

    monkeypatch.setattr(proof, "private_mounts_problem", refused)


def session_of(job: Path, *, here: bool = True) -> Session:
    session = Session.new()
    where = f"{job}/crash.log:3" if here else "the pasted text:3"
    session.append("evidence", id="log:c/0", source="log", what="KeyError: 'image_path'", where=where)
    return session


def prove(job: Path, after: str = FIXED, *, here: bool = True) -> ProofResult:
    patch = FilePatch(path=str(job / "train.py"), before=(job / "train.py").read_text(), after=after)
    fix = Fix(id="f", cause="c", title="t", safety="safe", patches=[patch])
    before = {path.name: path.read_text() for path in job.iterdir()}
    plan = plan_command_proof("python train.py", fix, session_of(job, here=here), job, sys.executable)
    result = asyncio.run(prove_by_run(plan, limit_s=30))
    assert {path.name: path.read_text() for path in job.iterdir()} == before, "nothing of the user's has changed"
    return result


def test_a_crash_of_this_machine_that_the_fix_ends_is_proved(job: Path) -> None:
    result = prove(job)
    assert (result.outcome, result.what) == ("proved", "the job ran to its end with code 0"), result
    assert result.detail == "last output: a.png"


def test_the_same_error_again_is_still_there(job: Path) -> None:
    result = prove(job, BROKEN + "\n")
    assert (result.outcome, result.what) == ("still there", "the job ended with code 1 and the same error")


def test_another_error_shows_nothing(job: Path) -> None:
    result = prove(job, "raise ValueError\n")
    assert (result.outcome, result.what) == ("not shown here", "the job ended with code 1")


def test_the_crash_of_another_machine_is_never_proved(job: Path) -> None:
    result = prove(job, here=False)
    assert result.outcome == "not shown here"
    assert "was not seen on this machine" in result.what


@pytest.mark.usefixtures("no_namespaces")
def test_without_namespaces_the_code_runs_on_a_copy(job: Path) -> None:
    assert prove(job).outcome == "proved"
    own = f'open("{job}/log.txt", "a").write("step")\n'
    assert prove(job, own).outcome == "proved"


@pytest.mark.usefixtures("no_namespaces")
def test_without_namespaces_a_script_that_writes_elsewhere_is_refused(job: Path, tmp_path: Path) -> None:
    (tmp_path / "best.pt").write_text("precious")
    with pytest.raises(UserError, match=r"train\.py:1 \(open\) writes to .*best\.pt.*Operation not permitted"):
        prove(job, f'open("{tmp_path}/best.pt", "w").write("new")\n')
    with pytest.raises(UserError, match="known only when it runs"):
        prove(job, 'import sys\nopen(sys.stdin.name, "w")\n')
    assert (tmp_path / "best.pt").read_text() == "precious"


WAITS = (
    FIXED
    + """
import os, time
while not os.path.exists({go!r}):
    time.sleep(0.01)
"""
)


def prove_while(job: Path, tmp_path: Path, change: Callable[[], object]) -> ProofResult:
    """Prove the fix of a script that waits in the middle; call ``change`` while it does."""
    go = tmp_path / "go"
    (job / "helper.py").write_text("print('helper')\n")
    (job / "train.py").write_text("import helper\n" + BROKEN)
    after = "import helper\n" + WAITS.replace("{go!r}", repr(str(go)))
    patch = FilePatch(path=str(job / "train.py"), before="import helper\n" + BROKEN, after=after)
    fix = Fix(id="f", cause="c", title="t", safety="safe", patches=[patch])
    plan = plan_command_proof("python train.py", fix, session_of(job), job, sys.executable)

    def on_progress(line: str) -> None:
        if line.startswith("starting it again"):
            change()
            go.touch()

    return asyncio.run(prove_by_run(plan, limit_s=30, progress=on_progress))


def test_code_that_changes_during_the_run_is_not_proved(job: Path, tmp_path: Path) -> None:
    result = prove_while(job, tmp_path, lambda: (job / "helper.py").write_text("print('other')\n"))
    assert result.outcome == "not shown here", result
    assert "helper.py has changed while it ran" in result.what


def test_a_file_that_is_written_again_with_the_same_text_is_unchanged(job: Path, tmp_path: Path) -> None:
    result = prove_while(job, tmp_path, lambda: (job / "helper.py").write_text("print('helper')\n"))
    assert result.outcome == "proved", result


def test_a_signal_that_ends_a_rank_is_named_with_its_line(job: Path) -> None:
    result = prove(job, "import ctypes\n\n\ndef decode():\n    ctypes.string_at(8)\n\n\ndecode()\n")
    assert (result.outcome, result.what[-36:]) == ("not shown here", "139: Segmentation fault at train.py:5"[-36:]), (
        result
    )


ABORTS = (
    FIXED.replace("{", "{{").replace("}", "}}")
    + """
import os, sys
if not os.path.exists({go!r}):
    sys.stderr.write("terminate called without an active exception\\n")
    sys.stderr.flush()
    os.abort()
"""
)


@pytest.mark.parametrize("ends", [True, False])
def test_a_run_that_torch_aborts_at_its_end_is_made_again(ends: bool, job: Path, tmp_path: Path) -> None:
    go, lines = tmp_path / "go", list[str]()
    patch = FilePatch(path=str(job / "train.py"), before=BROKEN, after=ABORTS.format(go=str(go)))
    fix = Fix(id="f", cause="c", title="t", safety="safe", patches=[patch])
    plan = plan_command_proof("python train.py", fix, session_of(job), job, sys.executable)

    def on_progress(line: str) -> None:
        lines.append(line)
        if line.endswith("once more") and ends:
            go.touch()

    result = asyncio.run(prove_by_run(plan, limit_s=30, progress=on_progress))
    assert result.outcome == ("proved" if ends else "not shown here"), result
    assert ("In the run before this one torch aborted a rank" in result.detail) == ends
    assert ("torch aborted a rank" in result.what) != ends
    assert sum(line.startswith("starting it again") for line in lines) == (2 if ends else 3)


def test_a_proof_is_of_the_files_as_they_were(job: Path) -> None:
    result = prove(job)
    assert result.as_of_now() is result, "the fix is not applied yet"
    (job / "train.py").write_text(FIXED)
    assert result.as_of_now() is result, "applied: what was proved"
    (job / "train.py").write_text(FIXED + "raise SystemExit(1)\n")
    assert result.changed_since() == [str(job / "train.py")]
    assert result.as_of_now().summary == "not shown here: train.py has changed since it was proved: prove it again"
