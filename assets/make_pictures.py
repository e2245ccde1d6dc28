"""``make assets``: the pictures of the README, taken from the real app working on the demo's real job.

Each is an SVG in ``assets/pictures``. Only the name of this machine is replaced.
"""

import asyncio
import html
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from ddpwizard.app.options import Options
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.probes.run_probes import run_probes
from ddpwizard.app.snapshot import Snapshot
from ddpwizard.app.triage.triage import triage_jobs
from ddpwizard.app.triage.types import JobReport
from ddpwizard.app.watchdog.demo_job import DemoJob
from ddpwizard.knowledge.schema import Intrusiveness
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.shell.state import WizardState
from textual.pilot import Pilot

PICTURES = Path(__file__).parent / "pictures"
SIZE = (80, 24)
HOST = "node-07"
LIMIT_S = 120.0
POLL_S = 0.1
ERROR = (
    "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
    "This error indicates that your module has parameters that were not used in producing loss."
)


class PictureState(WizardState):
    """The state of this machine under another name, which sees no job but ``pid``."""

    def __init__(self, pid: int | None = None) -> None:
        super().__init__(Options(allow="reads"), triage=self._the_job)
        self._pid = pid

    async def _run_probes(self, probes: list[str], context: ProbeContext, granted: Intrusiveness) -> Snapshot:
        found = msgspec.json.encode(await run_probes(probes, context, self.knowledge, granted=granted)).decode()
        renamed = re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, found)
        return msgspec.json.decode(renamed, type=Snapshot)

    async def _the_job(self, pid: int | None) -> list[JobReport]:
        return await triage_jobs(pid=pid or self._pid) if pid or self._pid else []


async def hung_job() -> None:
    """Take home, the verdict, the fix and its proof, on a job that hangs."""
    async with DemoJob(sys.executable) as job:
        app = WizardApp(PictureState(job.pid), "home")
        async with app.run_test(size=SIZE) as pilot:
            await until_gone(pilot, "inspecting this machine")
            await until(pilot, "looks hung")
            save(app, "home")
            await pilot.press("1")
            await until(pilot, "Cause:")
            save(app, "triage")
            await pilot.press("f")
            await until(pilot, "@@")
            save(app, "fix")
            await pilot.press("v")
            await until(pilot, "Yes, start it")
            await pilot.press("2")
            await until(pilot, "proved in")
            save(app, "proof")


async def other_cases() -> None:
    """Take an error and its diagnosis; then a question, in the light theme."""
    app = WizardApp(PictureState(), "home")
    async with app.run_test(size=SIZE) as pilot:
        await until_gone(pilot, "inspecting this machine")
        await pilot.press("tab", *ERROR, "enter")
        await until(pilot, "Evidence for it")
        save(app, "diagnosis")
        await pilot.press("escape")
        await until(pilot, "What is wrong?")
        await pilot.press("escape", "4")
        await until(pilot, "Why I ask")
        await pilot.press("ctrl+t")
        await pilot.pause(POLL_S)
        save(app, "question-light")


async def planner() -> None:
    """Take the strategies for a model on a server of eight GPUs, and the memory breakdown of one of them."""
    app = WizardApp(PictureState(), "plan")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, "(16 on 2")
        save(app, "plan")
        await pilot.press("enter")
        await until(pilot, "÷ 8 ranks")
        save(app, "plan-why")


async def learning() -> None:
    """Take the chapters with their labs, a page of a chapter, and a lab."""
    app = WizardApp(PictureState(), "learn")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, "labs done")
        save(app, "learn")
        await pilot.press("enter")
        await until(pilot, "page 1")
        save(app, "chapter")
        await pilot.press("escape")
        await until(pilot, "labs done")
        await pilot.press("down", "enter")
        await until(pilot, "run it")
        save(app, "lab")


async def until(pilot: Pilot[int], words: str) -> None:
    """Wait until the screen shows ``words``.

    Raises:
        TimeoutError: It did not show them in time.
    """
    await _wait(pilot, lambda shown: words in shown, words)


async def until_gone(pilot: Pilot[int], words: str) -> None:
    """Wait until the screen has shown ``words`` and no longer shows them."""
    await until(pilot, words)
    await _wait(pilot, lambda shown: words not in shown, f"end of {words}")


async def _wait(pilot: Pilot[int], seen: Callable[[str], bool], what: str) -> None:
    for _ in range(round(LIMIT_S / POLL_S)):
        await pilot.pause(POLL_S)
        if seen(shown(pilot.app.export_screenshot())):
            return
    raise TimeoutError(f"timed out waiting for {what!r}; the screen:\n{shown(pilot.app.export_screenshot())}")


def shown(svg: str) -> str:
    """Return the words of a picture, one line for each of its lines."""
    lines = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    return html.unescape("\n".join(lines)).replace("\u00a0", " ")


def save(app: WizardApp, name: str) -> None:
    """Save the screen as SVG; it uses the reader's fonts and loads nothing from elsewhere."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", app.export_screenshot(title="ddpwizard"), flags=re.DOTALL)
    path = PICTURES / f"{name}.svg"
    path.write_text(svg, encoding="utf-8")
    sys.stdout.write(f"{path}\n")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {
            "XDG_STATE_HOME": f"{state}/state",
            "XDG_CONFIG_HOME": f"{state}/config",
            "COLORTERM": "truecolor",
        }
        asyncio.run(hung_job())
        asyncio.run(other_cases())
        asyncio.run(planner())
        asyncio.run(learning())


if __name__ == "__main__":
    main()
