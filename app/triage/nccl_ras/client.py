"""Query NCCL's RAS service (since NCCL 2.24, port 28028 of each host with an NCCL job), and judge its answer.

The protocol is that of ``ncclras`` (src/ras/client.cc of NCCL 2.30): lines of text, each answered by a line; the status
comes last, until the connection closes.
"""

import asyncio
from contextlib import suppress

import msgspec

from ...system.waiting import wait_for
from .. import phrases
from ..types import Communicator, LaunchedOperation, Observation, RasProcess, RasStatus, Verdict
from . import parse

__all__ = ["RasStatus", "query_ras", "verdict_from_ras"]

PORT = 28028
PROTOCOL = 2
MOST_BYTES = 8 << 20
SECOND_QUERY_S = 0.25
NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "ReduceScatter": "reduce_scatter",
}


async def query_ras(host: str = "localhost", port: int = PORT, limit_s: float = 2.0) -> RasStatus | None:
    """Return the status of the RAS service, or None without an answer within the limit.

    If ranks have launched different numbers of operations it is queried twice: in a running job these counts change.
    """
    with suppress(OSError, asyncio.TimeoutError, ValueError):
        return await wait_for(limit_s, _query_twice(host, port, limit_s))
    return None


async def _query_twice(host: str, port: int, limit_s: float) -> RasStatus | None:
    text = await _query(host, port, limit_s)
    if text is None:
        return None
    first = parse.parse_answer(text)
    if not any(_differing(communicator) for communicator in first.communicators):
        return first
    await asyncio.sleep(SECOND_QUERY_S)
    try:
        text = await wait_for(limit_s / 2, _query(host, port, limit_s))
    except (OSError, asyncio.TimeoutError, ValueError):
        return first
    second = parse.parse_answer(text) if text else first
    return msgspec.structs.replace(second, steady=_launched(first) == _launched(second))


async def _query(host: str, port: int, limit_s: float) -> str | None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        if not (await _send(reader, writer, f"CLIENT PROTOCOL {PROTOCOL}")).startswith(b"SERVER PROTOCOL "):
            return None
        await _send(reader, writer, f"TIMEOUT {max(1, int(limit_s / 2))}")
        await _send(reader, writer, "SET FORMAT json")  # before 2.28.7 this is an error, and the answer is text
        writer.write(b"VERBOSE STATUS\n")
        await writer.drain()
        answer = bytearray()
        while len(answer) < MOST_BYTES and (chunk := await reader.read(1 << 16)):
            answer += chunk
        return bytes(answer).decode("utf-8", errors="replace")
    finally:
        writer.close()


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str) -> bytes:
    writer.write(f"{line}\n".encode())
    await writer.drain()
    return await reader.readline()


def _launched(ras: RasStatus) -> list[tuple[str, list[LaunchedOperation]]]:
    return [(communicator.id, communicator.launched) for communicator in ras.communicators]


def _differing(communicator: Communicator) -> dict[str, list[LaunchedOperation]]:
    """Return by operation the groups of ranks with different counts, the largest group first."""
    found: dict[str, list[LaunchedOperation]] = {}
    for operation in dict.fromkeys(group.operation for group in communicator.launched):
        groups = [group for group in communicator.launched if group.operation == operation]
        if len({group.count for group in groups}) > 1:
            found[operation] = sorted(groups, key=lambda group: (-group.size, -group.count))
    return found


def verdict_from_ras(observed: Observation) -> Verdict | None:
    """Return the verdict on ranks that are gone or have launched fewer operations, or None if no rank differs.

    No difference does not mean that nothing is stuck: RAS counts launches, it does not see the GPU and the network.
    """
    ras = observed.ras
    if ras is None or ras.problem:
        return None
    for communicator in sorted(ras.communicators, key=lambda each: -each.size):
        found = _missing(communicator, ras, observed) or (_ranks_behind(communicator, observed) if ras.steady else None)
        if found:
            return found
    return None


def _missing(communicator: Communicator, ras: RasStatus, observed: Observation) -> Verdict | None:
    ranks = _global([*communicator.missing, *ras.gone], communicator, observed)
    if not ranks:
        return None
    dead = any(each.dead for each in (*communicator.missing, *ras.gone))
    text = f"NCCL's RAS service gets no answer from {phrases.mid_sentence(phrases.ranks_phrase(ranks))}"
    text += ", for more than a minute." if dead else ": stopped, overloaded or gone."
    findings = ["job.ras-rank-gone"]
    return _verdict("rank-died-survivors-wait" if dead else None, ranks, None, text, 0.8 if dead else 0.7, findings)


def _ranks_behind(communicator: Communicator, observed: Observation) -> Verdict | None:
    lower, higher = dict[int, str](), dict[int, str]()
    for operation, groups in _differing(communicator).items():
        for group in groups[1:]:
            (lower if group.count < groups[0].count else higher).update(dict.fromkeys(group.ranks, operation))
    odd = lower or higher
    if not odd or not _is_world(communicator, observed):
        return None
    culprits = sorted({*lower, *higher})
    name = NAMES.get(next(iter(odd.values())))
    called = name or "collective"
    if set(lower) & set(higher):
        who = phrases.mid_sentence(phrases.ranks_phrase(culprits, "have"))
        text = f"By NCCL's count, {who} launched other collectives than the rest."
        return _verdict("collective-desync", culprits, name, text, 0.6, ["job.ras-counts-differ"])
    culprits = sorted(odd)
    less = "not launched every" if lower else "launched one more"
    text = (
        f"By NCCL's count, {phrases.mid_sentence(phrases.ranks_phrase(culprits, 'have'))} {less} {called} "
        "that the others have"
        f"{'' if lower else ' not'}, and the counts do not change."
    )
    return _verdict(None, culprits, name, text, 0.6 if lower else 0.45, ["job.ras-counts-differ"])


def _is_world(communicator: Communicator, observed: Observation) -> bool:
    return communicator.size == observed.job.world_size


def _global(missing: list[RasProcess], communicator: Communicator, observed: Observation) -> list[int]:
    """Return the global ranks of these processes: by their pids, or by their rank in the communicator of all ranks."""
    pids = {seen.process.pid: seen.process.rank for seen in observed.seen}
    found: set[int] = set()
    for each in missing:
        if each.pid is not None and (rank := pids.get(each.pid)) is not None:
            found.add(rank)
        elif each.rank is not None and _is_world(communicator, observed):
            found.add(each.rank)
    return sorted(found)


def _verdict(
    cause: str | None, culprits: list[int], collective: str | None, why: str, confidence: float, findings: list[str]
) -> Verdict:
    return Verdict(
        state="hung",
        cause=cause,
        culprits=culprits,
        collective=collective,
        where=None,
        branch=None,
        why=why,
        confidence=confidence,
        findings=findings,
    )
