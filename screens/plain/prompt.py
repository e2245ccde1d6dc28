"""Numbered questions on stdin and stdout: no cursor, no colour, nothing that moves. Progress goes to stderr."""

import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence

from ...app.text.ascii import to_ascii
from ...app.text.numbers import parse_count
from ...app.text.terminal import (
    print_line,
    print_patch,
    print_progress,
    status_glyph,
    strip_control,
    terminal_width,
    wrap_line,
)

PASTE_PAUSE_S = 0.1  # lines that follow one another faster than a person types are one paste
PASTE_END = "."


class EndOfInput(Exception):
    """Standard input has ended."""


class Quit(Exception):
    """The user leaves the wizard (``home``: only this case)."""

    def __init__(self, home: bool = False) -> None:
        super().__init__()
        self.home = home


class Prompt:
    """Input and output of the plain wizard. It reads from the descriptor itself, to distinguish a paste from typing."""

    def __init__(self, ascii_only: bool = False) -> None:
        self.ascii_only = ascii_only
        self._fd = sys.__stdin__.fileno() if sys.__stdin__ and not sys.__stdin__.closed else -1
        self._rest = b""
        self._ended = self._fd < 0

    def write(self, *lines: str) -> None:
        """Print lines to stdout."""
        for line in lines or ("",):
            print_line(self._shown(line))

    def show_patch(self, diff: str) -> None:
        """Print a unified diff so that ``git apply`` takes it as shown."""
        print_patch(self._shown(diff))

    def show_progress(self, line: str) -> None:
        """Print a line of progress to stderr."""
        print_progress(self._shown(line))

    def status_sign(self, status: str) -> str:
        """Return the sign of a status."""
        return status_glyph(status, self.ascii_only)

    def choose(self, options: Sequence[str], letters: Mapping[str, str], prompt: str, words: bool = False) -> str:
        """Ask until the answer is the number of an option, one of ``letters`` or, with ``words``, a text.

        Return ``"1"``…, a letter, or the text. The options and letters are shown first.

        Raises:
            EndOfInput: Standard input has ended.
        """
        for number, option in enumerate(options, 1):
            self.write(f"  {number:>2}  {option}")
        if letters:
            self.write("   " + " · ".join(f"{letter} {option}" for letter, option in letters.items()))
        hint = self._hint(len(options), letters, words)
        while True:
            given = self.ask(prompt).strip()
            number = parse_count(given) or 0
            if 1 <= number <= len(options):
                return str(number)
            if given.lower() in letters:
                return given.lower()
            if words and len(given) > 3:
                return given + self._pasted()
            self.write(f"  {hint}")

    def confirm(self, question: str, default: bool | None = None) -> bool:
        """Ask until the answer is yes or no; an empty line is the ``default``, if there is one."""
        choices = {None: "y/n", False: "y/N", True: "Y/n"}[default]
        while True:
            given = self.ask(f"{question} ({choices}) ").strip().lower()
            if not given and default is not None:
                return default
            if given in ("y", "yes", "n", "no"):
                return given.startswith("y")
            self.write("  Please answer y or n.")

    def ask(self, prompt: str) -> str:
        """Read one line.

        Raises:
            EndOfInput: Standard input has ended.
        """
        sys.stdout.write("\n".join(wrap_line(self._shown(prompt), terminal_width(sys.stdout))))
        sys.stdout.flush()
        line = self._line()
        if not os.isatty(self._fd):
            self.write(line)  # so that a transcript can be read
        return line

    def paste(self, is_whole: Callable[[str], bool]) -> str:
        """Read lines up to one that holds only a dot, or to the end of the input; only the first if it ``is_whole``."""
        lines: list[str] = []
        try:
            while (line := self._line()) != PASTE_END:
                lines.append(line)
                if len(lines) == 1 and is_whole(line):
                    break
        except EndOfInput:
            if not lines:
                raise
        return "\n".join(lines)

    def _pasted(self) -> str:
        """Read what was pasted together with the line just read."""
        more = ""
        while os.isatty(self._fd) and (self._rest or select.select([self._fd], [], [], PASTE_PAUSE_S)[0]):
            try:
                more += "\n" + self._line()
            except EndOfInput:
                break
        return more

    def _line(self) -> str:
        while b"\n" not in self._rest and not self._ended:
            chunk = os.read(self._fd, 65536)
            self._ended = not chunk
            self._rest += chunk
        if not self._rest:
            raise EndOfInput
        line, _, self._rest = self._rest.partition(b"\n")
        return strip_control(line.decode(errors="replace"))

    def _hint(self, count: int, letters: Mapping[str, str], words: bool) -> str:
        ways = [f"a number from 1 to {count}" if count > 1 else "1"] if count else []
        ways += list(letters)
        ways += ["a description of what you see"] if words else []
        return f"Please give {', '.join(ways[:-1])} or {ways[-1]}." if len(ways) > 1 else f"Please give {ways[0]}."

    def _shown(self, line: str) -> str:
        """Return the line, converted to ASCII if only that can be shown."""
        return type(line)(to_ascii(line)) if self.ascii_only else line
