"""How NCCL and gloo choose network interfaces: the rules of both libraries as pure functions.

NCCL (src/misc/socket.cc and src/os/linux.cc of NVIDIA/nccl): prefixes, ``^`` excludes, ``=`` wants whole names, both
only at the very start (``^=``) and for the whole list; a value of one character counts as unset; all that match are
used for data, the first for the bootstrap. gloo through torch (ProcessGroupGloo): whole names, separated by commas.
"""

from collections.abc import Sequence

from ..snapshot import Interface

NCCL_SOCKET_IFNAME = "NCCL_SOCKET_IFNAME"
GLOO_SOCKET_IFNAME = "GLOO_SOCKET_IFNAME"


def nccl_matches(selector: str, name: str) -> bool:
    """Whether NCCL's list ``selector`` takes the interface ``name``."""
    rest = selector.removeprefix("^")
    exact = rest.startswith("=")
    # "eth0:1" names a port, which only InfiniBand devices have.
    wanted = [entry.partition(":")[0] for entry in rest.removeprefix("=").split(",")]
    wanted = [entry for entry in wanted if entry]
    matches = not wanted or any(name == entry if exact else name.startswith(entry) for entry in wanted)
    return matches != selector.startswith("^")


def nccl_choice(selector: str | None, interfaces: Sequence[Interface], family: str = "") -> list[str]:
    """The interfaces NCCL uses, the bootstrap's first; ``interfaces`` in the kernel's order.

    ``family`` is NCCL_SOCKET_FAMILY. Those that are down are left out (since 2.28; earlier releases took them too).
    ``virbr*`` comes last since 2.28.3, earlier it ranked with the ordinary ones. NCCL_COMM_ID's subnet is not weighed.
    """
    usable = [i.name for i in _in_address_order(interfaces, family) if i.up]
    if selector and len(selector) > 1:
        return [name for name in usable if nccl_matches(selector, name)]
    for group in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr"):
        if chosen := [name for name in usable if nccl_matches(group, name)]:
            return chosen
    return []


def gloo_choice(selector: str | None, interfaces: Sequence[Interface], hostname_addresses: Sequence[str]) -> list[str]:
    """The interfaces gloo binds to: those named, else the one that holds this host's name's address, else loopback."""
    if selector and len(selector) > 1:
        have = {i.name for i in interfaces if i.addresses}
        return [name for name in selector.split(",") if name in have]
    loopback = [i.name for i in interfaces if i.kind == "loopback"][:1]
    for address in hostname_addresses:
        if is_loopback(address):
            return loopback
        if owner := [i.name for i in interfaces if address in i.addresses]:
            return owner[:1]
    return loopback


def selector_problem(variable: str, value: str) -> str:
    """What is wrong with the way a selector is written, or empty text."""
    if not value:
        return ""
    if any(c.isspace() or c in "\"'" for c in value):
        return "blanks and quotes are taken as part of a name"
    if "*" in value:
        return "there are no wildcards" + (": a name is a prefix anyway" if variable == NCCL_SOCKET_IFNAME else "")
    if len(value) == 1:
        return "a value of one character is ignored"
    if variable == GLOO_SOCKET_IFNAME:
        if "^" in value or "=" in value:
            return "gloo knows neither ^ nor =, only whole names separated by commas"
        return "an empty name stands between the commas" if "" in value.split(",") else ""
    rest = value.removeprefix("^").removeprefix("=")
    return "^ and = count only at the very start (^=), for the whole list" if "^" in rest or "=" in rest else ""


def is_loopback(address: str) -> bool:
    """Whether an address never leaves this host."""
    return address == "::1" or address.startswith(("127.", "::ffff:127."))


def _in_address_order(interfaces: Sequence[Interface], family: str) -> list[Interface]:
    # getifaddrs lists IPv4 addresses of all interfaces before IPv6 ones; ::1 does not count.
    four = [i for i in interfaces if any(_is_four(address) for address in i.addresses)]
    six = [i for i in interfaces if any(not _is_four(address) and address != "::1" for address in i.addresses)]
    if family == "AF_INET":
        return four
    if family == "AF_INET6":
        return six
    return four + [i for i in six if i not in four]


def _is_four(address: str) -> bool:
    return ":" not in address
