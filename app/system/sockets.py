"""TCP sockets from /proc/PID/net/tcp and tcp6: connections and listeners, with the inodes that processes hold.

psutil reads only the network namespace of the calling process; the ranks of a job may be in another.
"""

import socket
import sys
from typing import NamedTuple

from . import proc_files

# Linux: include/net/tcp_states.h, by the names of ss(8).
STATES = {
    "01": "estab",
    "02": "syn-sent",
    "03": "syn-recv",
    "04": "fin-wait-1",
    "05": "fin-wait-2",
    "06": "time-wait",
    "07": "unconn",
    "08": "close-wait",
    "09": "last-ack",
    "0A": "listen",
    "0B": "closing",
    "0C": "syn-recv",
}
ESTABLISHED, LISTEN = "estab", "listen"
Address = tuple[str, int]


class TcpSocket(NamedTuple):
    """One end of a connection. ``peer`` has port 0 if it listens; ``inode`` is 0 if no process holds it any more.

    ``unsent_bytes``: in the send queue; 0 if it listens, since its queues count connections.
    """

    inode: int
    state: str
    local: Address
    peer: Address
    uid: int
    unsent_bytes: int = 0


def read_tcp_sockets(pid: int) -> dict[int, TcpSocket]:
    """Return the sockets that a process holds in the network namespace of ``pid``, by their inodes."""
    return {each.inode: each for each in list_tcp_sockets(pid) if each.inode}


def list_tcp_sockets(pid: int) -> list[TcpSocket]:
    """Return every TCP socket in the network namespace of ``pid``."""
    lines = [line for name in ("net/tcp", "net/tcp6") for line in proc_files.read_text_of(pid, name).splitlines()[1:]]
    return [each for line in lines if (each := parse_tcp_line(line))]


def address_text(address: Address) -> str:
    """Return ``127.0.0.1:29500``, or ``[::1]:29500`` for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_tcp_line(line: str) -> TcpSocket | None:
    """Parse one line of /proc/net/tcp or tcp6 (proc(5)), or return None if it is invalid."""
    fields = line.split()
    try:
        inode, state, local, peer = int(fields[9]), STATES[fields[3]], _address(fields[1]), _address(fields[2])
        unsent_bytes = int(fields[4].partition(":")[0], 16) if state != LISTEN else 0
        return TcpSocket(inode, state, local, peer, int(fields[7]), unsent_bytes)
    except (IndexError, KeyError, ValueError):
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
