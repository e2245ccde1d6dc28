"""The rules by which NCCL and gloo choose network interfaces, as pure functions.

NCCL (src/misc/socket.cc and src/os/linux.cc of NVIDIA/nccl): prefixes, ``^`` excludes, ``=`` means exact names, both
only at the very start (``^=``) and for the whole list; a value of one character counts as unset; all matches are
used for data, the first for the bootstrap. gloo through torch (ProcessGroupGloo): exact names, separated by commas.
"""

from collections.abc import Sequence

from ..snapshot import Interface

NCCL_SOCKET_IFNAME = "NCCL_SOCKET_IFNAME"
GLOO_SOCKET_IFNAME = "GLOO_SOCKET_IFNAME"


def nccl_matches(selector: str, name: str) -> bool:
    """Return whether NCCL's list ``selector`` matches the interface ``name``."""
    rest = selector.removeprefix("^")
    exact = rest.startswith("=")
    # "eth0:1" selects a port, which only InfiniBand devices have.
    wanted = [entry.partition(":")[0] for entry in rest.removeprefix("=").split(",")]
    wanted = [entry for entry in wanted if entry]
    matches = not wanted or any(name == entry if exact else name.startswith(entry) for entry in wanted)
    return matches != selector.startswith("^")


def nccl_choice(selector: str | None, interfaces: Sequence[Interface], family: str = "") -> list[str]:
    """Return the interfaces that NCCL uses, that of the bootstrap first. ``interfaces`` are in the kernel's order.

    ``family`` is NCCL_SOCKET_FAMILY. Interfaces that are down are left out (as NCCL does since 2.28). ``virbr*`` comes
    last since 2.28.3; before, it ranked with the ordinary ones. The subnet of NCCL_COMM_ID is not considered.
    """
    usable = [i.name for i in _in_address_order(interfaces, family) if i.up]
    if selector and len(selector) > 1:
        return [name for name in usable if nccl_matches(selector, name)]
    for group in ("ib", "^docker,lo,virbr", "docker", "lo", "virbr"):
        if chosen := [name for name in usable if nccl_matches(group, name)]:
            return chosen
    return []


def gloo_choice(selector: str | None, interfaces: Sequence[Interface], hostname_addresses: Sequence[str]) -> list[str]:
    """Return the interfaces gloo binds to: the selected ones, else that of the host name's address, else loopback."""
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
    """Return the problem in the syntax of a selector, or an empty string."""
    if not value:
        return ""
    if any(c.isspace() or c in "\"'" for c in value):
        return "blanks and quotes become part of a name"
    if "*" in value:
        return "there are no wildcards" + (": a name is a prefix anyway" if variable == NCCL_SOCKET_IFNAME else "")
    if len(value) == 1:
        return "a value of one character is ignored"
    if variable == GLOO_SOCKET_IFNAME:
        if "^" in value or "=" in value:
            return "gloo supports neither ^ nor =, only exact names separated by commas"
        return "there is an empty name between the commas" if "" in value.split(",") else ""
    rest = value.removeprefix("^").removeprefix("=")
    return "^ and = are valid only at the very start (^=), for the whole list" if "^" in rest or "=" in rest else ""


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
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
