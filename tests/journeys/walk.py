"""One walk through the wizard in a pseudo-terminal of 80 columns and 24 rows: keys are counted, the screen is read.

Only keys that the screen offers are pressed. A pasted path counts as one key, as does the Enter after ``ddpwizard``.
"""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from helpers.pseudo_terminal import Terminal
from journey import Edit

EDITOR = Path(__file__).with_name("edit_by_hand.py")
HOME_S, OFFERED_S, VERDICT_S, FIX_S, PROOF_S = 15.0, 5.0, 45.0, 20.0, 150.0
OUTCOMES = ("proved in", "not shown here:", "still there:")
PAGES = 4
PASTED_SHOWN = 40  # characters at the end of a pasted text


class Walk:
    """The wizard as one user sees it. ``keys`` counts what was pressed."""

    def __init__(self, directory: Path, edits: tuple[Edit, ...], environ: Mapping[str, str]) -> None:
        self._edits = directory / ".edits.json"
        found = [{"path": str(directory / each.file), "old": each.old, "new": each.new} for each in edits]
        self._edits.write_text(json.dumps(found))
        editor = shlex.join([sys.executable, str(EDITOR), str(self._edits)])
        self._edited = not edits
        self._starts_fix = False  # the command line that the fix shows is started
        self.keys = 1
        self.fix_text = ""
        self.terminal = Terminal(
            [sys.executable, "-m", "ddpwizard"], env={**environ, "VISUAL": editor, "EDITOR": editor}, cwd=directory
        )

    @property
    def text(self) -> str:
        """The screen as one line of words."""
        return " ".join(self.terminal.text.split())

    @property
    def seconds(self) -> float:
        """Seconds since the wizard was started."""
        return time.monotonic() - self.terminal.started

    def see(self, *texts: str, limit_s: float) -> str:
        """Wait until the screen shows one of the texts; return it."""
        self.terminal.wait_until(lambda: any(text in self.text for text in texts), " or ".join(texts), limit_s)
        return next(text for text in texts if text in self.text)

    def press(self, key: str, offered: str) -> None:
        """Press a key that the screen offers with these words."""
        self.see(offered, limit_s=OFFERED_S)
        self.terminal.send(key)
        self.keys += 1

    def choose(self, row: str) -> None:
        """Press the number of a row of a list."""
        self.see(row, limit_s=OFFERED_S)
        match = re.search(rf"(\d) {re.escape(row)}", self.text)
        assert match, f"no row {row!r}:\n{self.terminal.text}"
        self.terminal.send(match[1])
        self.keys += 1

    def paste(self, text: str) -> None:
        """Paste a text and see it: one key. A person is slower than the program."""
        self.terminal.wait_quiet(0.2, OFFERED_S)
        self.terminal.send(f"\x1b[200~{text}\x1b[201~")
        self.keys += 1
        shown = "".join(text.split())[-PASTED_SHOWN:]
        self.terminal.wait_until(lambda: shown in "".join(self.text.split()), f"the pasted {shown}", OFFERED_S)

    def to_verdict_of_job(self, row: str) -> None:
        """From Home, by this row, to the cause of the job that runs."""
        self.see(row, limit_s=HOME_S)
        self.choose(row)
        self.see("Cause:", limit_s=VERDICT_S)

    def to_verdict_of_log(self, log: Path) -> None:
        """From Home to the cause of a crash that is known from its log."""
        self.see("It crashed", limit_s=HOME_S)
        self.choose("It crashed")
        self.see("read it", limit_s=HOME_S)
        self.paste(str(log))
        self.press("\x04", "ctrl+d read it")
        self.see("Most likely:", "Perhaps:", limit_s=VERDICT_S)

    def to_fix(self, places: list[tuple[str, int]], names: tuple[str, ...]) -> bool:
        """Open the fix and read it, page by page if needed; return whether it names one of the places, or all names."""
        self.press("f", "f fix")
        self.see("Fix 1 of", limit_s=FIX_S)
        self.terminal.wait_quiet(0.2, FIX_S)
        self.fix_text = self.terminal.text
        for _ in range(PAGES):
            if any(_names(self.fix_text, name, line) for name, line in places) or (
                names and all(name in self.fix_text for name in names)
            ):
                return True
            before = self.terminal.text
            self.terminal.send("\x1b[6~")
            self.keys += 1
            self.terminal.wait_quiet(0.2, FIX_S)
            if self.terminal.text == before:
                break
            self.fix_text += "\n" + self.terminal.text
        return False

    def names_place(self, places: list[tuple[str, int]]) -> bool:
        """Return whether the screen names one of the places."""
        return any(_names(self.terminal.text, name, line) for name, line in places)

    def to_applied(self) -> bool:
        """Apply the patch; without one make the edit by hand. Return whether it was a patch."""
        if re.search(r"^ +patch\b", self.terminal.text, re.MULTILINE) and "a apply" in self.text:
            self.press("a", "a apply")
            self.see("Yes, apply it", limit_s=FIX_S)
            self.choose("Yes, apply it")
            self.see("Applied to", limit_s=FIX_S)
            return True
        if "starts this command" in self.text or "with these variables" in self.text:  # that is the fix
            self._starts_fix = True
            return False
        assert not self._edited, f"no patch, and no edit is known:\n{self.terminal.text}"
        if "e edit" in self.text:
            self.press("e", "e edit")
            self.terminal.wait_quiet(0.3, FIX_S)
        else:  # in another window
            subprocess.run([sys.executable, str(EDITOR), str(self._edits)], check=True)
        self._edited = True
        return False

    def to_proof(self, command: str = "") -> bool:
        """Prove it; ``command``: what the user would type if asked. Return whether it is proved."""
        self.press("v", "v prove")
        self.terminal.wait_until(lambda: not any(text in self.text for text in OUTCOMES), "a new proof", FIX_S)
        asked = self.see("Which command starts it?", "Yes, start it", *OUTCOMES, limit_s=FIX_S)
        if asked == "Which command starts it?":
            self.terminal.wait_quiet(0.2, FIX_S)
            if command not in self.text and not self._starts_fix:  # another one is proposed
                self.terminal.send("\x15")
                self.keys += 1
                self.paste(command)
            self.terminal.send("\r")
            self.keys += 1
            asked = self.see("Yes, start it", limit_s=FIX_S)
        if asked == "Yes, start it":
            self.choose("Yes, start it")
            self.terminal.wait_until(self._proof_ended, "result of the proof", PROOF_S)
        return "proved in" in self.text

    def _proof_ended(self) -> bool:
        """Return whether the result of the proof, or the reason why there is none, is shown."""
        below = " ".join(self.terminal.text.splitlines()[-5:])
        return any(text in self.text for text in OUTCOMES) or " → " in below.replace("← →", "")


def _names(text: str, name: str, line: int) -> bool:
    """Return whether a text names a line of a file: ``train.py:12``, ``line 12`` with the file, or a hunk of a diff."""
    together = re.sub(r"\s+", "", text)
    if re.search(rf"{re.escape(name)}:{line}(?!\d)", together):
        return True
    if name in together and re.search(rf"\blines? {line}\b", text):
        return True
    hunks = re.findall(r"@@ -(\d+)(?:,(\d+))? ", text)
    return re.search(rf"^ *--- \S*{re.escape(name)}$", text, re.MULTILINE) is not None and any(
        int(at) <= line < int(at) + int(count or 1) for at, count in hunks
    )
