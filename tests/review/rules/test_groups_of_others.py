"""Groups that ranks make with other members than the rest, and sums that are divided by the GPUs of one node."""

import pytest
from helpers.review_snippets import found, lines

START = "dist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\n"
PAIRS = """
def make(size):
    for start in range(0, world, size):
        ranks = list(range(start, start + size))
        MAKE
GROUP = make(int(os.environ["SIZE"]))
"""
OTHERS = {
    "halves": "half = world // 2\ndist.new_group(list(range(half)) if rank < half else list(range(half, world)))\n",
    "a range": "first = rank // 2 * 2\ndist.new_group(list(range(first, first + 2)))\n",
    "a list": "first = rank // 2 * 2\ndist.new_group([first, first + 1])\n",
    "by name": "first = rank // 2 * 2\ndist.new_group(ranks=[first, first + 1], backend='gloo')\n",
}
ALIKE = {
    "alone": "dist.new_group([rank])\n",
    "in turn": "for first in range(0, world, 2):\n    dist.new_group([first, first + 1])\n",
    "members only": "first = rank // 2 * 2\ndist.new_group([first, first + 1], use_local_synchronization=True)\n",
    "all": "dist.new_group(list(range(world)))\n",
}


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS.keys())
def test_groups_with_members_of_each_rank_are_found(code: str) -> None:
    assert [each.severity for each in found(START + code, "DW462")] == ["warning"]


@pytest.mark.parametrize("code", ALIKE.values(), ids=ALIKE.keys())
def test_groups_that_do_not_meet_or_are_alike_are_not(code: str) -> None:
    assert found(START + code, "DW462") == []


def test_a_group_that_only_its_members_make_is_a_warning() -> None:
    guarded = "if rank in ranks:\n            return dist.new_group(ranksMORE)"
    code = START + PAIRS.replace("MAKE", guarded)
    assert [each.severity for each in found(code.replace("MORE", ""), "DW401")] == ["warning"]
    assert found(code.replace("MORE", ", use_local_synchronization=True"), "DW401") == []


def test_a_group_that_all_ranks_make_and_members_keep_is_right() -> None:
    kept = "group = dist.new_group(ranks)\n        if rank in ranks:\n            own = group\n    return own"
    assert found(START + PAIRS.replace("MAKE", kept), "DW401") == []


MEAN = """
dist.init_process_group("gloo")
def average(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        DIVIDE
average(torch.nn.Linear(2, 1))
"""


@pytest.mark.parametrize(
    "divide",
    [
        "p.grad /= torch.cuda.device_count()",
        "p.grad.div_(torch.cuda.device_count())",
        "count = torch.cuda.device_count()\n        p.grad /= count",
    ],
)
def test_a_sum_over_all_ranks_divided_by_the_gpus_of_a_node_is_found(divide: str) -> None:
    assert [each.severity for each in found(MEAN.replace("DIVIDE", divide), "DW455")] == ["warning"]


@pytest.mark.parametrize("divide", ["p.grad /= dist.get_world_size()", "print(torch.cuda.device_count())"])
def test_another_division_is_not(divide: str) -> None:
    assert lines(MEAN.replace("DIVIDE", divide), "DW455") == []


def test_the_gpus_of_the_only_node_are_all_ranks() -> None:
    started = """
    import torch.multiprocessing as mp
    def work(rank):
        dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=COUNT)
        loss = torch.ones(1, device=f"cuda:{rank}")
        dist.all_reduce(loss)
        loss /= torch.cuda.device_count()
    mp.spawn(work, nprocs=COUNT)
    """
    assert lines(started.replace("COUNT", "torch.cuda.device_count()"), "DW455") == []
