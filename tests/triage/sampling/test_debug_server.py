"""Records from torch's debug server (page of torch 2.13); any other server is ignored."""

import asyncio
import html
import time
from collections.abc import Awaitable, Callable

import pytest
from ddpwizard.app.triage.sampling import debug_server
from ddpwizard.app.triage.types import RankRecord
from helpers.flight_recorder_dumps import dump, entry, in_json

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def fetched(answer: Answer, limit_s: float = 30.0) -> list[RankRecord]:
    """Return the records fetched from a real server on a free port."""

    async def ask() -> list[RankRecord]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            return await debug_server.fetch_records(server.sockets[0].getsockname()[1], limit_s)

    return asyncio.run(ask())


def serving(content: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(content)
        writer.close()

    return answer


def test_records_of_every_rank_on_the_page() -> None:
    text = html.escape(in_json(dump([entry(1), entry(2)])).decode())
    ranks = "".join(f"\n<h2>Rank {n}: http://vm:5{n}/handler/fr_trace_json?</h2>\n\n <pre>{text}</pre>" for n in (0, 3))
    page = f"HTTP/1.0 200 OK\r\n\r\n<section><h1>FlightRecorder</h1>{ranks}</section>"
    assert [record.rank for record in fetched(serving(page.encode()))] == [0, 3]


@pytest.mark.parametrize(
    "content", [b"", b"HTTP/1.0 404 no\r\n\r\n", b"\x00" * 5000, b"<h2>Rank 0: x</h2><pre>junk</pre>", b"SSH-2.0-x\r\n"]
)
def test_another_server_has_no_records(content: bytes) -> None:
    assert fetched(serving(content)) == []


def test_server_that_never_answers() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    began = time.monotonic()
    assert fetched(silent, limit_s=0.5) == []
    assert time.monotonic() - began < 30


def test_closed_port_has_no_records() -> None:
    assert asyncio.run(debug_server.fetch_records(1)) == []
