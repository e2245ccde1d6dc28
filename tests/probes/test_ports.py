"""The rendezvous port: real listeners, in a network namespace where the default port is free."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from ddpwizard.app.probes.ports import judge
from ddpwizard.app.snapshot import PortSection, ResolveSection, Snapshot
from helpers.probe_namespaces import probe

UP = "ip link set lo up"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this test process listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def test_default_port_is_free() -> None:
    seen = probe("ports", namespaces="-n", setup=[UP])
    section = seen.snapshot.ports
    assert section is not None
    assert (section.port, section.from_variable, section.free, section.free_alternative) == (29500, False, True, 29501)
    assert [(check.status, check.finding) for check in seen.checks] == [("ok", "ports.free")]


def test_default_port_and_the_next_are_taken() -> None:
    seen = probe("ports", namespaces="-n", setup=[UP, "listen 29500", "listen 29501"])
    section = seen.snapshot.ports
    assert section is not None
    assert (section.free, section.free_alternative) == (False, 29502)
    assert section.holder_pid
    assert "socket.create_server" in section.holder
    check = seen.check("ports.busy")
    assert (check.status, check.finding, check.where) == ("fail", "ports.busy", f"pid {section.holder_pid}")
    assert f"kill {section.holder_pid}" in check.fix
    assert "--master-port 29502" in check.fix


def test_port_of_the_variable(taken: int) -> None:
    seen = probe("ports", {"MASTER_PORT": str(taken)})
    section = seen.snapshot.ports
    assert section is not None
    assert (section.port, section.from_variable, section.holder_pid) == (taken, True, os.getpid())
    assert seen.findings == ["ports.busy"]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_listener_of_either_address_family_counts(family: socket.AddressFamily) -> None:
    try:
        server = socket.create_server(("::" if family == socket.AF_INET6 else "0.0.0.0", 0), family=family)
    except OSError as error:
        pytest.skip(f"no {family.name} here: {error}")
    with closing(server):
        seen = probe("ports", {"MASTER_PORT": str(server.getsockname()[1])})
    assert seen.findings == ["ports.busy"]


def test_bound_port_without_a_listener_is_taken() -> None:
    """/proc/net/tcp does not list it, but binding fails."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        seen = probe("ports", {"MASTER_PORT": str(bound.getsockname()[1])})
    assert seen.findings == ["ports.busy"]


def test_udp_socket_is_no_holder() -> None:
    with closing(socket.socket(type=socket.SOCK_DGRAM)) as bound:
        bound.bind(("127.0.0.1", 0))
        seen = probe("ports", {"MASTER_PORT": str(bound.getsockname()[1])})
    assert seen.findings == ["ports.free"]


@pytest.mark.parametrize("value", ["", "none", "0", "70000", "-1"])
def test_invalid_port_variable_falls_back_to_the_default(value: str) -> None:
    section = probe("ports", {"MASTER_PORT": value}).snapshot.ports
    assert section is not None
    assert (section.port, section.from_variable) == (29500, False)


def test_port_held_by_the_job_itself(taken: int) -> None:
    """The job's launcher (here: this test) holds the port for its rank: that is no problem."""
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], env={"MASTER_PORT": str(taken)})
    try:
        seen = probe("ports", {}, pids=[rank.pid])
        section = seen.snapshot.ports
        assert section is not None
        assert (section.port, section.holder_pid, section.ours) == (taken, os.getpid(), True)
        assert [(check.status, check.finding) for check in seen.checks] == [("ok", "")]
    finally:
        rank.kill()
        rank.wait()


def test_holder_without_permission_to_inspect(taken: int) -> None:
    """In a user namespace of its own the probe has no rights over this process, as if it were another user's."""
    if os.geteuid():
        pytest.skip("needs to run as root, or the holder could be read")
    seen = probe("ports", {"MASTER_PORT": str(taken)}, namespaces="-U")
    section = seen.snapshot.ports
    assert section is not None
    assert (section.free, section.holder_pid) == (False, None)
    assert "cannot inspect" in section.holder
    assert seen.findings == ["ports.busy"]


def test_a_port_that_needs_root() -> None:
    seen = probe("ports", {"MASTER_PORT": "81"}, namespaces="-U")
    section = seen.snapshot.ports
    assert section is not None
    if section.free:
        pytest.skip("this kernel lets everybody listen below 1024 (net.ipv4.ip_unprivileged_port_start)")
    assert [(check.status, check.finding) for check in seen.checks] == [("fail", "")]
    assert "below 1024 need root" in seen.checks[0].detail
    assert seen.checks[0].fix == f"export MASTER_PORT={section.free_alternative}"


def test_port_of_another_host_is_skipped() -> None:
    snapshot = Snapshot(
        taken_at=0,
        host="h",
        ddpwizard_version="0",
        ports=PortSection(port=29500, from_variable=True, free=False),
        resolve=ResolveSection(
            master_addr="node0", master_port=29500, addresses=["192.0.2.9"], loopback=False, ours=False
        ),
    )
    assert [(check.status, check.finding) for check in judge(snapshot)] == [("skip", "")]
