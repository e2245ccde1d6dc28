"""Read torch's debug server (``torch.distributed.debug.start_debug_server``, torch 2.10 and newer) if the user's code
started one: a child of rank 0 answers for the ranks of all nodes.

The format of its page is that of torch 2.13 (``torch/distributed/debug/_frontend.py``).
"""

import asyncio
import html
import re
from collections.abc import Iterable

from ...jobs.types import Job
from ...system import procfs, sockets
from ...system.waiting import wait_for
from ..flight_recorder.parse import parse_json_record
from ..types import RankRecord
from .children import WatchedChild

LIMIT_S = 5.0
ANSWER_LIMIT_BYTES = 256 * 1024 * 1024
RANK_SECTION = re.compile(r"<h2>Rank (\d+): [^<]*</h2>\s*<pre>(.*?)</pre>", re.DOTALL)


def debug_ports(job: Job, children: Iterable[WatchedChild]) -> list[int]:
    """Return the ports on which a child of a rank listens, without sockets inherited from the rank."""
    of_rank = {process.pid: procfs.open_sockets(process.pid) for process in job.processes}
    found: set[int] = set()
    for child in children:
        own = procfs.open_sockets(child.proc.pid) - of_rank.get(child.rank_pid, frozenset())
        table = sockets.read_tcp_sockets(child.proc.pid) if own and not child.loader else {}
        found |= {table[inode].local[1] for inode in own if inode in table and table[inode].state == sockets.LISTEN}
    return sorted(found)


async def fetch_records(port: int, limit_s: float = LIMIT_S) -> list[RankRecord]:
    """Return the Flight Recorder records of all ranks from the server on this port, or [] if it is another server."""
    try:
        page = await wait_for(limit_s, _page(port, "/fr_trace_json"))
    except (OSError, asyncio.TimeoutError):
        return []
    found: list[RankRecord] = []
    for rank, text in RANK_SECTION.findall(page.decode(errors="replace")):
        try:
            found.append(parse_json_record(html.unescape(text).encode(), rank=int(rank)))
        except ValueError:
            continue
    return found


async def _page(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        page = bytearray()
        while (chunk := await reader.read(1 << 16)) and len(page) < ANSWER_LIMIT_BYTES:
            page += chunk
        return bytes(page)
    finally:
        writer.close()
