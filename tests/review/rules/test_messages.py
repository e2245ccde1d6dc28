"""DW431: the messages of two ranks, counted and in order, in the loops that a program writes out."""

import pytest
from helpers.review_snippets import found, lines

START = """
STEPS, EVERY = 6, 3
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.zeros(4)
"""
PIPELINE = (
    START
    + """
class First:
    def exchange(self):
        dist.send(x, dst=1)
        dist.recv(x, src=1)
    def run(self):
        for step in range(STEPS):
            self.exchange()
            if (step + 1) % EVERY == 0:
                dist.send(x, dst=1)
class Second:
    def take(self):
        dist.recv(x, src=0)
    def run(self):
        for step in range(STEPS):
            self.take()
            dist.send(x, dst=0)
            if TEST:
                self.take()
stage = First() if rank == 0 else Second()
stage.run()
"""
)
SERVER = (
    START
    + """
def server(workers):
    for step in range(STEPS):
        for worker in workers:
            dist.recv(x, src=worker, tag=step)
        for worker in workers:
            dist.send(x, dst=worker, tag=step)
def worker():
    for step in ROUNDS:
        dist.send(x, dst=0, tag=step)
        dist.recv(x, src=0, tag=step)
if rank == 0:
    server(range(1, size))
else:
    worker()
dist.barrier()
"""
)
TWO = START + "if rank == 0:\n    FIRST\nelif rank == 1:\n    SECOND\n"


def two(first: str, second: str) -> str:
    return TWO.replace("FIRST", first.replace("\n", "\n    ")).replace("SECOND", second.replace("\n", "\n    "))


FOUND = {
    "another round of the evaluation": (PIPELINE.replace("TEST", "step % EVERY == 0"), "if step % EVERY == 0:"),
    "tags from another number": (
        SERVER.replace("ROUNDS", "range(1, STEPS + 1)"),
        "for step in range(1, STEPS + 1):",
    ),
    "a round too few": (SERVER.replace("ROUNDS", "range(STEPS - 1)"), "dist.send(x, dst=worker, tag=step)"),
    "other tags": (
        two("dist.send(x, dst=1, tag=1)", "dist.recv(x, src=0, tag=2)"),
        "dist.send(x, dst=1, tag=1)",
    ),
    "the order of tags": (
        two(
            "dist.send(x, dst=1, tag=0)\ndist.send(x, dst=1, tag=7)",
            "dist.recv(x, src=0, tag=7)\ndist.recv(x, src=0, tag=0)",
        ),
        "dist.send(x, dst=1, tag=0)",
    ),
    "a barrier before the message is received": (
        two("dist.send(x, dst=1)\ndist.barrier()", "dist.barrier()\ndist.recv(x, src=0)"),
        "dist.send(x, dst=1)",
    ),
    "a message that is sent and not received": (
        two("for _ in range(3):\n    dist.send(x, dst=1)", "for _ in range(2):\n    dist.recv(x, src=0)"),
        "dist.send(x, dst=1)",
    ),
}
RIGHT = {
    "the same round of the evaluation": PIPELINE.replace("TEST", "(step + 1) % EVERY == 0"),
    "the same round, asked otherwise": PIPELINE.replace("TEST", "step % EVERY == EVERY - 1"),
    "the same tags": SERVER.replace("ROUNDS", "range(STEPS)"),
    "the same tags from another number": SERVER.replace("ROUNDS", "range(STEPS)").replace("tag=step", "tag=step + 1"),
    "messages in turn": two(
        "dist.send(x, dst=1)\ndist.recv(x, src=1)",
        "dist.recv(x, src=0)\ndist.send(x, dst=0)",
    ),
    "a message that is on its way while others are sent": two(
        "work = dist.isend(x, dst=1)\ndist.recv(x, src=1)\nwork.wait()",
        "dist.send(x, dst=0)\ndist.recv(x, src=0)",
    ),
    "a number of rounds that is not known": SERVER.replace("ROUNDS", "range(int(os.environ['STEPS']))"),
    "a peer that is not known": two("dist.send(x, dst=int(os.environ['PEER']))", "dist.recv(x, src=0)"),
    "a check that may raise": SERVER.replace("ROUNDS", "range(STEPS)").replace(
        "        for worker in workers:\n            dist.send",
        "        if x.isnan().any():\n            raise ValueError\n"
        "        for worker in workers:\n            dist.send",
    ),
}


@pytest.mark.parametrize(("code", "line"), FOUND.values(), ids=FOUND)
def test_ranks_that_wait_for_a_message_are_found(code: str, line: str) -> None:
    assert lines(code, "DW431") == [line]


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_nothing_where_each_message_arrives(code: str) -> None:
    assert found(code, "DW431") == []
