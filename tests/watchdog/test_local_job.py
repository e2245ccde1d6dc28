"""The job that the wizard starts in a directory."""

import asyncio
import sys
from pathlib import Path

import pytest
from ddpwizard.app.watchdog.local_job import LocalJob

# The thread needs the GIL after the script has ended, as a thread of gloo does that still holds a tensor.
LATE_THREAD = """
import atexit, threading
ended = threading.Event()
def late():
    ended.wait()
    print("the thread has run", flush=True)
threading.Thread(target=late, daemon=True).start()
atexit.register(ended.set)
"""


def test_threads_run_once_more_before_a_process_ends(tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with LocalJob([sys.executable, "-c", LATE_THREAD], tmp_path, name="the job") as job:
            outcome = await job.wait_until_ended()
            assert outcome.code == 0, outcome.log
            return [*job.output]

    assert asyncio.run(run()) == ["the thread has run"]


def test_modules_of_the_user_are_found_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text("print('mine')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))

    async def run() -> list[str]:
        async with LocalJob([sys.executable, "-c", "import mine"], tmp_path, name="the job") as job:
            await job.wait_until_ended()
            return [*job.output]

    assert asyncio.run(run()) == ["mine"]


def test_a_line_that_torchrun_has_read_in_parts_is_one_line(tmp_path: Path) -> None:
    noted: list[str] = []
    parts = (
        "print('[default0]:loss 1', end=''); print('[default1]:step 3'); print('[default0]:.5[default1]:end', end='')"
    )

    async def run() -> list[str]:
        async with LocalJob([sys.executable, "-c", parts], tmp_path, name="the job", on_output=noted.append) as job:
            await job.wait_until_ended()
        return [*job.output]

    assert asyncio.run(run()) == noted == ["[default1]:step 3", "[default1]:end", "[default0]:loss 1.5"]
