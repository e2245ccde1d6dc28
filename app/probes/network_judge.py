"""Checks of the interfaces that NCCL and gloo choose."""

import shlex

from ..evidence import Check, Status
from ..snapshot import Interface, NetworkSection, Snapshot
from .ifname_selectors import GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, is_loopback, nccl_matches

REAL = ("physical", "infiniband")


def judge(snapshot: Snapshot) -> list[Check]:
    """Check that both libraries choose one physical interface that is up. On one node most of it only informs."""
    network = snapshot.network
    if network is None:
        return []
    nccl = [*_no_match(network), *_virtual(network), *_several_interfaces(network), *_slow(network)]
    return [*(nccl or [_chosen_interface(network)]), *_gloo(network), *_hostname(network)]


def _no_match(network: NetworkSection) -> list[Check]:
    """Selectors that match nothing, or only interfaces that are down."""
    checks: list[Check] = []
    if network.nccl_selector and len(network.nccl_selector) > 1 and not network.nccl_would_use:
        down = [i.name for i in network.interfaces if not i.up and nccl_matches(network.nccl_selector, i.name)]
        effect = 'NCCL ends with "Bootstrap : no socket interface found"'
        checks.append(_unmatched(network, NCCL_SOCKET_IFNAME, network.nccl_selector, down, effect))
    if network.gloo_selector and len(network.gloo_selector) > 1:
        names = {i.name: i for i in network.interfaces}
        missing = [name for name in network.gloo_selector.split(",") if name not in network.gloo_would_use]
        down = [name for name in network.gloo_would_use if not names[name].up]
        if missing or down:
            effect = (
                f'gloo ends with "Unable to find address for: {missing[0]}"'
                if missing
                else "gloo cannot reach the others"
            )
            checks.append(
                _unmatched(network, GLOO_SOCKET_IFNAME, network.gloo_selector, down if not missing else [], effect)
            )
    return checks


def _unmatched(network: NetworkSection, variable: str, value: str, down: list[str], effect: str) -> Check:
    best = _recommended_interface(network)
    have = ", ".join(i.name for i in network.interfaces if i.up and i.addresses) or "none"
    id_ = "network.link-down" if down else "network.selector-matches-nothing"
    problem = f"selects {', '.join(down)}, which is down" if down else "matches no interface with an address"
    return Check(
        id_,
        "fail",
        f"{variable}={value} {problem}",
        f"{effect}. Up, with an address: {have}.",
        id_,
        where=variable,
        fix=(f"ip link set {down[0]} up, or " if down else "")
        + (f"export {variable}={shlex.quote(best.name)}" if best else f"unset {variable}"),
    )


def _virtual(network: NetworkSection) -> list[Check]:
    """A bridge, tunnel or similar interface is chosen, although there is a physical one or a default route."""
    taken = dict.fromkeys(network.nccl_would_use, "NCCL")
    for name in network.gloo_would_use:
        if network.gloo_selector or _kind_of(network, name) != "loopback":  # _hostname reports loopback by name
            taken[name] = "NCCL and gloo" if name in taken else "gloo"
    odd = [i for i in network.interfaces if i.name in taken and not _fine(i, network)]
    if not odd:
        return []
    best = _recommended_interface(network)
    names = ",".join(i.name for i in odd)
    listed = ", ".join(f"{i.name} ({i.kind}, {_address(i)}; {taken[i.name]})" for i in odd)
    return [
        _between_nodes(
            network,
            "network.virtual-selected",
            "fail" if odd[0].name in network.nccl_would_use[:1] else "warn",
            f"{taken[odd[0].name]} would use {names.replace(',', ', ')}",
            f"{listed}: other nodes cannot reach such an address. NCCL uses every matching interface, the first for "
            "the bootstrap, all for data; ranks wait for a connection that is never made.",
            where=odd[0].name,
            fix=_pin(best) if best else f"export {NCCL_SOCKET_IFNAME}=^{names}",
        )
    ]


def _several_interfaces(network: NetworkSection) -> list[Check]:
    real = [i for i in network.interfaces if i.name in network.nccl_would_use and i.kind in REAL]
    if len(real) < 2:
        return []
    listed = ", ".join(f"{i.name} ({_address(i)}, {_speed(i)})" for i in real)
    return [
        _between_nodes(
            network,
            "network.several-candidates",
            "warn",
            f"NCCL would use {len(real)} interfaces at once",
            f"{listed}. Its bootstrap uses {network.nccl_would_use[0]}, data uses all of them: correct only if "
            "each one reaches every node.",
            where=real[0].name,
            fix=_pin(_recommended_interface(network) or real[0]),
        )
    ]


def _slow(network: NetworkSection) -> list[Check]:
    taken = [i for i in network.interfaces if i.name in network.nccl_would_use and i.speed_mbps]
    fastest = max((i for i in network.interfaces if _usable(i)), key=_mbps, default=None)
    if not taken or not fastest or _mbps(fastest) <= max(map(_mbps, taken)):
        return []
    chosen = max(taken, key=_mbps)
    return [
        _between_nodes(
            network,
            "network.slow-selected",
            "warn",
            f"NCCL would use {chosen.name} with {_speed(chosen)}, {fastest.name} has {_speed(fastest)}",
            "Gradients between nodes go over the slower link.",
            where=chosen.name,
            fix=_pin(fastest),
        )
    ]


