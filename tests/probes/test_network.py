"""Interfaces: real links in namespaces, the libraries' choice among them, and what is judged about it."""

import json
import subprocess
import sys

import pytest
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes.ifname_selectors import gloo_choice, nccl_choice, nccl_matches
from ddpwizard.app.probes.network_judge import judge
from ddpwizard.app.snapshot import Interface, InterfaceKind, NetworkSection, Snapshot
from helpers.probe_namespaces import Seen, probe
from msgspec.structs import replace

NAMESPACES = "-nm"
BASE = ["mount -t sysfs sysfs /sys", "ip link set lo up"]
# Router advertisement would give each link an IPv6 address at its own pace.
QUIET = ["sysctl -qw net.ipv6.conf.all.disable_ipv6=1", "sysctl -qw net.ipv6.conf.default.disable_ipv6=1"]
LAN = [
    "ip link add lan0 type veth peer name wire0",
    "ip link set lan0 up",
    "ip link set wire0 up",
    "ip addr add 10.7.0.2/24 dev lan0",
]
ROUTE = ["ip route add default via 10.7.0.1"]
DOCKER = [
    "ip link add docker0 type bridge",
    "ip link add vc0 type veth peer name vc1",
    "ip link set vc0 master docker0",
    "ip link set vc0 up",
    "ip link set vc1 up",
    "ip link set docker0 up",
    "ip addr add 172.17.0.1/16 dev docker0",
]


def machine(*setup: str, environ: dict[str, str] | None = None) -> Seen:
    return probe("network", environ, namespaces=NAMESPACES, setup=[*BASE, *QUIET, *setup])


def network(seen: Seen) -> NetworkSection:
    assert seen.failed == ""
    assert seen.snapshot.network is not None
    return seen.snapshot.network


def test_kind_of_each_link() -> None:
    seen = machine(*LAN, *ROUTE, *DOCKER, "ip tuntap add dev tap0 mode tap", "ip tuntap add dev tun0 mode tun")
    links = {i.name: i for i in network(seen).interfaces}
    assert {name: link.kind for name, link in links.items()} == {
        "lo": "loopback",
        "lan0": "virtual",
        "wire0": "virtual",
        "docker0": "bridge",
        "vc0": "virtual",
        "vc1": "virtual",
        "tap0": "tunnel",
        "tun0": "tunnel",
    }
    assert [name for name, link in links.items() if link.default_route] == ["lan0"]
    assert [name for name, link in links.items() if not link.up] == ["tap0", "tun0"]
    assert links["lan0"].addresses == ["10.7.0.2"]
    assert (links["lan0"].mtu, links["lo"].mtu) == (1500, 65536)


def test_this_machine_has_loopback() -> None:
    assert any(i.kind == "loopback" for i in network(probe("network")).interfaces)


def test_nccl_ignores_docker0() -> None:
    seen = machine(*DOCKER, *LAN, *ROUTE)
    assert network(seen).nccl_would_use == ["lan0"]
    assert "network.clear-choice" in seen.findings


def test_nccl_uses_docker0_if_there_is_nothing_else() -> None:
    seen = machine(*DOCKER)
    assert network(seen).nccl_would_use == ["docker0"]
    assert "network.virtual-selected" in seen.findings
    assert "network.clear-choice" not in seen.findings


def test_nccl_uses_another_bridge() -> None:
    bridge = [line.replace("docker0", "br-lab") for line in DOCKER]
    seen = machine(*bridge, *LAN, *ROUTE)
    assert network(seen).nccl_would_use == ["br-lab", "lan0"]
    check = seen.check("network.virtual-selected")
    assert check.where == "br-lab"
    assert "br-lab (bridge, 172.17.0.1; NCCL)" in check.detail
    assert check.fix.endswith("export NCCL_SOCKET_IFNAME=lan0 GLOO_SOCKET_IFNAME=lan0")


def test_link_without_carrier_is_not_used() -> None:
    seen = machine(*LAN, "ip link set wire0 down", environ={"NCCL_SOCKET_IFNAME": "lan0"})
    assert network(seen).nccl_would_use == []
    assert seen.check("network.link-down").title == "NCCL_SOCKET_IFNAME=lan0 selects lan0, which is down"


def test_selector_without_a_match() -> None:
    seen = machine(*LAN, environ={"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "eth0"})
    details = {
        check.where: check.detail for check in seen.checks if check.finding == "network.selector-matches-nothing"
    }
    assert "no socket interface found" in details["NCCL_SOCKET_IFNAME"]
    assert "Unable to find address for: eth0" in details["GLOO_SOCKET_IFNAME"]


def test_selector_of_the_running_job_and_of_nccl_conf(tmp_path: object) -> None:
    conf = f"{tmp_path}/nccl.conf"
    with open(conf, "w") as file:  # noqa: PTH123
        file.write("NCCL_SOCKET_IFNAME=lo\n")
    section = network(machine(*LAN, environ={"NCCL_CONF_FILE": conf}))
    assert (section.nccl_selector, section.nccl_would_use) == ("lo", ["lo"])
    section = network(machine(*LAN, environ={"NCCL_CONF_FILE": conf, "NCCL_SOCKET_IFNAME": "lan0"}))
    assert section.nccl_would_use == ["lan0"]


def test_no_interface_at_all() -> None:
    seen = probe("network", namespaces=NAMESPACES, setup=["mount -t sysfs sysfs /sys"])
    assert network(seen).nccl_would_use == []
    assert seen.checks[0].title == "no interface is up"


def test_unresponsive_name_server_does_not_block(tmp_path: object) -> None:
    conf = f"{tmp_path}/resolv.conf"
    with open(conf, "w") as file:  # noqa: PTH123
        file.write("nameserver 10.7.0.9\noptions timeout:30 attempts:5\n")
    seen = probe(
        "network",
        namespaces=f"{NAMESPACES}u",
        setup=[
            *BASE,
            *QUIET,
            *LAN,
            "ip neigh add 10.7.0.9 lladdr 02:00:00:00:00:09 dev lan0",  # sent, and dropped by the other end
            f"mount --bind {conf} /etc/resolv.conf",
            "hostname nobody-knows-this-one",
        ],
    )
    section = network(seen)
    assert seen.elapsed_s < 40, "the resolver alone takes 150 s"
    assert section.hostname_addresses == []
    assert "did not answer within" in section.hostname_problem
    assert section.nccl_would_use == ["lan0"]
    assert seen.check("network.hostname-loopback").status == "warn"


def link(name: str, kind: InterfaceKind = "physical", address: str = "10.0.0.1", **more: object) -> Interface:
    base = Interface(name=name, up=True, speed_mbps=None, mtu=1500, addresses=[address] if address else [], kind=kind)
    return replace(base, **more)


LO = link("lo", "loopback", "127.0.0.1")
ETH0 = link("eth0", address="10.0.0.1", default_route=True, speed_mbps=10000)
ETH1 = link("eth1", address="10.1.0.1", speed_mbps=100000)
IB0 = link("ib0", "infiniband", "10.2.0.1")
DOCKER0 = link("docker0", "bridge", "172.17.0.1")
VIRBR0 = link("virbr0", "bridge", "192.168.122.1")
SIX = link("six0", address="fd00::1")


@pytest.mark.parametrize(
    ("selector", "name", "taken"),
    [
        ("eth", "eth0", True),
        ("eth", "eth10", True),
        ("=eth", "eth0", False),
        ("=eth0", "eth0", True),
        ("eth0,ib", "ib3", True),
        ("^docker,lo", "eth0", True),
        ("^docker,lo", "docker0", False),
        ("^=docker0", "docker01", True),
        ("^=docker0", "docker0", False),
        ("eth0:1", "eth0", True),
        (" eth0", "eth0", False),
        ("=^eth0", "eth0", False),
        ("eth0,=eth1", "eth1", False),
    ],
)
def test_nccl_selectors(selector: str, name: str, taken: bool) -> None:
    assert nccl_matches(selector, name) is taken


@pytest.mark.parametrize(
    ("interfaces", "selector", "chosen"),
    [
        ([LO, ETH0, IB0], None, ["ib0"]),
        ([LO, DOCKER0, ETH0, ETH1, VIRBR0], None, ["eth0", "eth1"]),
        ([LO, DOCKER0], None, ["docker0"]),
        ([LO, VIRBR0], None, ["lo"]),
        ([LO], None, ["lo"]),
        ([VIRBR0], None, ["virbr0"]),
        ([LO, SIX, ETH0], None, ["eth0", "six0"]),
        ([LO, replace(ETH0, up=False), ETH1], None, ["eth1"]),
        ([LO, replace(ETH0, addresses=[]), ETH1], None, ["eth1"]),
        ([LO, ETH0, ETH1], "=eth1", ["eth1"]),
        ([LO, ETH0, ETH1], "e", ["eth0", "eth1"]),
        ([LO, ETH0, ETH1], "nope", []),
        ([], None, []),
    ],
)
def test_nccl_choice(interfaces: list[Interface], selector: str | None, chosen: list[str]) -> None:
    assert nccl_choice(selector, interfaces) == chosen


def test_nccl_choice_by_address_family() -> None:
    assert nccl_choice(None, [LO, SIX, ETH0], "AF_INET6") == ["six0"]
    assert nccl_choice(None, [LO, SIX, ETH0], "AF_INET") == ["eth0"]


@pytest.mark.parametrize(
    ("selector", "hostname", "chosen"),
    [
        (None, ["10.1.0.1"], ["eth1"]),
        (None, ["127.0.1.1"], ["lo"]),
        (None, ["::1"], ["lo"]),
        (None, [], ["lo"]),
        (None, ["203.0.113.5"], ["lo"]),
        ("eth1,eth0", ["127.0.0.1"], ["eth1", "eth0"]),
        ("^docker0", [], []),
        ("e", ["10.0.0.1"], ["eth0"]),
    ],
)
def test_gloo_choice(selector: str | None, hostname: list[str], chosen: list[str]) -> None:
    assert gloo_choice(selector, [LO, ETH0, ETH1, DOCKER0], hostname) == chosen


GLOO_BY_SELECTOR = """
import json, os, sys, tempfile
import torch.distributed as dist

results = {}
for selector in sys.argv[1:]:
    os.environ["GLOO_SOCKET_IFNAME"] = selector
    try:
        dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
    except RuntimeError as error:
        results[selector] = str(error)
    else:
        results[selector] = "started"
        dist.destroy_process_group()
print(json.dumps(results))
"""


@pytest.mark.slow
def test_gloo_choice_agrees_with_gloo() -> None:
    """A name without an interface makes gloo fail; a selector of one character counts as unset."""
    pytest.importorskip("torch")
    selectors = ["lo", "^docker0", "=lo", "lo,nope0", "l"]
    done = subprocess.run(
        [sys.executable, "-c", GLOO_BY_SELECTOR, *selectors], capture_output=True, text=True, check=True
    )
    results = json.loads(done.stdout)
    assert {selector: results[selector] for selector in ("lo", "l")} == {"lo": "started", "l": "started"}
    for selector in ("^docker0", "=lo", "lo,nope0"):
        assert "Unable to find address for: " in results[selector]
    for selector in selectors[:4]:
        assert (gloo_choice(selector, [LO], []) == selector.split(",")) is (results[selector] == "started"), selector


def judged(*interfaces: Interface, **more: object) -> list[Check]:
    nccl, gloo = more.get("nccl_selector"), more.get("gloo_selector")
    assert nccl is None or isinstance(nccl, str)
    assert gloo is None or isinstance(gloo, str)
    addresses = ["10.0.0.1"]
    section = NetworkSection(
        hostname="node0",
        hostname_addresses=addresses,
        interfaces=list(interfaces),
        nccl_would_use=nccl_choice(nccl, interfaces),
        gloo_would_use=gloo_choice(gloo, interfaces, addresses),
    )
    return judge(Snapshot(taken_at=0, host="h", ddpwizard_version="0", network=replace(section, **more)))


def findings(checks: list[Check]) -> list[str]:
    return [check.finding for check in checks if check.finding]


@pytest.mark.parametrize(
    ("interfaces", "more", "found"),
    [
        ([LO, ETH0], {}, ["clear-choice"]),
        ([LO, ETH0, DOCKER0], {}, ["clear-choice"]),
        ([LO, link("eth0", "virtual", default_route=True)], {}, ["clear-choice"]),
        ([LO, link("br0", "bridge", default_route=True), link("eno1", address="")], {}, ["clear-choice"]),
        ([LO, ETH0, link("br-1a2b", "bridge", "172.18.0.1")], {}, ["virtual-selected"]),
        ([LO, ETH0, link("tun0", "tunnel", "10.8.0.1")], {}, ["virtual-selected"]),
        ([LO, ETH0, DOCKER0], {"nccl_selector": "docker0"}, ["virtual-selected"]),
        ([LO, ETH0], {"nccl_selector": "lo", "gloo_selector": "lo"}, ["virtual-selected"]),
        ([LO, ETH0, ETH1], {}, ["several-candidates"]),
        ([LO, ETH0, ETH1], {"nccl_selector": "eth0"}, ["slow-selected"]),
        ([LO, ETH0, ETH1], {"nccl_selector": "eth1"}, ["clear-choice", "gloo-selector-missing"]),
        ([LO, ETH0, ETH1], {"nccl_selector": "eth1", "gloo_selector": "eth1"}, ["clear-choice"]),
        ([LO, ETH0], {"nccl_selector": "nope"}, ["selector-matches-nothing"]),
        ([LO, ETH0, replace(ETH1, up=False)], {"gloo_selector": "eth1"}, ["link-down"]),
        ([LO, ETH0], {"hostname_addresses": ["127.0.1.1"]}, ["clear-choice", "hostname-loopback"]),
        ([LO, ETH0], {"hostname_addresses": []}, ["clear-choice", "hostname-loopback"]),
        ([LO], {}, []),
    ],
)
def test_judgement(interfaces: list[Interface], more: dict[str, object], found: list[str]) -> None:
    checks = judged(*interfaces, **more)
    assert findings(checks) == [f"network.{name}" for name in found]
    assert all(check.fix and check.detail for check in checks if check.status in ("warn", "fail") and check.finding)


@pytest.mark.parametrize(("nodes", "status", "is_finding"), [(None, "warn", True), (2, "fail", True), (1, "ok", False)])
def test_choice_on_one_node_is_informative(nodes: int | None, status: str, is_finding: bool) -> None:
    check = judged(LO, DOCKER0, ETH0, nccl_selector="docker0", nodes=nodes)[0]
    assert (check.id, check.status, bool(check.finding)) == ("network.virtual-selected", status, is_finding)
