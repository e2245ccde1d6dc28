"""The planner without a screen: the same three answers, formulas, comparison and files."""

import subprocess
import sys
from pathlib import Path

# An interpreter without torch answers the probes sooner.
PLAIN = ["--plain", "--python", sys._base_executable]  # type: ignore[attr-defined]
LEFT = ["7", "", "h"]
RUN = ["7", "", "16 h100", "1", "4096", "1", "n"]
SHOWN = ["1", "0", "c", "1", "3", "g", "48"]
WRITTEN = ["w", "1", "", "", "n", "w", "1", "", "", "y", "q"]


def test_plain_planner_answers_as_the_screen(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddpwizard", *PLAIN],
        input="\n".join([*LEFT, *RUN, *SHOWN, *WRITTEN]) + "\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout
    for words in (
        "small adapters on fixed weights (LoRA): ",
        "a book chapter, 32,768 tokens: ",
        "slower here",
        " you do not need",
        "  Start: sh ddpwizard-plan/launch.sh",
        "ddpwizard plan --model",
        " strategies",
        "Use: ",
        "With 16 more GPUs: ",
        "With 48 more GPUs: ",
        "B weights × ",
        "Please give a number from 1 to ",
        "difference",
        "Changes for ",
        "  launch.sh ",
        "Write these into ddpwizard-plan?",
        " files into ddpwizard-plan.",
    ):
        assert words in output, words
    assert output.count("Write these into") == 3
    assert output.count("What is wrong?") == 2, "h leaves the form"
    assert (tmp_path / "ddpwizard-plan" / "launch.sh").is_file()
    assert "\x1b" not in output