def _gloo(network: NetworkSection) -> list[Check]:
    """NCCL has a selector, gloo has none and would choose another interface."""
    nccl, gloo = network.nccl_would_use, network.gloo_would_use
    if not network.nccl_selector or network.gloo_selector or not nccl or not gloo or gloo[0] in nccl:
        return []
    if any(i.name == nccl[0] and not _fine(i, network) for i in network.interfaces):
        return []  # NCCL's own choice must be fixed first, and that fix pins both
    return [
        _between_nodes(
            network,
            "network.gloo-selector-missing",
            "warn",
            f"NCCL is pinned to {nccl[0]}, gloo would use {gloo[0]}",
            "CPU collectives, monitored_barrier and TORCH_DISTRIBUTED_DEBUG=DETAIL run over gloo, which uses the "
            f"address of this host's name, {network.hostname}.",
            where=gloo[0],
            fix=f"export {GLOO_SOCKET_IFNAME}={shlex.quote(nccl[0])}",
        )
    ]


def _hostname(network: NetworkSection) -> list[Check]:
    """This host's name resolves to loopback or not at all; gloo binds to it and torchrun gives it to other nodes."""
    if network.hostname_addresses and not is_loopback(network.hostname_addresses[0]):
        return []
    best = _recommended_interface(network)
    fix = (
        f"put '{best.addresses[0]} {network.hostname}' into /etc/hosts"
        if best
        else "assign an address to this host name"
    )
    if best and not network.gloo_selector:
        fix += f", or export {GLOO_SOCKET_IFNAME}={shlex.quote(best.name)}"
    if network.hostname_addresses:
        title = f"this host's name, {network.hostname}, resolves to {network.hostname_addresses[0]}"
        detail = (
            "gloo listens on this address, and torchrun may pass it to other nodes, which then connect to themselves. "
            'It shows as "Gloo connectFullMesh failed", or as a rendezvous that never completes.'
        )
    else:
        title = f"this host's name, {network.hostname}, has no address"
        detail = (
            f"{network.hostname_problem}. gloo falls back to loopback, and other nodes cannot find this one by name."
        )
    return [
        _between_nodes(
            network,
            "network.hostname-loopback",
            "warn" if network.gloo_selector else "fail",
            title,
            detail,
            where=network.hostname,
            fix=fix,
        )
    ]


def _chosen_interface(network: NetworkSection) -> Check:
    names = network.nccl_would_use
    chosen = next((i for i in network.interfaces if names and i.name == names[0]), None)
    if chosen is None or chosen.kind == "loopback":
        return Check(
            "network.loopback-only",
            "fail" if (network.nodes or 1) > 1 else "warn",
            "only loopback is up" if chosen else "no interface is up",
            "Other nodes cannot be reached." if chosen else "NCCL and gloo cannot start: not even loopback is up.",
            where="lo",
            fix="" if chosen else "ip link set lo up",
        )
    why = f"{NCCL_SOCKET_IFNAME}={network.nccl_selector}" if network.nccl_selector else "NCCL's default choice"
    gloo = f"; gloo uses {', '.join(network.gloo_would_use)}" if network.gloo_would_use else ""
    clear = len(names) == 1 and (chosen.kind in REAL or chosen.default_route)
    return Check(
        "network.clear-choice" if clear else "network.choice",
        "ok",
        f"NCCL would use {', '.join(names)} ({_address(chosen)}, {_speed(chosen)}, MTU {chosen.mtu})",
        f"{why}{gloo}.",
        "network.clear-choice" if clear else "",
        where=chosen.name,
    )


def _between_nodes(
    network: NetworkSection, id_: str, worst: Status, title: str, detail: str, *, where: str, fix: str
) -> Check:
    """A check that matters between nodes: ``worst`` on several nodes, ok on one, warn if their number is unknown."""
    if network.nodes == 1:
        return Check(id_, "ok", title, f"{detail} This job runs on one node, where it is harmless.", where=where)
    if network.nodes is None:
        return Check(id_, "warn", title, f"{detail} On one node it is harmless.", id_, where, fix)
    return Check(id_, worst, title, detail, id_, where, fix)


def _fine(interface: Interface, network: NetworkSection) -> bool:
    """Return whether an interface is a good choice: a physical one; one with the default route that is no tunnel (a
    container's veth, a host's bridge); or a veth or loopback if nothing better exists."""
    if interface.kind in REAL or (interface.default_route and interface.kind != "tunnel"):
        return True
    better = any(
        _usable(other) or (other.up and other.default_route) for other in network.interfaces if other != interface
    )
    return interface.kind in ("virtual", "loopback") and not better


def _usable(interface: Interface) -> bool:
    return interface.up and interface.kind in REAL and bool(interface.addresses)


def _recommended_interface(network: NetworkSection) -> Interface | None:
    """The interface to recommend: physical, up, fastest; of equal ones that with the default route."""
    usable = [i for i in network.interfaces if _usable(i)] or [
        i for i in network.interfaces if i.up and i.addresses and i.default_route
    ]
    return max(usable, key=lambda i: (_mbps(i), i.default_route), default=None)


def _kind_of(network: NetworkSection, name: str) -> str:
    return next((i.kind for i in network.interfaces if i.name == name), "")


def _mbps(interface: Interface) -> int:
    return interface.speed_mbps or 0


def _speed(interface: Interface) -> str:
    if not interface.speed_mbps:
        return "speed unknown"
    return f"{interface.speed_mbps / 1000:g} Gb/s" if interface.speed_mbps >= 1000 else f"{interface.speed_mbps} Mb/s"


def _address(interface: Interface) -> str:
    return interface.addresses[0] if interface.addresses else "no address"


def _pin(interface: Interface) -> str:
    name = shlex.quote(interface.name)
    return f"with the name of each node's own interface: export {NCCL_SOCKET_IFNAME}={name} {GLOO_SOCKET_IFNAME}={name}"
