"""Network interfaces, and those that NCCL and gloo choose with the current variables."""

import asyncio
import socket
from pathlib import Path

from msgspec.structs import replace

from ..launchers.known_variables import node_count
from ..snapshot import Interface, InterfaceKind, NetworkSection
from ..system.dns import resolve_host
from ..text.numbers import parse_count
from .context import ProbeContext
from .env import read_launch_environment, read_nccl_conf
from .ifname_selectors import GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, gloo_choice, nccl_choice
from .isolated import ChildRequest, run_isolated
from .network_judge import judge

__all__ = ["collect", "judge"]

RESOLVE_LIMIT_S = 5.0  # a resolver tries each server twice for 5 s; a slower name is a problem itself
NET = Path("/sys/class/net")
# Link types of the kernel (include/uapi/linux/if_arp.h).
ARPHRD_INFINIBAND, ARPHRD_LOOPBACK = 32, 772
ARPHRD_TUNNELS = {512, 768, 769, 776, 778, 823, 65534}  # ppp, ipip, ip6tnl, sit, gre, ip6gre, none (tun, wireguard)


async def collect(context: ProbeContext, limit_s: float) -> NetworkSection:
    """Collect the interfaces, this host's name, and the libraries' choice.

    Raises:
        InspectionError: The interfaces could not be read in time.
    """
    section, name = await asyncio.gather(
        run_isolated(read_network_section, NetworkSection, context, limit_s=limit_s, subject="the network interfaces"),
        resolve_host(socket.gethostname(), resolve_s=min(RESOLVE_LIMIT_S, limit_s)),
    )
    return replace(
        section,
        hostname_addresses=name.addresses,
        hostname_problem=name.problem,
        gloo_would_use=gloo_choice(section.gloo_selector, section.interfaces, name.addresses),
    )


def read_network_section(request: ChildRequest) -> NetworkSection:
    """Read the section without the addresses of this host's name, in this process (called in the child)."""
    _, environ, _, _ = read_launch_environment(request)
    settings = read_nccl_conf(environ)[0] | environ
    interfaces = _interfaces()
    selector = settings.get(NCCL_SOCKET_IFNAME)
    return NetworkSection(
        hostname=socket.gethostname(),
        hostname_addresses=[],
        interfaces=interfaces,
        nccl_selector=selector,
        gloo_selector=environ.get(GLOO_SOCKET_IFNAME),
        nccl_would_use=nccl_choice(selector, interfaces, settings.get("NCCL_SOCKET_FAMILY", "")),
        nodes=node_count(environ),
    )


def _interfaces() -> list[Interface]:
    """Every interface of this network namespace, in the kernel's order."""
    import psutil

    # The states come from the kernel, not from /sys: in a container /sys may show another network namespace.
    addresses, states = psutil.net_if_addrs(), psutil.net_if_stats()
    defaults = _default_routes()
    return [
        Interface(
            name=name,
            up=states[name].isup,  # up and with a carrier (IFF_RUNNING), which NCCL requires
            speed_mbps=states[name].speed or None,
            mtu=states[name].mtu,
            addresses=[
                entry.address.partition("%")[0]
                for entry in addresses.get(name, [])
                if entry.family in (socket.AF_INET, socket.AF_INET6)
            ],
            kind=_kind(name),
            default_route=name in defaults,
        )
        for _, name in sorted(socket.if_nameindex())
        if name in states  # else it was removed in the meantime
    ]


def _kind(name: str) -> InterfaceKind:
    link = NET / name
    type_ = next((parse_count(line) for line in _lines(link / "type")), None)
    if type_ == ARPHRD_LOOPBACK:
        return "loopback"
    if type_ == ARPHRD_INFINIBAND:
        return "infiniband"
    if type_ in ARPHRD_TUNNELS or (link / "tun_flags").exists():
        return "tunnel"
    if (link / "bridge").exists():
        return "bridge"
    # A VLAN or a bond is physical if an interface below it is.
    below = [lower.name.removeprefix("lower_") for lower in link.glob("lower_*")]
    is_physical = (link / "device").exists() or any((NET / lower / "device").exists() for lower in below)
    return "physical" if is_physical else "virtual"


def _default_routes() -> set[str]:
    """Interfaces with an IPv4 or IPv6 default route."""
    found: set[str] = set()
    for line in _lines("/proc/net/route")[1:]:
        name, destination, _, flags, *_, mask = line.split()[:8]
        if destination == mask == "00000000" and int(flags, 16) & 1:
            found.add(name)
    for line in _lines("/proc/net/ipv6_route"):
        fields = line.split()
        if fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            found.add(fields[9])
    return found


def _lines(path: "str | Path") -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []
