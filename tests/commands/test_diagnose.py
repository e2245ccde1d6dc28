"""``diagnose``: stdin, files, answers, scripts, JSON and exit codes."""

import gzip
import json
import os
import re
import shlex
from pathlib import Path

import pytest
from helpers.command import ddpwizard, refused

PORT_TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
)
KNOWLEDGE_LOGS = Path(__file__).parents[1] / "knowledge" / "logs"
FIELDS = {
    "schema",
    "ddpwizard_version",
    "knowledge_version",
    "in_scope",
    "causes",
    "other",
    "several",
    "support",
    "next",
    "evidence",
    "fix",
}


def test_error_on_stdin_is_diagnosed_with_its_line():
    done = ddpwizard("diagnose", "-", "--json", stdin="starting\n" + PORT_TAKEN)
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert set(answer) == FIELDS
    assert answer["schema"] == "ddpwizard.diagnosis/1"
    top = answer["causes"][0]
    assert top["id"] == "port-in-use"
    assert top["because"][0]["where"] == "<stdin>:2"
    assert abs(sum(c["confidence"] for c in answer["causes"]) + answer["other"] - 1) < 0.2


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("OSError: EADDRINUSE", "port-in-use"),
        (
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one",
            "unused-parameters",
        ),
    ],
)
def test_bare_error_names_its_cause_from_stdin_and_as_an_argument(message: str, cause: str):
    answers = [json.loads(ddpwizard("diagnose", "-", "--json", stdin=message).stdout)]
    answers.append(json.loads(ddpwizard("diagnose", message, "--json").stdout))
    shares = [(answer["in_scope"], answer["causes"][0]["id"], answer["causes"][0]["confidence"]) for answer in answers]
    assert shares[0] == shares[1]
    assert shares[0][:2] == (True, cause) and shares[0][2] > 0.5


def test_text_and_a_log_are_one_case(tmp_path: Path):
    (tmp_path / "a.log").write_text("step 1\n")
    done = ddpwizard("diagnose", "a.log", "two nodes: address already in use", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["causes"][0]["because"][0]["where"] == "<text>:1"


def test_files_are_named_absolutely_and_are_one_case(tmp_path: Path):
    (tmp_path / "a.log").write_text("nothing here\n")
    (tmp_path / "b.log").write_text(PORT_TAKEN)
    done = ddpwizard("diagnose", "a.log", "b.log", "--json", cwd=tmp_path)
    because = json.loads(done.stdout)["causes"][0]["because"]
    assert because[0]["where"] == f"{tmp_path}/b.log:1"


def test_answers_change_the_ranking(tmp_path: Path):
    done = ddpwizard(
        "diagnose", "--answer", "how-launched=plain-python", "--answer", "symptom=does-not-start", "--json"
    )
    answer = json.loads(done.stdout)
    assert {item["id"] for item in answer["evidence"]} == {
        "answer:how-launched=plain-python",
        "answer:symptom=does-not-start",
    }
    assert "how-launched" not in [step["id"] for step in answer["next"]]


def test_script_option_adds_its_findings(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\n\n"
        "def f(x, rank):\n    if rank == 0:\n        dist.all_reduce(x)\n        print(x)\n"
    )
    for arguments in (["--script", str(script)], [str(script)]):  # a script is never read as a log
        done = ddpwizard("diagnose", *arguments, "--json")
        top = json.loads(done.stdout)["causes"][0]
        assert top["id"] == "rank-conditional-collective"
        assert [reason["source"] for reason in top["because"]] == ["review"], arguments


def test_out_of_scope_is_reported_and_is_no_finding():
    done = ddpwizard("diagnose", "-", stdin="my soup is far too salty")
    assert done.returncode == 0
    assert "has no problem of distributed training that matches" in done.stdout
    assert json.loads(ddpwizard("diagnose", "-", "--json", stdin="my soup is salty").stdout)["in_scope"] is False


def test_error_of_the_script_is_out_of_scope_and_named_all_the_same():
    log = next(KNOWLEDGE_LOGS.glob("script-error.one-rank.log"))
    done = ddpwizard("diagnose", str(log))
    assert done.returncode == 1
    assert "1  An error of your script, not a fault of distributed training" in done.stdout
    assert not re.search(r"^2  ", done.stdout, re.MULTILINE)
    answer = json.loads(ddpwizard("diagnose", str(log), "--json").stdout)
    first, *others = answer["causes"]
    assert (answer["in_scope"], first["id"], first["distributed"]) == (False, "script-error", False)
    assert {cause["id"] for cause in others if not cause["distributed"]} <= {"device-side-assert"}


def test_empty_and_binary_input_are_refused(tmp_path: Path):
    assert "nothing in it" in refused(ddpwizard("diagnose", stdin=""), 2)
    binary = tmp_path / "x.bin"
    binary.write_bytes(bytes(range(256)) * 40)
    assert "binary" in refused(ddpwizard("diagnose", str(binary)), 2)
    packed = tmp_path / "x.log.gz"
    packed.write_bytes(gzip.compress(bytes(range(256)) * 40))
    assert "binary" in refused(ddpwizard("diagnose", str(packed)), 2)


def test_gzip_log_is_read(tmp_path: Path):
    log = "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, EADDRINUSE"
    packed = tmp_path / "train.log.gz"
    packed.write_bytes(gzip.compress(log.encode()))
    found = json.loads(ddpwizard("diagnose", str(packed), "--json").stdout)
    assert found["causes"][0]["id"] == "port-in-use"
    assert found["causes"][0]["because"][0]["where"].startswith(f"{packed}")


def test_invalid_answer_lists_the_valid_ones():
    assert "plain-python" in refused(ddpwizard("diagnose", "--answer", "how-launched=nope"), 2)
    assert "how-launched" in refused(ddpwizard("diagnose", "--answer", "nope=1"), 2)


def test_control_sequences_of_a_log_are_not_printed():
    done = ddpwizard("diagnose", "-", stdin="\x1b]0;evil\x07\x9b31m" + PORT_TAKEN)
    assert "\x1b" not in done.stdout and "\x9b" not in done.stdout
    assert "port" in done.stdout.lower()


def test_ascii_output_is_ascii():
    assert ddpwizard("diagnose", "-", "--ascii", stdin=PORT_TAKEN).stdout.isascii()


def test_text_ends_with_the_fix_and_next_lines_can_be_pasted(tmp_path: Path):
    (tmp_path / "my run.log").write_text("[rank0]: step 1\n" + PORT_TAKEN)
    done = ddpwizard("diagnose", "my run.log", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert any(line.startswith("Fix: ") for line in lines[-12:])
    assert lines[-1].endswith("ddpwizard explain port-in-use")
    fix = json.loads(ddpwizard("diagnose", "my run.log", "--json", cwd=tmp_path).stdout)["fix"]
    assert fix["cause"] == "port-in-use"
    assert not any("--master-port=29500" in command for command in fix["commands"])
    (tmp_path / "vague.log").write_text("it hangs on 4 gpus in nccl\n")
    vague = ddpwizard("diagnose", "vague.log", cwd=tmp_path).stdout
    assert "An answer would narrow it down: " in vague[: vague.index("\n1  ")], (
        "where only words support a cause, the question comes first"
    )
    (probe,) = [line for line in vague.splitlines() if line.endswith("--probe")]
    assert probe.strip() == "ddpwizard diagnose vague.log --probe"
    (answer,) = [line for line in vague.splitlines() if " --answer " in line]  # one question, with its answers once
    done = ddpwizard(*shlex.split(answer)[1:], cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.parametrize("words", ["the loss turns into nan", "training crashes", "training is stuck somewhere"])
def test_no_fix_is_shown_for_a_cause_that_is_not_likely(words: str):
    found = json.loads(ddpwizard("diagnose", words, "--json").stdout)
    assert found["fix"] is None
    assert any(step["kind"] == "question" for step in found["next"])
    shown = ddpwizard("diagnose", words).stdout
    assert not re.search(r"(?m)^Fix: ", shown)
    lead = shown.strip().splitlines()[0]
    assert lead.startswith("No cause is likely enough to show its fix. An answer would narrow it down: ")
    assert shown.count(lead.rpartition(": ")[2]) == 1, "a question is asked once"
    answer = next(line for line in shown.splitlines() if " --answer " in line)
    assert ddpwizard(*shlex.split(answer)[1:]).returncode in (0, 1)
    for command in ("ddpwizard run -- COMMAND", "ddpwizard triage", "--script SCRIPT"):
        assert command in shown
    assert "LOG is a file with the output, SCRIPT the training script, COMMAND the line that starts the job." in shown


def test_lines_to_repeat_name_a_file_in_place_of_standard_input():
    shown = ddpwizard("diagnose", "-", stdin="it hangs on 4 gpus in nccl\n").stdout
    lines = [line.strip() for line in shown.splitlines() if line.strip().startswith("ddpwizard diagnose")]
    assert lines and all(line.startswith("ddpwizard diagnose LOG --") for line in lines)
    assert "LOG is a file with the output: it is not read from standard input again." in shown


def test_question_next_to_a_fix_names_the_likeliest_cause():
    shown = ddpwizard("diagnose", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.").stdout
    first, second = shown[: shown.index("\n1  ")], shown[shown.index("\n1  ") :].splitlines()[1]
    assert re.match(r"(Most likely|Perhaps): .* \(\d+%\)\. An answer would narrow it down: ", first)
    assert first.partition(": ")[2].split(" (")[0] in second


def test_json_has_the_printed_question_with_its_answers_and_commands(tmp_path: Path):
    (tmp_path / "my run.log").write_text("it hangs on 4 gpus in nccl\n")
    shown = ddpwizard("diagnose", "my run.log", cwd=tmp_path).stdout
    steps = json.loads(ddpwizard("diagnose", "my run.log", "--json", cwd=tmp_path).stdout)["next"]
    probe, question = (next(step for step in steps if step["kind"] == kind) for kind in ("probe", "question"))
    assert probe["command"] in shown and not probe["answers"]
    assert question["text"] in shown and question["answers"][0]["command"] in shown
    for answer in question["answers"]:
        assert f"{question['id']}={answer['id']}   {answer['text']}" in shown
    last = shlex.split(question["answers"][-1]["command"])
    answered = json.loads(ddpwizard(*last[1:], "--json", cwd=tmp_path).stdout)
    assert question["id"] not in [step["id"] for step in answered["next"]]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n", "device-side-assert"),
        ("[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n", "gpu-sick"),
        ("[rank0]: Fatal Python error: Bus error\n", "worker-exit-no-traceback"),
        ("[rank1]: RuntimeError: DataLoader worker (pid 2063) is killed by signal: Bus error.\n", "shm-too-small"),
    ],
)
def test_error_of_a_kernel_and_a_signal_name_their_cause_and_what_to_do(log: str, cause: str, tmp_path: Path):
    (tmp_path / "run.log").write_text(log)
    found = json.loads(ddpwizard("diagnose", "run.log", "--json", cwd=tmp_path).stdout)
    assert found["causes"][0]["id"] == cause and found["causes"][0]["confidence"] > 0.5
    assert found["fix"]["cause"] == cause


def test_nothing_is_asked_once_the_cause_is_clear(tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text(PORT_TAKEN)
    clear = json.loads(ddpwizard("diagnose", str(log), "--json").stdout)
    assert clear["causes"][0]["confidence"] >= 0.97 and clear["next"] == []
    assert "next:" not in ddpwizard("diagnose", str(log)).stdout
    log.write_text("it hangs on 4 gpus in nccl\n")
    assert json.loads(ddpwizard("diagnose", str(log), "--json").stdout)["next"] != []


def test_the_fix_uses_the_machine_that_was_probed(tmp_path: Path):
    log = tmp_path / "run.log"
    log.write_text(PORT_TAKEN)
    (unknown, known) = (
        json.loads(ddpwizard("diagnose", str(log), *more, "--json").stdout)["fix"] for more in ([], ["--probe"])
    )
    assert unknown["commands"] == ["ss -ltnp 'sport = :29500'"]
    assert known["commands"][0] == unknown["commands"][0]
    assert any("--master-port=" in command and "=29500" not in command for command in known["commands"])


def test_directory_means_its_logs(tmp_path: Path):
    (tmp_path / "train.py").write_text("# EADDRINUSE\n")
    (tmp_path / "config.yaml").write_text("address: already in use\n")
    (tmp_path / "README.md").write_text(PORT_TAKEN)
    assert "no log in the directory" in refused(ddpwizard("diagnose", str(tmp_path)), 2)
    for name in ("out.log", "slurm-12.out", "rank0.log.1", "stderr"):
        (tmp_path / name).write_text(PORT_TAKEN)
    found = json.loads(ddpwizard("diagnose", str(tmp_path), "--json").stdout)
    assert found["causes"][0]["id"] == "port-in-use"
    assert not {"train.py", "config.yaml", "README.md"} & set(re.split(r"[/:\"]", json.dumps(found)))


def test_empty_path_is_refused(tmp_path: Path):
    assert "empty path" in refused(ddpwizard("diagnose", "", cwd=tmp_path), 2)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_names_that_are_not_utf_8_are_shown_with_replacement_characters(options: list[str], tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run\xff"))
    folder.mkdir()
    (folder / os.fsdecode(b"rank\xff.log")).write_text(PORT_TAKEN)
    done = ddpwizard("diagnose", str(folder), *options)
    assert done.returncode == 1, done.stderr
    assert "run\ufffd/rank\ufffd.log:1" in done.stdout


def test_error_line_holds_no_control_sequence(tmp_path: Path):
    line = refused(ddpwizard("diagnose", "x\x1b]52;c;aGk=\x07\x1b[31m\x9b2J", cwd=tmp_path), 2)
    assert "\x1b" not in line
    assert "\x9b" not in line


def test_json_escapes_eight_bit_controls_and_direction_marks(tmp_path: Path):
    (tmp_path / "a.log").write_text("RuntimeError: \u202e\u2066NCCL error\n" + PORT_TAKEN)
    done = ddpwizard("diagnose", "x\u202e\u200f.log", "--json", cwd=tmp_path)
    assert not set("\u202e\u200f\u009b") & set(done.stdout)
    assert "No such file" in json.loads(done.stdout)["message"]


def test_directory_of_many_small_files_is_read_in_time(tmp_path: Path):
    for number in range(2000):
        (tmp_path / f"worker-{number}.log").write_text("RuntimeError: the worker hangs and the GPU is idle\n")
    began = os.times().children_user
    done = ddpwizard("diagnose", str(tmp_path), "--json")
    assert done.returncode in (0, 1), done.stderr
    assert os.times().children_user - began < 8


def test_directory_of_empty_files_is_refused_in_a_short_line(tmp_path: Path):
    for number in range(3000):
        (tmp_path / f"{number}.log").touch()
    assert len(refused(ddpwizard("diagnose", str(tmp_path)), 2)) < 500
