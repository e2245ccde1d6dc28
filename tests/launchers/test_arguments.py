"""What a launcher was asked for, from its command line and its variables."""

import os

import pytest
from ddpwizard.app.launchers.arguments import LaunchRequest, launch_request

CORES = os.cpu_count()


def of(options: str, **environ: str) -> LaunchRequest:
    return launch_request(["python", "-m", "torch.distributed.run", *options.split()], environ)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("train.py --nnodes=4", LaunchRequest()),
        ("--standalone --nproc_per_node 8 train.py", LaunchRequest(ranks_per_node=8)),
        ("--nnodes=2 --nproc-per-node=cpu train.py", LaunchRequest(least_nodes=2, most_nodes=2, ranks_per_node=CORES)),
        (
            "--nnodes 2:4 --rdzv-id=a7 --rdzv_endpoint=head:29400 -m pack.train --nnodes 9",
            LaunchRequest(least_nodes=2, most_nodes=4, endpoint="head:29400", run_id="a7"),
        ),
        (
            "--nnodes=3 --node_rank=1 --master_addr 10.0.0.1 --master-port=29501 train.py",
            LaunchRequest(least_nodes=3, most_nodes=3, node_rank=1, endpoint="10.0.0.1:29501"),
        ),
        ("--nnodes=many --nproc-per-node=xpu train.py", LaunchRequest(ranks_per_node=None)),
    ],
)
def test_options(options: str, wanted: LaunchRequest) -> None:
    assert of(options) == wanted


def test_accelerate_says_the_same_in_other_words() -> None:
    options = "--num_machines 2 --num_processes=16 --machine_rank 1 --main_process_ip 10.0.0.1 --main_process_port=4711"
    found = launch_request(["python", "accelerate", "launch", *options.split(), "train.py", "--num_machines", "9"], {})
    assert found == LaunchRequest(least_nodes=2, most_nodes=2, ranks_per_node=8, node_rank=1, endpoint="10.0.0.1:4711")


def test_variables_stand_in_for_options_and_options_go_first() -> None:
    found = of("--nproc-per-node=3 train.py", PET_NNODES="2:5", PET_NPROC_PER_NODE="8", PET_RDZV_ENDPOINT="head:1")
    assert (found.least_nodes, found.most_nodes, found.ranks_per_node, found.endpoint) == (2, 5, 3, "head:1")


def test_as_many_ranks_as_gpus_are_visible() -> None:
    assert of("--nproc-per-node=gpu train.py", CUDA_VISIBLE_DEVICES="0,3,5").ranks_per_node == 3
    assert of("--nproc-per-node=auto train.py", CUDA_VISIBLE_DEVICES="").ranks_per_node == CORES
