"""MASTER_ADDR: real names, a real listener, an address that swallows everything, a name server that never answers."""

import socket
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes import resolve
from ddpwizard.app.probes.resolve import judge
from ddpwizard.app.snapshot import EnvSection, ResolveSection, Snapshot
from helpers.built_in_knowledge import built_in_knowledge
from helpers.probe_namespaces import Seen, probe
from msgspec.structs import replace

AT_MOST_S = 40  # on a busy machine; without limits of ours TCP and the resolver take two minutes and more
LIMIT_S = (resolve.RESOLVE_LIMIT_S + resolve.CONNECT_LIMIT_S) / 2  # half of each is enough for an answer
# Packets to .1 leave and are lost, as with a firewall that drops them.
BLACK_HOLE = [
    "ip link set lo up",
    "ip link add lan0 type veth peer name wire0",
    "ip link set lan0 up",
    "ip link set wire0 up",
    "ip addr add 192.0.2.2/24 dev lan0",
    "ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev lan0",
]
ELSEWHERE = ResolveSection(
    master_addr="node0", master_port=29500, addresses=["192.0.2.1"], loopback=False, ours=False, connected=True
)


@pytest.fixture
def listening() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def section(seen: Seen) -> ResolveSection:
    assert seen.failed == ""
    assert seen.snapshot.resolve is not None
    return seen.snapshot.resolve


def judged(**changes: object) -> Check:
    (check,) = judge(Snapshot(taken_at=0, host="h", ddpwizard_version="0", resolve=replace(ELSEWHERE, **changes)))
    return check


def test_nothing_set() -> None:
    seen = probe("resolve", {})
    assert section(seen).master_addr == ""
    assert [(check.status, check.finding) for check in seen.checks] == [("skip", "")]


def test_master_on_this_host_listens(listening: int) -> None:
    seen = probe("resolve", {"MASTER_ADDR": "localhost", "MASTER_PORT": str(listening)})
    found = section(seen)
    assert (found.loopback, found.ours, found.connected) == (True, True, True)
    assert seen.findings == ["resolve.reachable"]


def test_master_on_this_host_before_rank_0_starts() -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        seen = probe("resolve", {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(unused.getsockname()[1])})
    assert section(seen).connected is False
    assert [(check.status, check.finding) for check in seen.checks] == [("ok", "")]


def test_loopback_master_for_two_nodes() -> None:
    environ = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}
    assert probe("resolve", environ).findings == ["resolve.loopback-on-many-nodes"]


@pytest.mark.parametrize("name", ["nosuch.invalid", "-f", "no such name", "x" * 300, "ex\u00e4mple..com"])
def test_invalid_master_name(name: str) -> None:
    seen = probe("resolve", {"MASTER_ADDR": name}, namespaces="-n", setup=["ip link set lo up"])
    assert section(seen).addresses == []
    assert seen.findings == ["resolve.not-resolved"]


def test_master_name_of_digits_is_a_number() -> None:
    seen = probe("resolve", {"MASTER_ADDR": "10"}, namespaces="-n", setup=["ip link set lo up"])
    assert section(seen).addresses == ["0.0.0.10"]
    assert seen.checks[0].status == "fail"


def test_address_that_drops_packets() -> None:
    seen = probe("resolve", {"MASTER_ADDR": "192.0.2.1"}, namespaces="-n", setup=BLACK_HOLE, limit_s=LIMIT_S)
    found = section(seen)
    assert (found.addresses, found.ours, found.connected) == (["192.0.2.1"], False, False)
    assert found.problem.startswith("No answer within")
    assert seen.findings == ["resolve.no-answer"]
    assert seen.elapsed_s < AT_MOST_S


def test_connection_refused() -> None:
    """An address that does not count as this host's; the kernel still refuses the connection."""
    setup = ["ip link set lo up", "ip route add local 192.0.2.0/24 dev lo"]
    seen = probe("resolve", {"MASTER_ADDR": "192.0.2.7"}, namespaces="-n", setup=setup)
    assert section(seen).problem == "Connection refused"
    assert [(check.status, check.finding) for check in seen.checks] == [("warn", "resolve.refused")]


def test_an_open_port_elsewhere() -> None:
    setup = ["ip link set lo up", "ip route add local 192.0.2.0/24 dev lo", "listen 29500"]
    seen = probe("resolve", {"MASTER_ADDR": "192.0.2.7"}, namespaces="-n", setup=setup)
    assert seen.findings == ["resolve.reachable"]
    assert section(seen).ours is False


def test_no_route() -> None:
    seen = probe("resolve", {"MASTER_ADDR": "192.0.2.7"}, namespaces="-n", setup=["ip link set lo up"])
    assert seen.findings == ["resolve.no-answer"]
    assert "unreachable" in seen.checks[0].detail


def test_unresponsive_name_server_times_out(tmp_path: object) -> None:
    conf = f"{tmp_path}/resolv.conf"
    with open(conf, "w") as file:  # noqa: PTH123
        file.write("nameserver 192.0.2.1\noptions timeout:30 attempts:5\n")
    seen = probe(
        "resolve",
        {"MASTER_ADDR": "node0.example"},
        namespaces="-nm",
        setup=[*BLACK_HOLE, f"mount --bind {conf} /etc/resolv.conf"],
        limit_s=LIMIT_S,
    )
    assert seen.findings == ["resolve.not-resolved"]
    assert "did not answer within" in section(seen).problem
    assert seen.elapsed_s < AT_MOST_S


def test_partial_limits_fit_into_the_declared_limit() -> None:
    parts_s = resolve.READ_LIMIT_S + resolve.RESOLVE_LIMIT_S + resolve.CONNECT_LIMIT_S
    assert parts_s < built_in_knowledge().probes["resolve"].limit_s


def test_refused_while_ranks_wait_is_a_failure() -> None:
    refused = replace(ELSEWHERE, connected=False, problem="Connection refused")
    env = EnvSection(owner="pid 1", variables={}, ranks={1: {"RANK": "1"}})
    (check,) = judge(Snapshot(taken_at=0, host="h", ddpwizard_version="0", env=env, resolve=refused))
    assert (check.status, check.finding) == ("fail", "resolve.refused")


def test_wording_names_the_host_and_the_port() -> None:
    check = judged(connected=False, problem="No answer within 5 s")
    assert check.title == "MASTER_ADDR=node0 (192.0.2.1) does not answer on port 29500"
    assert check.detail.startswith("No answer within 5 s.")
    assert "29500" in check.fix


def test_agent_uses_only_the_standard_library() -> None:
    """It runs alone in the child: only the standard library, nothing newer than Python 3.9."""
    import ast
    from pathlib import Path

    from ddpwizard.app.system.dns import AGENT

    tree = ast.parse(Path(AGENT).read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names <= sys.stdlib_module_names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
