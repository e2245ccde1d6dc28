"""Sizes of a job as shell scripts, Slurm scripts and hostfiles write them."""

import pytest
from ddpwizard.app.launchers.launch_scripts import parse_hostfile, parse_shell_script


def facts(text: str) -> dict[str, object]:
    found = parse_shell_script("go.sh", text)
    return {fact.name: fact.value for fact in found.facts} if found else {}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("torchrun --nproc-per-node=4 train.py", {"nodes": 1, "torchrun": True, "ranks": 4}),
        ("torchrun --nproc-per-node=4 train.py --nnodes 2", {"nodes": 1, "torchrun": True, "ranks": 4}),
        ("torchrun --no-python --nnodes 2 --nproc-per-node 4 ./x", {"nodes": 2, "torchrun": True, "ranks": 8}),
        ("torchrun $ARGS --nproc-per-node=4 train.py", {"nodes": 1, "torchrun": True, "ranks": 4}),
        ("srun python -mtorch.distributed.run --nnodes $N train.py", {"torchrun": True}),
        ("deepspeed --num_gpus 4 train.py --num_nodes 3", {"ranks": 4}),
        ("deepspeed --num_accelerators 4 --num_nodes=2 train.py", {"ranks": 8}),
        ("deepspeed -H etc/hosts train.py", {"hostfile": "hosts"}),
        ("accelerate launch --num_processes=8 train.py --num_machines 2", {"ranks": 8}),
        ("accelerate config --num_processes 8", {}),
        ("pip install deepspeed accelerate", {}),
    ],
)
def test_launch_line(line: str, wanted: dict[str, object]) -> None:
    assert facts(f"#!/bin/sh\n{line}\n") == wanted


def test_slurm_variables_have_the_values_of_the_directives() -> None:
    text = "#SBATCH --nodes=3\n#SBATCH --gpus-per-node=4\nsrun torchrun \\\n  --nnodes=$SLURM_NNODES t.py\n"
    assert facts(text) == {"slurm_nodes": 3, "slurm_gpus": 4, "nodes": 3, "torchrun": True}


def test_hostfile() -> None:
    found = parse_hostfile("hosts", "# nodes\na slots=4\nb slots = 4\n")
    assert [(fact.name, fact.value, fact.where) for fact in found.facts] == [
        ("ranks", 8, "hosts:2"),
        ("nodes", 2, "hosts:2"),
    ]
