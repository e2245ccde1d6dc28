"""Resolve a host name, and try a TCP connection, in a child that can be killed: both block inside the C library."""

import sys
from pathlib import Path

import msgspec

from .subprocesses import run_process

AGENT = Path(__file__).parent.parent / "agents" / "lookup.py"


class LookupResult(msgspec.Struct, frozen=True):
    """Addresses in the resolver's order; ``connected`` is None if not tried; ``problem`` is the reason of a failure."""

    addresses: list[str] = []
    connected: bool | None = None
    problem: str = ""


async def resolve_host(host: str, *, resolve_s: float, port: int = 0, connect_s: float = 0.0) -> LookupResult:
    """Resolve ``host`` within ``resolve_s`` and, with a ``port``, try to connect to it within ``connect_s``."""
    connect = [str(port), str(connect_s)] if port else []
    command = [sys.executable, "-IS", str(AGENT), host, *connect]
    outcome = await run_process(command, limit_s=resolve_s + connect_s, answers=True)
    lines = [msgspec.json.decode(line, type=dict) for line in outcome.answer.splitlines()]
    if not lines:
        return LookupResult(problem=f"Resolving it {outcome.why}")
    found = msgspec.convert(lines[0], LookupResult)
    if len(lines) > 1:
        return msgspec.structs.replace(found, connected=lines[1]["connected"], problem=lines[1]["problem"])
    return (
        msgspec.structs.replace(found, connected=False, problem=f"Connecting {outcome.why}")
        if port and found.addresses
        else found
    )
