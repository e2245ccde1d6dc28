"""MASTER_ADDR: its addresses, whether it is this host, and whether the port answers."""

import socket

import msgspec

from ..evidence import Check
from ..launchers.known_variables import node_count, parse_integer
from ..snapshot import ResolveSection, Snapshot
from ..system.dns import resolve_host
from .context import ProbeContext
from .env import read_launch_environment
from .ifname_selectors import is_loopback
from .isolated import ChildRequest, run_isolated
from .ports import DEFAULT_PORT

READ_LIMIT_S = 3.0
RESOLVE_LIMIT_S = 6.0
CONNECT_LIMIT_S = 5.0
REFUSED = "Connection refused"  # as the lookup agent reports it


class ResolveTarget(msgspec.Struct, frozen=True):
    """The rendezvous address of the variables, and the addresses of this host."""

    master_addr: str
    master_port: int
    nodes: int | None
    own_addresses: list[str]


async def collect(context: ProbeContext, limit_s: float) -> ResolveSection:
    """Resolve MASTER_ADDR and try to connect to the port.

    Raises:
        InspectionError: The variables or the interfaces could not be read in time.
    """
    share = min(1.0, limit_s / (RESOLVE_LIMIT_S + CONNECT_LIMIT_S))
    target = await run_isolated(read_target, ResolveTarget, context, limit_s=READ_LIMIT_S, subject="MASTER_ADDR")
    section = ResolveSection(
        master_addr=target.master_addr,
        master_port=target.master_port,
        addresses=[],
        loopback=False,
        ours=False,
        nnodes=target.nodes,
    )
    if not target.master_addr:
        return section
    context.progress(f"connecting to {target.master_addr}, port {target.master_port}")
    found = await resolve_host(
        target.master_addr,
        resolve_s=RESOLVE_LIMIT_S * share,
        port=target.master_port,
        connect_s=CONNECT_LIMIT_S * share,
    )
    return msgspec.structs.replace(
        section,
        addresses=found.addresses,
        loopback=any(map(is_loopback, found.addresses)),
        ours=any(is_loopback(address) or address in target.own_addresses for address in found.addresses),
        connected=found.connected,
        problem=found.problem,
    )


def read_target(request: ChildRequest) -> ResolveTarget:
    """Read the target in this process (called in the child)."""
    import psutil

    _, environ, _, _ = read_launch_environment(request)
    port = parse_integer(environ.get("MASTER_PORT"))
    return ResolveTarget(
        master_addr=environ.get("MASTER_ADDR", "").strip(),
        master_port=port if port and 0 < port < 65536 else DEFAULT_PORT,
        nodes=node_count(environ),
        own_addresses=[
            entry.address.partition("%")[0]
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        ],
    )


def judge(snapshot: Snapshot) -> list[Check]:
    """Check that a rank of this host can reach rank 0."""
    target = snapshot.resolve
    if target is None:
        return []
    name, port = target.master_addr, target.master_port
    if not name:
        return [
            Check(
                "resolve.unset",
                "skip",
                "MASTER_ADDR is not set here",
                "torchrun sets it for each rank; there is nothing to test.",
            )
        ]
    label = f"MASTER_ADDR={name} ({', '.join(target.addresses[:4])})" if target.addresses else f"MASTER_ADDR={name}"
    if name.isdigit():
        return [
            Check(
                "resolve.digits",
                "fail",
                f"MASTER_ADDR={name} is read as a number, not as a name",
                f"The resolver turns it into {', '.join(target.addresses) or 'nothing'}; ranks connect there.",
                where=name,
                fix="use the host's full name or its IP address",
            )
        ]
    if not target.addresses:
        return [
            Check(
                "resolve.not-resolved",
                "fail",
                f"{label} does not resolve",
                f"{target.problem}. Every rank of this host fails to find rank 0: "
                f'"The IPv4 network addresses of ({name}, {port}) cannot be retrieved".',
                "resolve.not-resolved",
                where=name,
                fix=f"getent hosts {name}; then fix the name, put it into /etc/hosts, or use rank 0's IP address",
            )
        ]
    if target.loopback and (target.nnodes or 1) > 1:
        return [
            Check(
                "resolve.loopback-on-many-nodes",
                "fail",
                f"{label} is this host itself, but the job spans {target.nnodes} nodes",
                "Each node tries to reach rank 0 on itself: the nodes form separate groups, or wait until the timeout.",
                "resolve.loopback-on-many-nodes",
                where=name,
                fix="export MASTER_ADDR=<rank 0's address, ip -4 addr there>, the same on every node",
            )
        ]
    if target.connected:
        return [
            Check("resolve.reachable", "ok", f"{label} answers on port {port}", "", "resolve.reachable", where=name)
        ]
    if target.ours:
        detail = f"Rank 0 is to run here; nothing listens on port {port} until it starts."
        return [Check("resolve.ours", "ok", f"{label} is this host", detail, where=name)]
    if target.problem == REFUSED:
        return [
            Check(
                "resolve.refused",
                "fail" if snapshot.env and snapshot.env.ranks else "warn",
                f"{label} refuses port {port}",
                "The host answers, but nothing listens: expected before rank 0 has started. While ranks wait it means "
                "that rank 0 has died, or listens on another host or port.",
                "resolve.refused",
                where=f"{name}:{port}",
                fix=f"on {name}: ss -ltnp | grep {port}; start node rank 0 first, with this address and port",
            )
        ]
    return [
        Check(
            "resolve.no-answer",
            "fail",
            f"{label} does not answer on port {port}",
            f"{target.problem}. A firewall drops it, or there is no route: the ranks of "
            "this host wait until the timeout.",
            "resolve.no-answer",
            where=f"{name}:{port}",
            fix=f"ip route get {target.addresses[0]}; open port {port} and the ports above 1023 between the nodes",
        )
    ]
