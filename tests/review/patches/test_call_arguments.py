"""Patches of one call and its arguments, and calls that are left to a person."""

import textwrap

import pytest
from helpers.review_snippets import refused, repaired

START = """
dist.init_process_group("gloo")
rank = dist.get_rank()
world = dist.get_world_size()
"""

PATCHED: dict[str, tuple[str, str, str]] = {
    "a sum in the background": (
        "DW415",
        """
        total = torch.ones(1)
        dist.all_reduce(total, async_op=True)
        print(total)
        """,
        """
        total = torch.ones(1)
        dist.all_reduce(total, async_op=False)
        print(total)
        """,
    ),
    "a message of one rank": (
        "DW415",
        """
        held = torch.ones(1)
        if rank == 0:
            dist.isend(held, dst=1)
            held.zero_()
        elif rank == 1:
            dist.recv(held, src=0)
        """,
        """
        held = torch.ones(1)
        if rank == 0:
            dist.isend(held, dst=1).wait()
            held.zero_()
        elif rank == 1:
            dist.recv(held, src=0)
        """,
    ),
    "the weights of each rank": (
        "DW416",
        """
        dist.broadcast(torch.ones(1), rank)
        """,
        """
        dist.broadcast(torch.ones(1), 0)
        """,
    ),
    "a list on each rank": (
        "DW417",
        """
        held = [torch.zeros(1) for _ in range(world)]
        dist.gather(torch.ones(1), held, dst=1)
        """,
        """
        held = [torch.zeros(1) for _ in range(world)]
        dist.gather(torch.ones(1), held if dist.get_rank() == 1 else None, dst=1)
        """,
    ),
    "a part of a part": (
        "DW241",
        """
        from torch.utils.data import DistributedSampler
        own = list(range(9))[rank::world]
        sampler = DistributedSampler(own, shuffle=False)
        """,
        """
        from torch.utils.data import DistributedSampler
        own = list(range(9))[rank::world]
        sampler = DistributedSampler(own, shuffle=False, num_replicas=1, rank=0)
        """,
    ),
    "a file that rank 0 has just written": (
        "DW505",
        """
        if rank == 0:
            torch.save(torch.ones(1), "start.pt")
        start = torch.load("start.pt", map_location="cpu")
        """,
        """
        if rank == 0:
            torch.save(torch.ones(1), "start.pt")
        if dist.is_initialized():
            dist.barrier()
        start = torch.load("start.pt", map_location="cpu")
        """,
    ),
    "a directory that every rank deletes": (
        "DW412",
        """
        import shutil
        shutil.rmtree("out")
        print("done")
        """,
        """
        import shutil
        if not dist.is_initialized() or dist.get_rank() == 0:
            shutil.rmtree("out")
        if dist.is_initialized():
            dist.barrier()
        print("done")
        """,
    ),
    "a directory that each rank may see": (
        "DW412",
        """
        import shutil
        if os.path.exists("out"):
            shutil.rmtree("out")
        print("done")
        """,
        """
        import shutil
        if os.path.exists("out"):
            if not dist.is_initialized() or dist.get_rank() == 0:
                shutil.rmtree("out")
        print("done")
        """,
    ),
}

REFUSED: dict[str, tuple[str, str, str]] = {
    "a file that a rank may not see yet": (
        "DW505",
        """
        if rank == 0:
            torch.save(torch.ones(1), "start.pt")
        if os.path.exists("start.pt"):
            start = torch.load("start.pt", map_location="cpu")
        """,
        "call barrier() on every rank",
    ),
    "a message of every rank that none receives": (
        "DW415",
        """
        held = torch.ones(1)
        dist.isend(held, dst=(rank + 1) % world)
        held.zero_()
        """,
        "call its wait()",
    ),
    "a sum for each rank": (
        "DW416",
        """
        dist.reduce(torch.ones(1), dst=rank)
        """,
        "the same rank",
    ),
    "a seed that is the rank": (
        "DW205",
        """
        from torch.utils.data import DistributedSampler
        sampler = DistributedSampler(list(range(9)), seed=rank)
        """,
        "the same seed",
    ),
}


@pytest.mark.parametrize("name", PATCHED)
def test_patch(name: str) -> None:
    rule, before, after = PATCHED[name]
    assert repaired(START + textwrap.dedent(before), rule) == START + textwrap.dedent(after)


@pytest.mark.parametrize("name", REFUSED)
def test_no_patch(name: str) -> None:
    rule, code, reason = REFUSED[name]
    assert reason in refused(START + textwrap.dedent(code), rule)
