"""The TCP connections of a process: its open sockets, found in the tables of its network namespace."""

import re
from collections.abc import Mapping

from ...system import proc_files, procfs, sockets
from ..types import Connection

MOST = 256
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
Table = Mapping[int, Connection]  # by the inode of the socket


class SocketTables:
    """The socket tables of network namespaces, each read once."""

    def __init__(self) -> None:
        self._known: dict[str, Table] = {}

    def of(self, pid: int) -> Table:
        """Return the connections in the network namespace of a process."""
        namespace = procfs.network_namespace(pid) or str(pid)
        if namespace not in self._known:
            self._known[namespace] = parse_socket_table(
                proc_files.read_text_of(pid, "net/tcp") + proc_files.read_text_of(pid, "net/tcp6")
            )
        return self._known[namespace]


def connections(pid: int, tables: SocketTables) -> list[Connection]:
    """Return the TCP connections of a process, largest send queue first; [] if its files are not accessible."""
    inodes = procfs.open_sockets(pid)
    table = tables.of(pid) if inodes else {}
    found = [table[inode] for inode in inodes if inode in table]
    return sorted(found, key=lambda link: (-link.waiting_to_send_bytes, link.state, link.peer, link.local))[:MOST]


def parse_socket_table(text: str) -> Table:
    """Parse /proc/net/tcp and tcp6 (proc(5)): connections and listening sockets."""
    found: dict[int, Connection] = {}
    for line in text.splitlines():
        connection = sockets.parse_tcp_line(line)
        if connection is None or not connection.inode or connection.state not in STATES:
            continue
        local, peer = (_text(*address) for address in (connection.local, connection.peer))
        # For a listening socket the queues count connections, not bytes.
        queued = re.match(r"[0-9A-F]{8}", line.split()[4]) if connection.state != sockets.LISTEN else None
        waiting_bytes = int(queued[0], 16) if queued else 0
        found[connection.inode] = Connection(local, peer, STATES[connection.state], waiting_bytes)
    return found


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
