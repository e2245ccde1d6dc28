"""Command lines and environments for a second start of the same job."""

import pytest
from ddpwizard.app.launchers.arguments import parse_launcher
from ddpwizard.app.launchers.rewrite import environment_to_start_again, start_again


def rewritten(line: str) -> list[str]:
    found = parse_launcher(line.split())
    assert found
    return [*start_again(found), *found.script_words]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "torchrun --nnodes 1 --nproc-per-node=2 --master_port 29500 --log-dir logs train.py --master_port 1",
            "torchrun --standalone --nproc-per-node=2 train.py --master_port 1",
        ),
        (
            "python -mtorch.distributed.run --rdzv-endpoint=a:1 --rdzv_backend c10d -m pkg.train",
            "python -m torch.distributed.run --standalone -m pkg.train",
        ),
        ("torchrun --stand --no-python ./run.sh", "torchrun --standalone --no-python ./run.sh"),
    ],
)
def test_torchrun_meets_elsewhere(line: str, wanted: str) -> None:
    assert rewritten(line) == wanted.split()


def test_deepspeed_and_accelerate_take_a_free_port() -> None:
    words = rewritten("deepspeed --no_local_rank --master_port 29500 train.py")
    assert words[0] == "deepspeed"
    assert words[1].startswith("--master_port=")
    assert words[2:] == ["--no_local_rank", "train.py"]
    words = rewritten("accelerate launch --main_process_port=29500 --cpu train.py")
    assert words[2].startswith("--main_process_port=")
    assert words[3:] == ["--cpu", "train.py"]


def test_environment_keeps_variables_of_the_user() -> None:
    environ = {"RANK": "0", "NODE_RANK": "0", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "4", "LOCAL_CACHE": "/tmp"}
    kept = environment_to_start_again(environ, "torchrun")
    assert kept == {"PET_NPROC_PER_NODE": "4", "LOCAL_CACHE": "/tmp"}
    assert environment_to_start_again(environ, "deepspeed") == {"LOCAL_CACHE": "/tmp"}
