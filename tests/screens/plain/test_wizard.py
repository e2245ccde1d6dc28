"""The wizard as numbered questions: the same case and session as the screens, driven through a pipe."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.symptoms import SYMPTOMS, TASKS
from ddpwizard.app.session import Session
from ddpwizard.app.watchdog.demo_job import DemoJob
from helpers.command import ddpwizard, loaded_modules
from helpers.jobs import wait_for
from helpers.pseudo_terminal import Terminal, marked
from helpers.recorded_plain import plain_wizard

UNUSED = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."
SHELL = {"TERM": "dumb"}
# Probing an interpreter without torch takes less time.
QUICK = ("--python", sys._base_executable)  # type: ignore[attr-defined]
PLAIN = ("--plain", *QUICK)


def test_home_shows_the_machine_and_the_tasks() -> None:
    done = ddpwizard(*PLAIN)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  memory   /dev/shm ", done.stdout, re.MULTILINE)
    for option in ("My job hangs", "It crashed", "Check this machine", "Browse the knowledge base"):
        assert option in done.stdout
    assert "inspecting this machine" in done.stderr and "looking at" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("how", [{"ACCESSIBLE": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_full_screen_gets_numbered_questions(how: dict[str, str]) -> None:
    with Terminal([sys.executable, "-m", "ddpwizard", *QUICK], env=how) as terminal:
        terminal.wait_for("describe what you see:")
        terminal.send("q\r")
        assert terminal.wait_exit() == 0
        assert b"\x1b" not in terminal.output


def test_invalid_answers_are_asked_again_with_a_hint() -> None:
    done = plain_wizard(stdin="99\n0\n\nz\n-1\n٣\nq\n")
    assert done.returncode == 0
    assert done.stdout.count("Please give a number from 1 to") == 6


def test_a_resumed_session_continues_at_the_same_question() -> None:
    done = plain_wizard(allow="reads", stdin="6\n\n7\n")
    assert done.returncode == 0, done.stderr
    assert "Most likely so far" in done.stdout
    asked = re.findall(r"^(.*\?)\n  \(why I ask", done.stdout, re.MULTILINE)
    assert len(asked) == 2, "one answered, one put when the input ended"
    assert "Path of your training script?" in done.stdout
    session = Session.load("last")
    assert f"session {session.id} is kept" in done.stderr
    assert session.last("closed") is None
    answered = [event.data for event in session.events if event.kind == "answer"]
    assert answered[0] == {"question": "symptom", "answer": "does-not-start"} and len(answered) == 3
    again = plain_wizard("resume", id=session.id, allow="reads")
    assert again.returncode == 0, again.stderr
    assert "3 answers so far" in again.stdout
    assert re.findall(r"^(.*\?)\n  \(why I ask", again.stdout, re.MULTILINE) == asked[1:]


def test_an_answer_can_be_taken_back_and_skipped() -> None:
    done = plain_wizard(allow="reads", stdin="6\n\n7\nb\ns\nq\n")
    asked = re.findall(r"^(.*\?)\n  \(why I ask", done.stdout, re.MULTILINE)
    assert asked[0] == asked[2] and asked[3] != asked[0]
    session = Session.load("last")
    answers = [event.data["answer"] for event in session.events if event.kind == "answer"][2:]
    assert answers[1:] == [None, "skipped"]


def test_a_pasted_error_is_diagnosed_with_its_line_and_fixed() -> None:
    done = plain_wizard(stdin=f"2\nstarting\n{UNUSED}\n.\n1\n1\nb\nq\n")
    assert done.returncode == 0, done.stderr
    assert "Most likely: A parameter gets no gradient" in done.stdout
    assert re.search(r"log +RuntimeError: Expected to have finished.*:2\]", done.stdout)
    assert "What to change:" in done.stdout


def test_the_end_of_input_ends_a_paste_too() -> None:
    done = plain_wizard(stdin=f"2\n{UNUSED}")
    assert done.returncode == 0
    assert "Most likely: A parameter gets no gradient" in done.stdout


def test_home_accepts_a_log_path_or_a_description(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"ok\n{UNUSED}\n")
    done = plain_wizard(stdin=f"{log}\nq\n")
    assert f"[{log}:2]" in done.stdout
    done = plain_wizard(stdin="/no/such/file.log\nq\n")
    assert done.returncode == 0
    assert "/no/such/file.log: No such file or directory → " in done.stdout


def test_nothing_is_written_without_confirmation(tmp_path: Path) -> None:
    talk = f"2\n{UNUSED}\n.\n1\n3\n1\n"  # the example is the third fix
    plain_wizard(stdin=talk + "maybe\nn\nq\n", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    done = plain_wizard(stdin=talk + "y\nq\n", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["find_unused.py"], done.stdout
    fix = Session.load("last").last("fix")
    assert fix and fix.data["action"] == "written"
    assert "Example written: " in done.stdout
    assert "your script is unchanged" in done.stdout
    undone = ddpwizard("undo", fix.data["backup"], "--yes")
    assert undone.returncode == 0, undone.stderr
    assert list(tmp_path.iterdir()) == []


def test_checks_and_search() -> None:
    done = plain_wizard(stdin="8\n10\nunused gradient\nh\n10\nxyzzy\n10\nglobal batch\nh\nq\n")
    assert done.returncode == 0, done.stderr
    assert re.search(r"✓ \d+ ok", done.stdout)
    assert "No known cause has these words." in done.stdout
    assert "All samples of one optimizer step" in done.stdout, "a term"


def test_a_run_is_planned() -> None:
    done = ddpwizard(*PLAIN, stdin="7\n\n16 abacus\n16 a100-80g\n9\n1\nno\n0\n512\nq\n")
    assert done.returncode == 0, done.stderr
    assert "Llama-3.1-8B · 8.03 B parameters · 16 GPUs of 79 GiB" in done.stdout
    assert "a whole number is needed" in done.stdout and "0: not between 1 and 10,000,000" in done.stdout
    assert "GPU abacus: not known" in done.stdout
    assert "9: no such answer → a number from 1 to 3" in done.stdout
    asked = ["plan", "--params", "8030261248", "--layers", "32", "--hidden", "4096", "--heads", "32"]
    asked += ["--kv-heads", "8", "--intermediate", "14336", "--vocab", "128256"]
    same = ddpwizard(*asked, "--seq-len", "512", "--gpus", "16", "--gpu", "a100-80g")

    def strategies(text: str) -> list[str]:
        return re.findall(r"^  [✓~✗ ] +(\S.*?)  ", text, re.MULTILINE)

    table = done.stdout[done.stdout.index("8.03 B") :]
    assert len(strategies(same.stdout)) > 5
    assert strategies(table)[: len(strategies(same.stdout))] == strategies(same.stdout)


def test_home_offers_the_same_in_the_same_order_as_the_screen() -> None:
    done = plain_wizard()
    offered = [symptom.label for symptom in SYMPTOMS] + list(TASKS.values())
    shown = [done.stdout.find(f"  {label}") for label in offered]
    assert -1 not in shown and shown == sorted(shown)


def test_hostile_input_is_shown_as_text() -> None:
    done = plain_wizard(stdin=b"2\n\x1b[2J\xff\xfe {script} %s $(id) \x07\n.\nq\n")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout


def test_ascii_output() -> None:
    done = plain_wizard(ascii=True, stdin=f"2\n{UNUSED}\n.\nq\n")
    assert done.returncode == 0
    assert done.stdout.isascii() and done.stderr.isascii()


def test_ctrl_c_exits_with_130_and_names_the_session() -> None:
    with Terminal(
        [sys.executable, "-m", "ddpwizard", *QUICK, "--allow", "reads"], env=SHELL, columns=120, rows=60
    ) as terminal:
        terminal.wait_for("describe what you see:")
        terminal.send("6\r")
        terminal.wait_for("Path of your training script")
        terminal.send("ctrl+c")
        assert terminal.wait_exit() == 130
        kept = Session.load("last").id
        assert f"session {kept} is kept".encode() in terminal.output
        assert f"ddpwizard sessions resume {kept}".encode() in terminal.output, "on one line of 80 columns"
        assert b"Traceback" not in terminal.output


def test_a_closed_stdin_is_the_end_of_input() -> None:
    command = f"{sys.executable} -m ddpwizard {' '.join(PLAIN)} <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "What is wrong?" in done.stdout


def test_a_missing_session_is_an_error_of_one_line() -> None:
    done = ddpwizard("sessions", "resume", "nope")
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0


def test_plain_loads_no_textual_and_no_torch() -> None:
    loaded = loaded_modules("import ddpwizard.screens.plain.wizard, ddpwizard.screens.plain.job")
    assert not {"textual", "torch", "networkx", "rich", "numpy"} & loaded


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.long
def test_demo_runs_to_its_proof_without_a_question() -> None:
    done = ddpwizard("--demo", "--plain", limit_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"^([1-7]) (\w+)", done.stdout, re.MULTILINE)
    names = ["start", "hang", "verdict", "patch", "apply", "relaunch", "proof"]
    assert steps == [(str(n), name) for n, name in enumerate(names, 1)]
    verdict = next(line for line in done.stdout.splitlines() if line.startswith("3 verdict"))
    script = Path(__file__).parents[3] / "assets" / "demo" / "train.py"
    lines = script.read_text().splitlines()
    where, branch = re.findall(r"train\.py:(\d+)", verdict)
    assert "Rank 0" in verdict
    assert "dist.all_reduce(" in lines[int(where) - 1]
    assert "if rank == 0" in lines[int(branch) - 1]
    assert re.search(r"^\+.*dist\.all_reduce", done.stdout, re.MULTILINE)
    assert "proved" in done.stdout
    session = Session.load("last")
    kinds = [event.kind for event in session.events]
    assert [kind for kind in kinds if kind in ("triage", "fix", "proof", "closed")] == [
        "triage",
        "fix",
        "proof",
        "closed",
    ]
    page = ddpwizard("sessions", "export", session.id).stdout
    assert "✓ proved" in page and "```diff" in page


@pytest.mark.jobs
@pytest.mark.slow
def test_ctrl_c_ends_the_demo_and_its_job() -> None:
    with Terminal([sys.executable, "-m", "ddpwizard", "--demo", "--plain"], columns=120) as terminal:
        terminal.wait_for("launcher pid", 120)
        assert len(marked(terminal.mark)) > 5, "the wizard, a supervisor, torchrun and four ranks"
        terminal.send("ctrl+c")
        assert terminal.wait_exit() == 130
        wait_for(lambda: not marked(terminal.mark), "nothing of it is left")
        assert b"Traceback" not in terminal.output


@pytest.mark.jobs
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.long
def test_a_hanging_job_is_found_fixed_and_proved() -> None:
    async def talk() -> subprocess.CompletedProcess[str]:
        async with DemoJob(sys.executable):
            answers = "1\n1\n1\n2\ny\nq\n"  # it hangs, fixes of the cause, the first fix, prove it, yes, quit
            return await asyncio.to_thread(ddpwizard, "--plain", stdin=answers, limit_s=300)

    done = asyncio.run(talk())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train.py looks hung" in done.stdout
    assert re.search(r"^  0 +waiting +train\.py:\d+ +validate +all_reduce", done.stdout, re.MULTILINE)
    assert re.search(r"^  1–3 +waiting", done.stdout, re.MULTILINE)
    assert "Most likely: A collective that only some ranks reach" in done.stdout
    assert "✓ proved" in done.stdout
