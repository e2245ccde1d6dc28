"""Handles that a function keeps and never reads, with programs that wait."""

import pytest
from helpers.review_snippets import lines

RING = """
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
def exchange(t):
    got = torch.empty_like(t)
    requests = []
BODY
    return got + t
exchange(torch.ones(2))
"""
SEND, RECEIVE = "dist.isend(t, (rank + 1) % world)", "dist.irecv(got, (rank - 1) % world)"
OPERATIONS = "[dist.P2POp(dist.isend, t, (rank + 1) % world), dist.P2POp(dist.irecv, got, (rank - 1) % world)]"


def ring(body: str) -> str:
    return RING.replace("BODY", "\n".join(f"    {line}" for line in body.split("\n")))


FOUND = {
    "a list": ring(f"requests = [{SEND}, {RECEIVE}]"),
    "two names": ring(f"first = {SEND}\nsecond = {RECEIVE}"),
    "append": ring(f"requests.append({SEND})\nrequests.append({RECEIVE})"),
    "an operation": ring(f"requests = dist.batch_isend_irecv({OPERATIONS})"),
    "a reduction": ring("work = dist.all_reduce(t, async_op=True)"),
    "a list that grows": ring(f"requests += [{SEND}, {RECEIVE}]"),
    "a comprehension": ring("requests = [dist.all_reduce(each, async_op=True) for each in t.chunk(2)]"),
}
HEALTHY = {
    "a loop that waits": ring(f"requests = [{SEND}, {RECEIVE}]\nfor each in requests:\n    each.wait()"),
    "a comprehension that waits": ring(f"requests = [{SEND}, {RECEIVE}]\n[each.wait() for each in requests]"),
    "two waits": ring(f"first = {SEND}\nsecond = {RECEIVE}\nfirst.wait()\nsecond.wait()"),
    "a result": ring(f"requests = [{SEND}, {RECEIVE}]\nreturn got, requests"),
    "a function that waits": ring(f"requests = [{SEND}, {RECEIVE}]\nwait_all(requests)"),
    "what the call gives": ring("work = dist.all_reduce(t)"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert lines(code, "DW415")


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW415") == []
