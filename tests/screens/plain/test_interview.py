"""Questions of the plain wizard: they end, in an experiment if the answers do not decide the case."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis import dialogue
from ddpwizard.app.diagnosis.case import FRONT_DOOR
from ddpwizard.app.diagnosis.symptoms import SYMPTOMS, TASKS
from ddpwizard.app.options import Options
from ddpwizard.app.review.migrations.engine import migrate
from ddpwizard.screens.plain.interview import Interview
from ddpwizard.screens.plain.prompt import EndOfInput, Prompt
from ddpwizard.screens.plain.wizard import PlainWizard
from helpers.built_in_knowledge import built_in_knowledge
from helpers.migration_scripts_list import SCRIPTS
from helpers.recorded_plain import plain_wizard
from helpers.recorded_state import RecordedMachine

UNSURE = re.compile(r"cannot tell|not sure|None of these|Not tried|don't know", re.IGNORECASE)
SYMPTOM_ANSWERS = (
    built_in_knowledge().questions[FRONT_DOOR].answers
)  # the broader rows, where no row of Home was chosen


class Unsure(Prompt):
    """A person who answers every question with "I cannot tell", and skips those without such an answer.

    ``row``: the row of Home that is chosen first.
    """

    def __init__(self, row: int = 0) -> None:
        super().__init__()
        self.written: list[str] = []
        self.questions = 0
        self._row = row

    def write(self, *lines: str) -> None:
        self.written += lines

    def ask(self, prompt: str) -> str:
        self.questions += 1
        return ""

    def paste(self, is_whole: Callable[[str], bool]) -> str:
        return ""

    def choose(self, options: Sequence[str], letters: Mapping[str, str], prompt: str, words: bool = False) -> str:
        if words and self._row:
            row, self._row = self._row, 0
            return str(row)
        if "s" not in letters or letters["s"] != "skip":
            raise EndOfInput
        self.questions += 1
        return next((str(n) for n, option in enumerate(options, 1) if UNSURE.search(option)), "s")


def ended_in_an_experiment(prompt: Unsure) -> bool:
    """Return whether few questions led to commands to run."""
    assert 1 <= prompt.questions <= dialogue.MOST_QUESTIONS
    commands = [line for line in prompt.written if line.startswith("  $ ")]
    return dialogue.NOT_DECIDED in prompt.written and any("ddpwizard" in command for command in commands)


@pytest.mark.parametrize("row", range(1, len(SYMPTOMS) + 1), ids=[symptom.id for symptom in SYMPTOMS])
def test_without_any_knowledge_a_symptom_of_home_ends_in_an_experiment(row: int) -> None:
    prompt = Unsure(row)
    state = RecordedMachine(Options(plain=True, allow="reads"))
    with pytest.raises(EndOfInput):
        PlainWizard(state, prompt).begin("home", {})
    assert SYMPTOMS[row - 1].answers.items() <= state.case.answers.items()
    assert ended_in_an_experiment(prompt), "\n".join(prompt.written)


@pytest.mark.parametrize("answer", ["", *SYMPTOM_ANSWERS])
def test_without_any_knowledge_an_answer_to_the_first_question_ends_in_an_experiment(answer: str) -> None:
    """Without an answer, the first question is asked as well, and answered like the others."""
    state, prompt = RecordedMachine(Options(plain=True, allow="reads")), Unsure()
    case = state.begin()
    if answer:
        case.answer(FRONT_DOOR, answer)
    with pytest.raises(EndOfInput):
        Interview(state, prompt).ask()
    assert ended_in_an_experiment(prompt), "\n".join(prompt.written)


@pytest.mark.parametrize(
    ("row", "answers", "shown"),
    [
        ("plan", 14 * [""], "Use: "),
        ("check", [], " ok"),
        ("review", [""], "$ ddpwizard review ."),
        ("browse", [""], "Which one?"),
    ],
)
def test_a_task_of_home_asks_for_no_symptom_and_shows_its_result_without_any_answer(
    row: str, answers: list[str], shown: str
) -> None:
    number = len(SYMPTOMS) + 1 + list(TASKS).index(row)
    done = plain_wizard(allow="reads", stdin="\n".join([str(number), *answers, "h", "q", ""]))
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout and "why I ask" not in done.stdout


def test_the_first_question_of_a_hang_without_a_job_is_where_the_job_is() -> None:
    done = plain_wizard(allow="reads", stdin="1\n1\nq\n")
    asked = re.findall(r"^(.*\?)\n  \(why I ask", done.stdout, re.MULTILINE)
    assert asked[0].endswith("Where is it?")
    assert "ssh HOST ddpwizard triage --save -" in done.stdout and "--merge triage-*.json*" in done.stdout


def test_a_script_is_reviewed_and_never_read_as_a_log(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n    dist.barrier()\n"
    )
    for talk in (f"{script}\nh\n9\n{script}\nn\nh\n2\n{script}\nq\n", f"1\n5\n{script}\nd\nq\n"):
        done = plain_wizard(allow="reads", stdin=talk)
        assert done.returncode == 0, done.stderr
        assert "train.py: DW401 at line 5" in done.stdout and "A collective that only some ranks reach" in done.stdout
        assert "the text" not in done.stdout


def test_findings_of_a_directory_are_gone_through_one_by_one(tmp_path: Path) -> None:
    before = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    scripts = [tmp_path / f"{name}.py" for name in "abc"]
    for script in scripts:
        script.write_text(before)
    done = plain_wizard(allow="reads", stdin=f"9\n{tmp_path}\nn\ny\ns\nh\nq\n")
    assert done.returncode == 0, done.stderr
    for at, name in enumerate("abc", 1):
        assert f"{at} of 3  {tmp_path}/{name}.py:3  DW401" in done.stdout
    assert "-if dist.get_rank() == 0:\n-    dist.barrier()\n+dist.barrier()" in done.stdout
    assert f"applied hoist-collective (DW401) to {tmp_path}/b.py\n  revert with: ddpwizard undo" in done.stdout
    assert [script.read_text() == before for script in scripts] == [True, False, True]


def test_a_script_is_migrated_when_its_path_is_given_with_a_target(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    before = (SCRIPTS / "data_parallel.py").read_text()
    script.write_text(before)
    (tmp_path / "stream.py").write_text((SCRIPTS / "iterable_dataset.py").read_text())
    talk = f"9\n{script} --to ddp\nn\n9\n{tmp_path}/stream.py --to ddp\n9\n{script} --to resume\ny\nq\n"
    done = plain_wizard(allow="reads", stdin=talk)
    assert done.returncode == 0, done.stderr
    assert "+def set_up() -> torch.device:" in done.stdout and "Nothing written." in done.stdout
    assert "stream.py:20: not migrated: an IterableDataset" in done.stdout
    assert f"migrated {script} to resume; revert with: ddpwizard undo" in done.stdout
    assert script.read_text() == migrate(before, str(script), "resume").after


def test_a_shell_script_is_refused_as_a_log(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("torchrun train.py\n")
    assert "a shell script, not a log" in plain_wizard(stdin=f"{tmp_path / 'run.sh'}\nq\n").stdout


def test_a_question_about_a_term_shows_the_entries_on_it() -> None:
    done = plain_wizard(stdin="what is FSDP?\nh\nq\n")
    assert "FSDP" in done.stdout and "Which one?" in done.stdout


def test_an_empty_paste_continues_with_questions() -> None:
    done = plain_wizard(allow="reads", stdin="2\n.\n\nq\n")
    assert "Path of your training script?" in done.stdout and "why I ask" in done.stdout
