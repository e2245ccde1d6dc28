"""Renaming of private names: none is left, and each has the same alias everywhere."""

import time

import pytest
from ddpwizard.app.text.anonymize import Anonymizer

CASE = {
    "opened": {"cwd": "/home/alice/fusion", "argv": ["triage", "--logs", "/data/fusion/logs/node-07.log"]},
    "env": {"USER": "alice", "MASTER_ADDR": "node-07.hpc.example.edu", "SLURM_JOB_NODELIST": "gpu[08-10,12],login"},
    "host": "node-07",
    "ranks": [{"host": "node-11", "where": "/home/alice/fusion/train.py:88"}],
    "lines": [
        "train.py:88 on node-07 waits for node-070",
        "gpu09:3312:3400 [0] NCCL INFO Bootstrap : Using eth0:10.3.2.7<0>",
        "fe80::1ff:fe23:4567:890a%eth0 and 127.0.0.1 and ::1 at 12:30:45",
        "ssh bob@bastion.corp.example.com cat ~/notes.txt",
        "[W socket.cpp:697] [c10d] The client socket cannot connect to [head-1.internal]:29500",
        "/opt/conda/lib/python3.11/site-packages/torch/distributed/run.py:900 in run",
        "see https://pytorch.org/docs/stable/notes/ddp.html and http://git.fusion.example.org/alice/repo.git",
        "/dev/shm is 64 MB, /proc/meminfo, 371 GB/s",
        "GPU-8f3c1a2b-1111-2222-3333-444455556666 at 0c:42:a1:00:ff:10",
        "--- a/train.py\n+++ b/train.py",
        "torch/distributed/distributed_c10d.py:4100",
        "score /= dist.get_world_size() // 2; x = a/b; y = a / b",
    ],
}


@pytest.fixture
def renamed() -> dict[str, object]:
    aliases = Anonymizer()
    aliases.learn(CASE)
    value = aliases.data(CASE)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    "name",
    [
        "alice",
        "fusion",
        "node-07",
        "node-11",
        "gpu09",
        "gpu10",
        "gpu12",
        "gpu[08",
        "10.3.2.7",
        "fe80",
        "bob",
        "bastion",
        "notes.txt",
        "head-1",
        "example",
        "train.py",
        "8f3c1a2b",
        "0c:42",
        "login",
    ],
)
def test_private_name_is_nowhere(renamed: dict[str, object], name: str) -> None:
    assert name not in str(renamed).replace("node-070", "")


def test_the_same_name_has_the_same_alias(renamed: dict[str, object]) -> None:
    ranks, lines, env = renamed["ranks"], renamed["lines"], renamed["env"]
    assert isinstance(ranks, list) and isinstance(lines, list) and isinstance(env, dict)
    assert env["MASTER_ADDR"] == renamed["host"] != ranks[0]["host"]
    file = ranks[0]["where"].rpartition("/")[2]
    assert lines[0].startswith(f"{file} on {renamed['host']} waits for ")
    assert lines[9].splitlines()[0] == f"--- a/{file.partition(':')[0]}"
    assert f"/home/{env['USER']}/" in ranks[0]["where"]


def test_public_names_stay(renamed: dict[str, object]) -> None:
    lines = renamed["lines"]
    assert isinstance(lines, list)
    assert "127.0.0.1 and ::1 at 12:30:45" in lines[2]
    assert lines[5] == "/opt/conda/lib/python3.11/site-packages/torch/distributed/run.py:900 in run"
    assert "https://pytorch.org/docs/stable/notes/ddp.html" in lines[6]
    assert lines[7] == "/dev/shm is 64 MB, /proc/meminfo, 371 GB/s"
    assert lines[11] == CASE["lines"][11]
    assert lines[10] == "torch/distributed/distributed_c10d.py:4100"


@pytest.mark.parametrize("part", ["a@", "a-", "-a", "%"])
def test_time_is_linear_in_a_text_of_one_word(part: str) -> None:
    text = part * (80_000 // len(part))
    began = time.process_time()
    anonymizer = Anonymizer()
    anonymizer.learn({"text": text})
    anonymizer.text(text)
    assert time.process_time() - began < 3


def test_long_text_is_renamed_like_a_short_one() -> None:
    line = "node-7:1:1 [0] NCCL INFO /home/alice/secret-project/train.py from http://gpu-box.corp/x\n"
    short, long = Anonymizer(), Anonymizer()
    for each in (short, long):
        each.learn({"text": line, "hostname": "gpu-box"})
    assert long.text(line * 100) == short.text(line) * 100
