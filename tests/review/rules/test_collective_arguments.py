"""Arguments of collectives that do not fit the rank that passes them, and look-alikes that are right."""

import textwrap

import pytest
from helpers.review_snippets import lines, refused, repaired

START = """
dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
value = torch.ones(2)
"""

FOUND = {
    "each rank sends its own weights": ("DW416", "dist.broadcast(value, src=dist.get_rank())"),
    "each rank sends its own objects, in a function": (
        "DW416",
        """
        def share(items, root):
            dist.broadcast_object_list(items, root)
        share([1], rank)
        """,
    ),
    "each rank is the one that gets the sum": ("DW416", "dist.reduce(value, dst=rank)"),
    "a list on every rank": (
        "DW417",
        "dist.gather(value, [torch.zeros(2) for _ in range(world_size)], dst=0)",
    ),
    "a list of objects on every rank": ("DW417", "dist.gather_object(rank, [None] * world_size)"),
    "no list on the rank that gets all": (
        "DW417",
        """
        parts = [torch.zeros(2) for _ in range(world_size)] if rank == 0 else None
        dist.gather(value, parts, dst=1)
        """,
    ),
    "one tensor for all ranks": ("DW418", "dist.all_gather([torch.zeros(2)] * world_size, value)"),
    "one tensor for all ranks, by names": (
        "DW418",
        """
        place = torch.zeros_like(value)
        places = world_size * [place]
        dist.all_gather(places, value)
        """,
    ),
    "a sum that nothing waits for": ("DW415", "dist.all_reduce(value, async_op=True)\nvalue /= world_size"),
    "all ranks send first": (
        "DW419",
        """
        def exchange(value, left, right):
            dist.send(value, dst=right)
            dist.recv(value, src=left)
        exchange(value, (rank - 1) % world_size, (rank + 1) % world_size)
        """,
    ),
    "all ranks receive first": (
        "DW419",
        """
        dist.barrier()
        for step in range(3):
            dist.recv(value, src=(rank - 1) % world_size)
            dist.send(value, dst=(rank + 1) % world_size)
        """,
    ),
}

SILENT = {
    "rank 0 sends what the others get": (
        "DW416",
        """
        if rank == 0:
            dist.broadcast(value, src=0)
        else:
            dist.broadcast(value, src=0)
        for root in range(world_size):
            dist.broadcast(value, src=root)
        """,
    ),
    "the first rank of each group sends in its group": (
        "DW416",
        """
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        dist.broadcast(value, src=rank // 2 * 2, group=groups[rank // 2])
        """,
    ),
    "one rank that sends to a member": ("DW416", "if rank == 1:\n    dist.broadcast(value, rank, group)"),
    "a list on the rank that gets all": (
        "DW417",
        """
        parts = [torch.zeros(2) for _ in range(world_size)] if rank == 0 else None
        dist.gather(value, parts, dst=0)
        found = []
        if rank == 0:
            found = [None] * world_size
        dist.gather_object(rank, found)
        dist.gather(value, parts, group_dst=1)
        """,
    ),
    "a list for a rank that is an option": (
        "DW417",
        """
        def collect(dst):
            dist.gather(value, [torch.zeros(2) for _ in range(world_size)] if rank == dst else None, dst=dst)
        collect(int(os.environ["ROOT"]))
        """,
    ),
    "a tensor for each rank": (
        "DW418",
        """
        dist.all_gather([torch.zeros(2) for _ in range(world_size)], value)
        dist.all_gather_object([None] * world_size, rank)
        """,
    ),
    "a sum that is waited for": (
        "DW415",
        """
        works = [dist.all_reduce(part, async_op=True) for part in value]
        for work in works:
            work.wait()
        dist.all_reduce(value, async_op=True).wait()
        dist.all_reduce(value, async_op=False)
        """,
    ),
    "all ranks begin to send and then receive": (
        "DW419",
        """
        request = dist.isend(value, dst=(rank + 1) % world_size)
        dist.recv(torch.zeros(2), src=(rank - 1) % world_size)
        request.wait()
        """,
    ),
    "odd ranks receive first": (
        "DW419",
        """
        if rank % 2:
            dist.recv(value, src=rank - 1)
            dist.send(value, dst=rank - 1)
        else:
            dist.send(value, dst=rank + 1)
            dist.recv(value, src=rank + 1)
        """,
    ),
    "all ranks send without waiting": (
        "DW419",
        """
        sent = dist.isend(value, (rank + 1) % world_size)
        dist.recv(value, (rank - 1) % world_size)
        sent.wait()
        """,
    ),
    "a pipeline": (
        "DW419",
        """
        def forward(stage):
            if not stage.is_first:
                dist.recv(value, rank - 1)
            if not stage.is_last:
                dist.send(value, rank + 1)
        forward(make_stage(rank))
        """,
    ),
    "as many messages as ranks before": ("DW419", "for step in range(rank):\n    dist.recv(value, rank - 1)"),
}


@pytest.mark.parametrize("name", FOUND)
def test_an_argument_that_does_not_fit_is_found(name: str) -> None:
    rule, snippet = FOUND[name]
    assert len(lines(START + textwrap.dedent(snippet), rule)) == 1


@pytest.mark.parametrize("name", SILENT)
def test_an_argument_that_fits_is_not(name: str) -> None:
    rule, snippet = SILENT[name]
    assert lines(START + textwrap.dedent(snippet), rule) == []


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("one tensor for all ranks", "[torch.zeros(2) for _ in range(world_size)], value"),
        ("one tensor for all ranks, by names", "places = [place.clone() for _ in range(world_size)]"),
    ],
)
def test_each_rank_gets_a_tensor_of_its_own(name: str, after: str) -> None:
    rule, snippet = FOUND[name]
    assert after in repaired(START + textwrap.dedent(snippet), rule)


RING = """
got = torch.zeros_like(value)
dist.recv(got, src=(rank - 1) % world_size)
dist.send(value, dst=(rank + 1) % world_size)
"""


def test_a_receive_and_the_send_behind_it_become_one_exchange() -> None:
    receive, send = "dist.P2POp(dist.irecv, got, (rank - 1) % world_size)", "dist.P2POp(dist.isend, value, "
    after = repaired(START + RING, "DW419")
    assert f"for request in dist.batch_isend_irecv([{receive}, {send}(rank + 1) % world_size)]):\n" in after
    assert after.endswith("    request.wait()\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [("(got", "(value"), ("world_size)\ndist.send", "world_size)\ngot += 1\ndist.send"), ("world_size)", "2, tag=1)")],
    ids=["what is received is sent", "work in between", "a tag"],
)
def test_an_exchange_that_would_change_what_is_sent_is_not_made(old: str, new: str) -> None:
    assert "even ranks send first" in refused(START + RING.replace(old, new), "DW419")
