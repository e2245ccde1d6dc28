"""An environment file: export lines for this machine, each with its reason."""

import shlex

import msgspec

from ..hardware.machine import Machine
from .torchrun import advice_only
from .types import GeneratedFix

FILE = "ddpwizard.env"
SELECTORS = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
MAX_THREADS = 8


class EnvVariable(msgspec.Struct, frozen=True):
    """One line of the file. ``reason`` becomes the comment above it."""

    name: str
    value: str
    reason: str


def interface_variables(machine: Machine) -> list[EnvVariable]:
    """Return the selectors of the interface to pin. NCCL takes ``=name`` as exact and ``name`` as a prefix."""
    if not machine.interface:
        return []
    others = f" (also up: {', '.join(machine.other_interfaces)})" if machine.other_interfaces else ""
    found = [
        EnvVariable(
            SELECTORS[1],
            machine.interface,
            "by default gloo takes the interface that the host name resolves to",
        ),
    ]
    if machine.gpu_count:
        reason = f"by default NCCL chooses among all but docker* and lo; = makes the name exact{others}"
        found.insert(0, EnvVariable(SELECTORS[0], f"={machine.interface}", reason))
    return found


def recommended_variables(machine: Machine) -> list[EnvVariable]:
    """Return all variables worth setting on this machine.

    Versions: TORCH_FR_BUFFER_SIZE is read since torch 2.8 (TORCH_NCCL_TRACE_BUFFER_SIZE from 2.2) and on by default
    since 2.11; TORCH_NCCL_DUMP_ON_TIMEOUT is on by default since 2.7.
    """
    found = interface_variables(machine)
    if machine.gpu_count:
        found.append(EnvVariable("NCCL_DEBUG", "WARN", "NCCL does not report its failures by default"))
    if machine.torch and (2, 2) <= machine.torch < (2, 11):
        name = "TORCH_FR_BUFFER_SIZE" if machine.torch >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
        found.append(
            EnvVariable(
                name, "2000", "records the last 2000 collectives of each rank: shows which ranks a hang waits for"
            )
        )
    if machine.gpu_count and machine.torch and (2, 2) <= machine.torch < (2, 7):
        found.append(
            EnvVariable("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "writes that record out when a collective times out")
        )
    threads = min(MAX_THREADS, machine.cpus // machine.ranks)
    if threads > 1:
        reason = f"torchrun sets 1 by default; here {machine.ranks} ranks share {machine.cpus} CPUs"
        found.append(EnvVariable("OMP_NUM_THREADS", str(threads), reason))
    return found


def render_env_file(found: list[EnvVariable]) -> str:
    """Render the lines for a shell: each value quoted, each reason one comment line."""
    lines = ["# Written by ddpwizard for this machine. Names of interfaces may differ on another node."]
    for variable in found:
        reason = " ".join("".join(c if c.isprintable() else " " for c in variable.reason).split())
        lines += [f"# {reason}", f"export {variable.name}={shlex.quote(variable.value)}"]
    return "\n".join(lines) + "\n"


def env_file(machine: Machine, target: list[str]) -> GeneratedFix:
    """``env-file``: all recommended variables."""
    found = recommended_variables(machine)
    if not found:
        return advice_only("the GPUs, the interfaces or the version of torch")
    return _generated(found, "Source it in the shell that starts the job, on each node.")


def pin_interface(machine: Machine, target: list[str]) -> GeneratedFix:
    """``pin-interface``: the interface selectors alone."""
    found = interface_variables(machine)
    if not found:
        text = (
            "On each node the first line lists the interfaces. Take the one with the address by which the other nodes "
            "reach it, put its name for INTERFACE, and run the second line in the shell that starts the job."
        )
        pins = " ".join(f"{name}=INTERFACE" for name in SELECTORS)
        return GeneratedFix(text=text, commands=["ip -brief address", f"export {pins}"])
    others = ", ".join(machine.other_interfaces)
    return _generated(
        found,
        f"{machine.interface} is the fastest interface of this host that is up"
        + (f" (also up: {others}). Take the one that reaches the other nodes." if others else ".")
        + " If a node has another name for it, create the file there.",
    )


def _generated(found: list[EnvVariable], text: str) -> GeneratedFix:
    return GeneratedFix(
        text=text,
        commands=[f"source ./{FILE}"],
        files={FILE: render_env_file(found)},
        environ={variable.name: variable.value for variable in found},
    )
