import os
import socket

import pytest
from ddpwizard.app.system.sockets import TcpSocket, address_text, parse_tcp_line, read_tcp_sockets

LINE = "   7: 0100007F:E6E2 0100007F:A3AD 01 0000000F:00000000 00:00000000 00000000  1000        0 1028320 2 0 20"


def test_tcp_line_of_ipv4() -> None:
    expected = TcpSocket(1028320, "estab", ("127.0.0.1", 59106), ("127.0.0.1", 41901), 1000, 15)
    assert parse_tcp_line(LINE) == expected


def test_tcp_line_of_ipv6() -> None:
    assert parse_tcp_line(LINE.replace("0100007F", "0000000000000000FFFF00000100007F")) == parse_tcp_line(LINE)
    found = parse_tcp_line(LINE.replace("0100007F:E6E2", "B80D0120000000000000000001000000:E6E2"))
    assert found
    assert address_text(found.local) == "[2001:db8::1]:59106"
    assert address_text(found.peer) == "127.0.0.1:41901"


def test_queues_of_a_listening_socket_are_no_bytes() -> None:
    found = parse_tcp_line(LINE.replace(" 01 ", " 0A "))
    assert found
    assert (found.state, found.unsent_bytes) == ("listen", 0)


@pytest.mark.parametrize(
    "line",
    ["", "  sl  local_address rem_address", "0: x y z", "1: zz:1 zz:2 01 nonsense", LINE.replace(" 01 ", " FF ")],
)
def test_invalid_tcp_line_is_none(line: str) -> None:
    assert parse_tcp_line(line) is None


def test_sockets_of_this_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = read_tcp_sockets(os.getpid())[os.fstat(server.fileno()).st_ino]
        assert (found.state, found.local, found.peer[1], found.uid) == (
            "listen",
            server.getsockname(),
            0,
            os.getuid(),
        )
