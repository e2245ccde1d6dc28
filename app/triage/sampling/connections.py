"""The TCP connections of a process: its open sockets, found in the tables of its network namespace."""

from collections.abc import Mapping

from ...system import procfs, sockets
from ..types import Connection

MOST = 256
Table = Mapping[int, Connection]  # by the inode of the socket


class SocketTables:
    """The socket tables of network namespaces, each read once."""

    def __init__(self) -> None:
        self._known: dict[str, Table] = {}

    def of(self, pid: int) -> Table:
        """Return the connections in the network namespace of a process."""
        namespace = procfs.network_namespace(pid) or str(pid)
        if namespace not in self._known:
            self._known[namespace] = {
                inode: Connection(
                    sockets.address_text(each.local), sockets.address_text(each.peer), each.state, each.unsent_bytes
                )
                for inode, each in sockets.read_tcp_sockets(pid).items()
            }
        return self._known[namespace]


def connections(pid: int, tables: SocketTables) -> list[Connection]:
    """Return the TCP connections of a process, largest send queue first; [] if its files are not accessible."""
    inodes = procfs.open_sockets(pid)
    table = tables.of(pid) if inodes else {}
    found = [table[inode] for inode in inodes if inode in table]
    return sorted(found, key=lambda link: (-link.waiting_to_send_bytes, link.state, link.peer, link.local))[:MOST]
