"""TCP connections from /proc/net/tcp and tcp6, and which process holds which end."""

import socket
import sys
from typing import NamedTuple

from . import proc_files

ESTABLISHED, LISTEN = "01", "0A"  # include/net/tcp_states.h
Address = tuple[str, int]


class TcpSocket(NamedTuple):
    """One end of a connection; ``peer`` has port 0 where it listens."""

    inode: int
    state: str
    local: Address
    peer: Address


def read_tcp_sockets(pid: int) -> dict[int, TcpSocket]:
    """Every connection in the network namespace of a process, by the inode of its socket."""
    found: dict[int, TcpSocket] = {}
    for name in ("net/tcp", "net/tcp6"):
        for line in proc_files.read_text_of(pid, name).splitlines()[1:]:
            if (each := parse_tcp_line(line)) and each.inode:
                found[each.inode] = each
    return found


def parse_tcp_line(line: str) -> TcpSocket | None:
    """One line of /proc/net/tcp or tcp6 (proc(5)), or None where it is none."""
    fields = line.split()
    try:
        return TcpSocket(int(fields[9]), fields[3], _address(fields[1]), _address(fields[2]))
    except (IndexError, ValueError):
        return None


def _address(text: str) -> Address:
    """``0100007F:A3AD`` as ("127.0.0.1", 41901); an IPv4 address in an IPv6 one is told as IPv4."""
    packed, _, port = text.partition(":")
    # The kernel prints each 32-bit word in the order of this machine.
    words = [int(packed[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(packed), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)
