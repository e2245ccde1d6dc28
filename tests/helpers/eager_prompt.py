"""A person in the plain wizard who takes the first cause and its first fix, writes it, and proves it."""

from collections.abc import Callable, Mapping, Sequence

from ddpwizard.screens.plain.prompt import EndOfInput, Prompt

STEPS = ("write it to ", "prove it: ")  # rows of a fix, in the order in which they are chosen


class EagerPrompt(Prompt):
    """Answers for one case: ``home`` for Home, ``text`` for a paste, ``command`` where the job's is asked for.

    Questions are left for the diagnosis so far, and everything is confirmed. ``chosen``: the steps that were offered.
    """

    def __init__(self, home: Sequence[str] = (), *, text: str = "", command: str = "") -> None:
        super().__init__()
        self.written: list[str] = []
        self.chosen: list[str] = []
        self._home, self._text, self._command = list(home), text, command
        self._left = list(STEPS)

    def write(self, *lines: str) -> None:
        self.written += lines

    def show_patch(self, diff: str) -> None:
        self.written.append(diff)

    def show_progress(self, line: str) -> None:
        self.written.append(line)

    def confirm(self, question: str, default: bool | None = None) -> bool:
        return True

    def ask(self, prompt: str) -> str:
        return self._command if prompt.startswith("Which command starts it") else ""

    def paste(self, is_whole: Callable[[str], bool]) -> str:
        return self._text

    def choose(self, options: Sequence[str], letters: Mapping[str, str], prompt: str, words: bool = False) -> str:
        if words and self._home:
            return self._home.pop(0)
        if letters.get("d") == "diagnosis so far":
            return "d"
        if any(option.startswith("Fix: ") for option in options) or (prompt == "Which one? " and self._left):
            return "1"
        for place, step in enumerate(self._left):
            number = next((n for n, option in enumerate(options, 1) if option.startswith(step)), 0)
            if number:
                self._left = self._left[place + 1 :]
                self.chosen.append(step.strip())
                return str(number)
        raise EndOfInput
