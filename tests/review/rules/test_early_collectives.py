"""DW104: collectives of tensors on the current GPU, before a rank selects its own."""

import pytest
from helpers.review_snippets import lines

SET_UP = """
from library.devices import set_cuda_device_index

def set_up(local_rank, cfg):
    dist.init_process_group({backend})
    {code}
"""
EARLY = {
    "reduced": "dist.all_reduce(torch.zeros(1).cuda())\n    torch.cuda.set_device(local_rank)",
    "by a name": "first = torch.ones(1, device='cuda')\n    dist.broadcast(first, 0)\n"
    "    torch.cuda.set_device(local_rank)",
    "moved": "dist.all_reduce(torch.zeros(1).to('cuda'))\n    torch.cuda.set_device(local_rank)",
    "selected by a helper": "dist.all_reduce(torch.zeros(1).cuda())\n    set_cuda_device_index(local_rank)",
    "where NCCL is used": "if cfg.DISTRIBUTED.BACKEND == 'nccl':\n        dist.all_reduce(torch.zeros(1).cuda())\n"
    "    torch.cuda.set_device(local_rank)",
}
LATER = {
    "selected before": "torch.cuda.set_device(local_rank)\n    dist.all_reduce(torch.zeros(1).cuda())",
    "by its number": "dist.all_reduce(torch.zeros(1).cuda(local_rank))\n    torch.cuda.set_device(local_rank)",
    "on the CPU": "dist.all_reduce(torch.zeros(1))\n    torch.cuda.set_device(local_rank)",
    "selected by nothing": "dist.all_reduce(torch.zeros(1).cuda())",
    "selected twice": "torch.cuda.set_device(local_rank)\n    dist.all_reduce(torch.zeros(1).cuda())\n"
    "    torch.cuda.set_device(local_rank)",
}


@pytest.mark.parametrize("code", EARLY.values(), ids=EARLY.keys())
def test_a_collective_before_the_selection_is_found(code: str) -> None:
    found = lines(SET_UP.format(backend="'nccl'", code=code), "DW104")
    assert any(line.startswith("dist.") for line in found)


@pytest.mark.parametrize("code", LATER.values(), ids=LATER.keys())
def test_others_are_not(code: str) -> None:
    assert lines(SET_UP.format(backend="'nccl'", code=code), "DW104") == []


@pytest.mark.parametrize("backend", ["'gloo'", "'nccl', device_id=torch.device('cuda', local_rank)"])
def test_other_process_groups_are_not(backend: str) -> None:
    assert lines(SET_UP.format(backend=backend, code=EARLY["reduced"]), "DW104") == []
