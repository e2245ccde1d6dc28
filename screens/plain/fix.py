"""The fix flow of the plain wizard: show the fixes of a cause, apply and prove them."""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...app.errors import UserError
from ...app.fixes.fix_text import fix_lines
from ...app.fixes.types import Fix, Place, done_text, editable_place
from ...app.system.editor import editor_command
from ..shell.state import WizardState
from .prompt import Prompt, Quit
from .ranks import choose_job_or_none

if TYPE_CHECKING:
    from ...app.fixes.flow import FixFlow
    from ...app.fixes.proof import ProofResult

SAFETY_NOTE = {"safe": "", "unsafe": "  (may change behaviour)", "display": "  (by hand)"}


def offer_fixes(state: WizardState, prompt: Prompt, cause_id: str) -> None:
    """Show the fixes of a cause until the user goes back; apply and prove on request."""
    state.record_navigation("fix", cause_id)
    jobs = state.jobs_for_fix(cause_id)
    flow = state.fix_flow(cause_id, choose_job_or_none(state, prompt, jobs))
    fixes = flow.build()
    while True:
        prompt.write("", f"Fixes: {flow.cause.title}")
        titles = [fix.title + SAFETY_NOTE[fix.safety] for fix in fixes]
        given = prompt.choose(titles, {"b": "back", "h": "home", "q": "quit"}, "Which one? ")
        if given == "b":
            return
        if given in ("h", "q"):
            raise Quit(home=given == "h")
        _offer_fix(state, prompt, flow, fixes[int(given) - 1])


def _offer_fix(state: WizardState, prompt: Prompt, flow: "FixFlow", fix: Fix) -> None:
    prompt.write("", *fix_lines(fix))
    prompt.show_patch(fix.diff())
    prompt.write()
    paths = flow.target_paths(fix)
    options: dict[str, str] = {}
    if paths:
        options["apply"] = f"write it to {', '.join(paths)}"
    if proof := flow.proof_text(fix):
        options["prove"] = f"prove it: {proof}"
    place = editable_place(fix)
    if place:
        options["edit"] = f"open {place.shown} in your editor"
    given = prompt.choose(list(options.values()), {"b": "back", "h": "home", "q": "quit"}, "What next? ")
    if given in ("h", "q"):
        raise Quit(home=given == "h")
    if given == "b":
        return
    chosen = list(options)[int(given) - 1]
    if chosen == "prove":
        _prove(state, prompt, flow, fix)
    elif chosen == "edit" and place:
        _edit(prompt, place)
    elif prompt.confirm(f"Write {', '.join(paths)}? It can be undone."):
        _apply(prompt, flow, fix)


def _apply(prompt: Prompt, flow: "FixFlow", fix: Fix) -> None:
    try:
        applied = flow.apply(fix)
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('fail')} {error}")
        return
    prompt.write(f"  {prompt.status_sign('ok')} {done_text(fix, ', '.join(applied.paths))}")
    prompt.write(f"  undo with: ddpwizard undo {applied.id}")


def _edit(prompt: Prompt, place: Place) -> None:
    """Run the editor at a place; without a terminal, name its command line."""
    try:
        command = editor_command(place.path, place.line)
        if not sys.stdin.isatty():
            prompt.write(f"  {shlex.join(command)}")
            return
        subprocess.run(command, check=False)
    except (UserError, OSError) as error:
        prompt.write(f"  {prompt.status_sign('unknown')} {error}")


def _prove(state: WizardState, prompt: Prompt, flow: "FixFlow", fix: Fix) -> None:
    from ...app.fixes.proof_plan import question_lines

    progress = Changes(prompt.show_progress)
    try:
        command = (
            _ask_command(prompt, flow.start_command(fix), flow.directory) if flow.proof_kind(fix) == "command" else ""
        )
        plan = asyncio.run(flow.plan_proof(fix, command, state.context().python))
        if plan:
            prompt.write("", *question_lines(plan))
            if not prompt.confirm("Start it?", default=False):
                return
        proof = asyncio.run(flow.prove(fix, state.context(progress), state.granted, plan=plan, progress=progress))
    except UserError as error:
        prompt.write(f"  {prompt.status_sign('unknown')} {error}")
        return
    show_proof(prompt, proof, "  ")


def _ask_command(prompt: Prompt, known: str, directory: Path) -> str:
    """Ask for the command line that starts the job; an empty answer takes the ``known`` one."""
    example = known or "such as torchrun --nproc-per-node=2 train.py"
    return prompt.ask(f"Which command starts it, in {directory}? ({example}) ").strip() or known


class Changes:
    """Progress lines, each shown once and not again while it stays the same."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._last = show, ""

    def __call__(self, line: str) -> None:
        if line != self._last:
            self._last = line
            self._show(line)


def show_proof(prompt: Prompt, proof: "ProofResult", label: str) -> None:
    prompt.write(f"{label}{prompt.status_sign(proof.status)} {proof.summary}")
    prompt.write(*(f"{'':<{len(label)}}{line}" for line in proof.detail.splitlines()))
