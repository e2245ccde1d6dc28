"""TCP sockets from /proc/net/tcp and tcp6: connections and listeners, with the inodes that processes hold."""

import socket
import sys
from typing import NamedTuple

from . import proc_files

ESTABLISHED, LISTEN = "01", "0A"  # include/net/tcp_states.h
Address = tuple[str, int]


class TcpSocket(NamedTuple):
    """One end of a connection. ``peer`` has port 0 if it listens; ``inode`` is 0 if no process holds it any more."""

    inode: int
    state: str
    local: Address
    peer: Address
    uid: int


def read_tcp_sockets(pid: int) -> dict[int, TcpSocket]:
    """Return the sockets that a process holds in the network namespace of ``pid``, by their inodes."""
    return {each.inode: each for each in list_tcp_sockets(pid) if each.inode}


def list_tcp_sockets(pid: int) -> list[TcpSocket]:
    """Return every TCP socket in the network namespace of ``pid``."""
    lines = [line for name in ("net/tcp", "net/tcp6") for line in proc_files.read_text_of(pid, name).splitlines()[1:]]
    return [each for line in lines if (each := parse_tcp_line(line))]


def parse_tcp_line(line: str) -> TcpSocket | None:
    """Parse one line of /proc/net/tcp or tcp6 (proc(5)), or return None if it is invalid."""
    fields = line.split()
    try:
        return TcpSocket(int(fields[9]), fields[3], _address(fields[1]), _address(fields[2]), int(fields[7]))
    except (IndexError, ValueError):
        return None


def _address(text: str) -> Address:
    """Decode ``0100007F:A3AD`` as ("127.0.0.1", 41901); an IPv4 address in an IPv6 one becomes IPv4."""
    packed, _, port = text.partition(":")
    # The kernel prints each 32-bit word in the order of this machine.
    words = [int(packed[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(packed), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)
