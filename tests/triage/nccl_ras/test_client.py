"""NCCL's RAS service, replaced by a server on a real socket.

It uses the protocol of NCCL 2.30 (src/ras/client_support.cc) and replays the answers printed in NCCL's documentation
(troubleshooting/ras.rst).
"""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.triage.nccl_ras import parse
from ddpwizard.app.triage.nccl_ras.client import query_ras, verdict_from_ras
from ddpwizard.app.triage.types import LaunchedOperation, Observation, ProcessSamples, RasProcess, RasStatus

SUMMARY = """NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
WELL = (
    SUMMARY
    + "    0         8         4         1         4        32   RUNNING      OK\n\n"
    + "Errors\n======\n\nWarnings\n========\n"
)
# The row and the section of the documentation, for NCCL 2.24 and 2.25.
MISMATCH = (
    SUMMARY
    + """    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  6 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 3 -- GPU 3 managed by process 483075 on node 172.16.64.210
  Rank 4 -- GPU 4 managed by process 483076 on node 172.16.64.210
  Rank 5 -- GPU 5 managed by process 483077 on node 172.16.64.210
  Rank 7 -- GPU 7 managed by process 483079 on node 172.16.64.210

"""
)
INCOMPLETE = (
    SUMMARY
    + """    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
)
DEAD = INCOMPLETE.replace(
    "INCOMPLETE\n  Missing communicator data from 1 job process",
    "DEAD\n  1 job process is considered dead (unreachable via the RAS network)",
)
FINALIZING = (
    SUMMARY
    + """    0         1         4       1-2        32        32  FINALIZE  MISMATCH

#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  4 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 507285 on node 172.16.64.210
"""
)


def rank(number: int, counts: dict[str, int], **status: Any) -> dict[str, Any]:
    """Return a rank as in the JSON of the documentation."""
    return {
        "rank": number,
        "host": "172.16.64.245",
        "pid": 1524344 + number,
        "cuda_dev": number,
        "nvml_dev": number,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
            **status,
        },
        "collective_counts": {
            "Broadcast": 0,
            "Reduce": 0,
            "AllGather": 0,
            "ReduceScatter": 0,
            "AllReduce": 0,
            **counts,
        },
    }


def missing(number: int, dead: bool = False) -> dict[str, Any]:
    status = {"unresponsive": True, "considered_dead": dead}
    return {"rank": number, "host": "172.16.64.245", "pid": 1524344 + number, "cuda_dev": number, "status": status}


def answer(ranks: Sequence[dict[str, Any]], gone: Sequence[dict[str, Any]] = ()) -> str:
    communicator = {
        "hash": "0xae94423cfbb2ef4a",
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(ranks) + len(gone),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(gone),
        "ranks": list(ranks),
        "missing_ranks": list(gone),
    }
    whole = {
        "nccl_version": "2.29.1",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2025-12-19 13:06:53",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.000, "timeouts_count": 0},
    }
    return json.dumps(whole, indent=2)


def reducing(*counts: int) -> str:
    return answer([rank(number, {"AllReduce": count}) for number, count in enumerate(counts)])


def observed(ras: RasStatus, world_size: int, pids: Sequence[int] = ()) -> Observation:
    job = Job(
        launcher="torchrun",
        launcher_pid=1,
        launcher_command=[],
        world_size=world_size,
        master="",
        host="node-1",
        processes=[],
    )
    processes = [
        Process(pid=pid, rank=number, local_rank=number, command=[], cwd="", python="", environ={})
        for number, pid in enumerate(pids)
    ]
    return Observation(job=job, seen=[ProcessSamples(process=process, host="node-1") for process in processes], ras=ras)


def steadily(text: str) -> RasStatus:
    """Return the status after two equal answers."""
    return msgspec.structs.replace(parse.parse_answer(text), steady=True)


class Service:
    """Answers like NCCL's RAS thread: line by line, the status last; then it closes the connection.

    ``answers`` are used in turn, the last one repeatedly. ``json``: SET FORMAT is supported (2.28.7).
    """

    def __init__(self, *answers: str, json: bool = True) -> None:
        self.answers, self.json, self.received = list(answers), json, list[str]()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).decode().strip():
            self.received.append(line)
            word = line.lower()
            if word.startswith("client protocol "):
                writer.write(b"SERVER PROTOCOL 2\n")
            elif word.startswith("timeout ") or (word.startswith("set format ") and self.json):
                writer.write(b"OK\n")
            elif word in ("status", "verbose status"):
                writer.write((self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]).encode())
                break
            else:
                writer.write(f"ERROR: Unknown command {line}\n".encode())
            await writer.drain()
        await writer.drain()
        writer.close()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def queried(handler: Handler, limit_s: float = 30.0) -> tuple[RasStatus | None, float]:
    """Return the result of ``query_ras`` for a service, and how long it took."""

    async def both() -> tuple[RasStatus | None, float]:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        began = time.monotonic()
        try:
            return await query_ras("127.0.0.1", port, limit_s), time.monotonic() - began
        finally:
            server.close()

    return asyncio.run(both())


class TestQuery:
    def test_json_if_the_service_supports_it(self) -> None:
        service = Service(reducing(7, 7))
        ras, _ = queried(service)
        assert ras and ras.version == "2.29.1"
        assert service.received == ["CLIENT PROTOCOL 2", "TIMEOUT 15", "SET FORMAT json", "VERBOSE STATUS"]

    def test_text_if_the_service_has_no_json(self) -> None:
        ras, _ = queried(Service(WELL, json=False))
        assert ras and ras.version == "2.26.2" and not ras.problem
        assert ras.text == WELL

    def test_different_counts_are_queried_twice(self) -> None:
        ras, _ = queried(Service(reducing(7, 7, 6)))
        assert ras and ras.steady

    def test_changing_counts_are_not_steady(self) -> None:
        ras, _ = queried(Service(reducing(7, 7, 6), reducing(9, 9, 8)))
        assert ras and not ras.steady

    def test_closed_port_has_no_status(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            began = time.monotonic()
            assert asyncio.run(query_ras("127.0.0.1", unused.getsockname()[1], limit_s=60)) is None
        assert time.monotonic() - began < 30

    def test_service_that_never_answers(self) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        ras, took_s = queried(silent, limit_s=0.5)
        assert ras is None
        assert took_s < 30

    def test_service_that_stops_within_its_answer(self) -> None:
        async def stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SERVER PROTOCOL 2\nOK\nOK\n{")
            await reader.read()
            writer.close()

        ras, took_s = queried(stops, limit_s=0.5)
        assert ras is None
        assert took_s < 30

    def test_another_server_has_no_status(self) -> None:
        async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        assert queried(web)[0] is None

    @pytest.mark.parametrize("flood", [b"x" * (1 << 16), b"line\n" * 10_000])
    def test_endless_answer_is_cut(self, flood: bytes) -> None:
        async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SERVER PROTOCOL 2\nOK\nOK\n")
            try:
                while True:
                    writer.write(flood)
                    await writer.drain()
            except OSError:
                writer.close()

        ras, took_s = queried(floods, limit_s=60)
        assert took_s < 60
        assert ras is None or (ras.problem and len(ras.text) < 1 << 20)

    def test_endless_handshake_is_cut(self) -> None:
        async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    writer.write(b"x" * (1 << 16))
                    await writer.drain()
            except OSError:
                writer.close()

        assert queried(floods)[0] is None


class TestParse:
    def test_counts_in_json(self) -> None:
        ras = parse.parse_answer(reducing(7, 7, 6))
        [communicator] = ras.communicators
        assert (communicator.id, communicator.size) == ("ae94423cfbb2ef4a", 3)
        assert [group for group in communicator.launched if group.operation == "AllReduce"] == [
            LaunchedOperation(operation="AllReduce", count=7, size=2, ranks=[0, 1]),
            LaunchedOperation(operation="AllReduce", count=6, size=1, ranks=[2]),
        ]
        assert communicator.ranks[1] == RasProcess(rank=1, host="172.16.64.245", pid=1524345, device=1)

    def test_missing_and_dead_ranks_in_json(self) -> None:
        ras = parse.parse_answer(answer([rank(0, {})], [missing(1, dead=True)]))
        assert [(each.rank, each.pid, each.dead) for each in ras.communicators[0].missing] == [(1, 1524345, True)]

    def test_rank_that_left_a_communicator_is_not_missing(self) -> None:
        left = missing(1) | {"status": {"unresponsive": False, "considered_dead": False}}
        assert parse.parse_answer(answer([rank(0, {})], [left])).communicators[0].missing == []

    def test_init_state_and_errors_in_json(self) -> None:
        [communicator] = parse.parse_answer(
            answer([rank(0, {}, init_state=7), rank(1, {}, async_error=6), rank(2, {}, init_state=2)])
        ).communicators
        assert (communicator.starting, communicator.failed) == ([0], {1: 6, 2: 2})

    def test_counts_in_text(self) -> None:
        [communicator] = parse.parse_answer(MISMATCH).communicators
        assert communicator.size == 32
        assert communicator.launched == [
            LaunchedOperation(operation="", count=6650, size=26),
            LaunchedOperation(operation="", count=6649, size=6, ranks=[0, 2, 3, 4, 5, 7]),
        ]

    def test_counts_of_one_operation_and_rank_in_text(self) -> None:
        text = MISMATCH.replace("different collective operation", "different AllReduce operation")
        head, _, _ = text.partition("  26 ranks")
        text = (
            f"{head}  31 ranks have launched up to operation 12\n"
            "  Rank 5 has launched up to operation 11 -- GPU 5 managed by process 77 on node 10.0.0.1\n"
        )
        assert parse.parse_answer(text).communicators[0].launched == [
            LaunchedOperation(operation="AllReduce", count=12, size=31),
            LaunchedOperation(operation="AllReduce", count=11, size=1, ranks=[5]),
        ]

    def test_missing_ranks_in_text(self) -> None:
        ras = parse.parse_answer(INCOMPLETE)
        assert [each.rank for each in ras.communicators[0].missing] == [21]
        assert ras.gone == [RasProcess(rank=None, host="172.16.64.213", pid=3487984, device=5)]
        assert ras.timeouts == 2
        assert parse.parse_answer(DEAD).gone[0].dead

    def test_missing_ranks_with_processes_in_text(self) -> None:
        text = INCOMPLETE.replace(
            "  The missing rank: 21", "  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213"
        )
        [gone] = parse.parse_answer(text).communicators[0].missing
        assert (gone.rank, gone.pid, gone.host, gone.device) == (21, 3487984, "172.16.64.213", 5)

    def test_finalizing_ranks_are_not_counts(self) -> None:
        [communicator] = parse.parse_answer(FINALIZING).communicators
        assert communicator.launched == [] and communicator.missing == []

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"communicators": 3}', "{" * 100_000, "\x00\xff", '{"communicators":[{"size":1e400}]}']
    )
    def test_invalid_answer_is_a_problem(self, text: str) -> None:
        assert parse.parse_answer(text).problem

    def test_hostile_text_is_parsed_in_time(self) -> None:
        text = INCOMPLETE + "The missing rank: " + "9, " * 20_000 + "\nRank " + "1" * 5000 + " -- GPU\n" * 1000
        began = time.thread_time()
        parse.parse_answer(text)
        assert time.thread_time() - began < 5


