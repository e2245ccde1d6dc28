"""The job of a lab in the plain wizard: each line that it prints, with its rank."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from ...app.labs.lab_session import OnOutput
from ...app.labs.launcher_report import LauncherReport
from ...app.labs.rank_output import printed_line, printer_name
from .prompt import Prompt

RUNS = "the job runs; it takes some seconds until its processes print"
STOPPED = "The job is stopped. The lab goes on with the next question; b leaves it."
Ended = TypeVar("Ended")


class LabOutput:
    """Prints the lines of the job that ``launch`` has started."""

    def __init__(self, prompt: Prompt, launch: str) -> None:
        self._prompt, self._launch = prompt, launch
        self._without_rank = printer_name(None, launch)
        self._report = LauncherReport()

    def show(self, line: str) -> None:
        """Print a line, unless only the launcher or the library needs it."""
        shown = printed_line(line)
        if shown is None:
            return
        of_launcher = shown.rank is None and self._without_rank == "launcher"
        for text in self._report.add(shown.text) if of_launcher else [shown.text]:
            self._write(printer_name(shown.rank, self._launch), text)

    def end(self) -> None:
        """Print what was held back."""
        for text in self._report.rest():
            self._write(self._without_rank, text)

    def _write(self, printer: str, text: str) -> None:
        self._prompt.write(f"  {printer:<9} {text}")


def run_job(prompt: Prompt, launch: str, start: Callable[[OnOutput], Coroutine[None, None, Ended]]) -> Ended | None:
    """Return the result of a run; None if ctrl-c has stopped it."""
    prompt.show_progress(RUNS)
    output = LabOutput(prompt, launch)
    try:
        return asyncio.run(start(output.show))
    except KeyboardInterrupt:
        prompt.write("", STOPPED)
        return None
    finally:
        output.end()
