"""Ranks that wait in init_process_group with arguments of their own, against the environment of the launch."""

import msgspec
import pytest
from ddpwizard.app.triage.types import Verdict
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still

TEXT = """
import os
import torch.distributed as dist
PORT = 29871
def size():
    return int(os.environ.get("NODES", 1)) * int(os.environ.get("GPUS", "4"))
def setup(world):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", GIVEN)  # WAIT
setup(int(os.getenv("WORLD_SIZE")))  # CALL
"""


def verdict(given: str, /, **environ: str) -> Verdict:
    ranks, text = 2, TEXT.replace("GIVEN", given)
    wait, call = lines_with(text, "WAIT", "# CALL")
    started = job(ranks)
    processes = [
        msgspec.structs.replace(each, environ={"RANK": str(each.rank), "WORLD_SIZE": str(ranks), **environ})
        for each in started.processes
    ]
    samples = still(stack("init_process_group", ("<module>", call), ("setup", wait)))
    of = msgspec.structs.replace(started, processes=processes)
    return judge_job(observation(of, {100 + rank: samples for rank in range(ranks)}, {SCRIPT: text})).verdict


@pytest.mark.parametrize(
    ("given", "environ", "shown"),
    [
        ("rank=rank, world_size=size()", {}, "for 4 ranks: world_size is 4 at train.py:9"),
        ("rank=rank, world_size=size()", {"GPUS": "8", "NODES": "2"}, "for 16 ranks"),
        ("rank=rank, world_size=world + 1", {}, "for 3 ranks"),
        ("None, None, 8, rank", {}, "for 8 ranks"),
        ("rank=0, world_size=world", {}, "several of them pass rank=0"),
        ("rank=rank // 2, world_size=world", {}, "several of them pass rank=0"),
    ],
)
def test_numbers_with_which_the_ranks_cannot_meet(given: str, environ: dict[str, str], shown: str) -> None:
    found = verdict(given, **environ)
    assert (found.state, found.cause) == ("hung", "env-contract-broken")
    assert shown in found.why
    assert "MASTER_PORT" not in found.why


def test_ranks_at_different_addresses() -> None:
    found = verdict('init_method=f"tcp://10.0.0.1:{PORT + rank}", rank=rank, world_size=world')
    assert found.cause == "rendezvous-mismatch"
    assert "tcp://10.0.0.1:29871, tcp://10.0.0.1:29872" in found.why


@pytest.mark.parametrize(
    ("given", "environ", "advice"),
    [
        ("rank=rank, world_size=world", {}, "Check MASTER_ADDR and MASTER_PORT (localhost:29500) next"),
        ("rank=rank, world_size=size()", {"GPUS": "2"}, "Check MASTER_ADDR"),
        ("rank=rank, world_size=args.world_size", {}, "Check MASTER_ADDR"),
        ("rank=rank, world_size=int(open('n').read())", {}, "Check MASTER_ADDR"),
        ('init_method="env://"', {}, "Check MASTER_ADDR"),
        (
            "init_method=f\"tcp://{os.environ['HEAD']}:{PORT}\", rank=rank, world_size=world",
            {"HEAD": "10.0.0.1"},
            "Check init_method (tcp://10.0.0.1:29871) next",
        ),
    ],
)
def test_arguments_that_fit_the_launch_or_are_not_known(given: str, environ: dict[str, str], advice: str) -> None:
    found = verdict(given, **environ)
    assert (found.state, found.cause) == ("hung", None)
    assert advice in found.why