class TestVerdict:
    def test_rank_that_launched_less(self) -> None:
        verdict = verdict_from_ras(observed(steadily(reducing(7, 7, 6, 7)), 4))
        assert verdict and (verdict.state, verdict.cause, verdict.culprits) == ("hung", None, [2])
        assert verdict.collective == "all_reduce"
        assert verdict.why == (
            "By NCCL's count, rank 2 has not launched every all_reduce that the others have, "
            "and the counts do not change."
        )
        assert verdict.confidence < 0.7  # ranks may run ahead of a GPU that is stuck

    def test_counts_that_may_still_change_have_no_verdict(self) -> None:
        assert verdict_from_ras(observed(parse.parse_answer(reducing(7, 7, 6, 7)), 4)) is None

    def test_rank_that_launched_other_collectives(self) -> None:
        ranks = [rank(number, {"AllReduce": 7, "Broadcast": 2}) for number in range(3)]
        verdict = verdict_from_ras(observed(steadily(answer([*ranks, rank(3, {"AllReduce": 6, "Broadcast": 3})])), 4))
        assert verdict and (verdict.cause, verdict.culprits) == ("collective-desync", [3])

    def test_rank_that_launched_more(self) -> None:
        verdict = verdict_from_ras(observed(steadily(reducing(7, 8, 7, 7)), 4))
        assert verdict and verdict.culprits == [1]
        assert verdict.confidence < 0.5

    def test_equal_counts_have_no_verdict(self) -> None:
        assert verdict_from_ras(observed(steadily(reducing(7, 7, 7, 7)), 4)) is None

    def test_ranks_that_are_behind_in_text(self) -> None:
        verdict = verdict_from_ras(observed(steadily(MISMATCH), 32))
        assert verdict and verdict.culprits == [0, 2, 3, 4, 5, 7]

    def test_rank_that_does_not_answer(self) -> None:
        verdict = verdict_from_ras(observed(parse.parse_answer(INCOMPLETE), 32))
        assert verdict and (verdict.cause, verdict.culprits) == (None, [21])
        assert verdict.why == "NCCL's RAS service gets no answer from rank 21: stopped, overloaded or gone."

    def test_rank_that_is_dead(self) -> None:
        verdict = verdict_from_ras(
            observed(parse.parse_answer(answer([rank(0, {}), rank(1, {})], [missing(2, dead=True)])), 3)
        )
        assert verdict and (verdict.cause, verdict.culprits) == ("rank-died-survivors-wait", [2])

    def test_ranks_of_a_subgroup_are_identified_by_pid(self) -> None:
        ras = parse.parse_answer(answer([rank(0, {})], [missing(1)]))
        verdict = verdict_from_ras(observed(ras, 4, pids=[11, 1524344, 12, 1524345]))
        assert verdict and verdict.culprits == [3]
        assert verdict_from_ras(observed(ras, 4)) is None

    def test_unreadable_answer_has_no_verdict(self) -> None:
        assert verdict_from_ras(observed(RasStatus(text="", problem="unreadable"), 2)) is None
