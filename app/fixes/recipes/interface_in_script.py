"""``interface-in-script``: an interface of this machine in place of one that the script names and that is not here."""

import ast

from ...hardware.machine import interfaces_to_pin
from ...probes.ifname_selectors import GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, nccl_matches
from ...snapshot import NetworkSection
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .types import RecipeResult


def interface_in_script(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the variables that the script sets to interfaces of which this machine has none."""
    snapshot = facts.context.snapshot
    network = snapshot.network if snapshot else None
    chosen = _chosen(network) if network else ""
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        set_ = [each for node in ast.walk(file.source.tree) if (each := _set_selector(file, node))]
        wrong = [value for name, value in set_ if network and not _has(network, name, str(value.value))]
        places += [file.place(value, "names the interface") for value in wrong]
        if wrong and chosen:
            patches.append(file.patched([file.source.replace(value, f'"{chosen}"') for value in wrong]))
    return RecipeResult(patches=patches, places=places)


def _chosen(network: NetworkSection) -> str:
    """Return the interface that leads to other machines; without one, that of this machine alone."""
    pinned, _ = interfaces_to_pin(network)
    loopback = [each.name for each in network.interfaces if each.kind == "loopback" and each.addresses]
    return pinned.name if pinned else next(iter(loopback), "")


def _set_selector(file: UserFile, node: ast.AST) -> tuple[str, ast.Constant] | None:
    """Return the variable and the text that a statement sets it to."""
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=held, slice=ast.Constant(value=str() as name))],
            value=ast.Constant(value=str()) as value,
        ) if file.qualified(held) == "os.environ":
            pass
        case ast.Call(func=func, args=[ast.Constant(value=str() as name), ast.Constant(value=str()) as value]) if (
            file.qualified(func) in ("os.environ.setdefault", "os.putenv")
        ):
            pass
        case _:
            return None
    return (name, value) if name in (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) else None


def _has(network: NetworkSection, variable: str, selector: str) -> bool:
    """Return whether this machine has an interface that a selector names, or the selector names none."""
    names = [each.name for each in network.interfaces if each.up and each.addresses]
    if not selector:
        return True
    if variable == NCCL_SOCKET_IFNAME:
        return any(nccl_matches(selector, name) for name in names)
    return all(name in names for name in selector.split(","))
