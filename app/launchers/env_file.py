"""An environment file: export lines for this box, each with its reason. Only what somebody reads, nothing harmful."""

import shlex

import msgspec

from ..hardware.machine import GeneratedFix, Machine
from .torchrun import advice_only

FILE = "ddpwizard.env"
MAX_THREADS = 8


class EnvVariable(msgspec.Struct, frozen=True):
    """One line of the file. ``reason`` becomes the comment above it."""

    name: str
    value: str
    reason: str


def interface_variables(box: Machine) -> list[EnvVariable]:
    """The selectors for the interface to pin: NCCL takes ``=name`` as exact (else a prefix), gloo the plain name."""
    if not box.interface:
        return []
    others = f" ({', '.join(box.other_interfaces)} would do too)" if box.other_interfaces else ""
    found = [
        EnvVariable("GLOO_SOCKET_IFNAME", box.interface, "gloo would take whatever the host name resolves to"),
    ]
    if box.gpu_count:
        reason = f"NCCL would choose by itself among all but docker* and lo; = is the exact name{others}"
        found.insert(0, EnvVariable("NCCL_SOCKET_IFNAME", f"={box.interface}", reason))
    return found


def recommended_variables(box: Machine) -> list[EnvVariable]:
    """Everything worth setting on this box.

    Versions: TORCH_FR_BUFFER_SIZE is read since torch 2.8 (TORCH_NCCL_TRACE_BUFFER_SIZE from 2.2) and on by default
    since 2.11; TORCH_NCCL_DUMP_ON_TIMEOUT is on by default since 2.7.
    """
    found = interface_variables(box)
    if box.gpu_count:
        found.append(EnvVariable("NCCL_DEBUG", "WARN", "NCCL says nothing about its failures unless told to"))
    if box.torch and (2, 2) <= box.torch < (2, 11):
        name = "TORCH_FR_BUFFER_SIZE" if box.torch >= (2, 8) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
        found.append(
            EnvVariable(name, "2000", "keeps the last 2000 collectives of each rank: tells who a hang waits for")
        )
    if box.gpu_count and box.torch and (2, 2) <= box.torch < (2, 7):
        found.append(
            EnvVariable("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "writes that record out when a collective times out")
        )
    threads = min(MAX_THREADS, box.cpus // box.ranks)
    if threads > 1:
        reason = f"torchrun sets 1 unless told; {box.cpus} CPUs are shared by {box.ranks} ranks here"
        found.append(EnvVariable("OMP_NUM_THREADS", str(threads), reason))
    return found


def render_env_file(found: list[EnvVariable]) -> str:
    """The lines as a shell reads them: each value quoted, each reason one comment line."""
    lines = ["# Made by ddpwizard for this box. Names of interfaces may differ on another node."]
    for variable in found:
        reason = " ".join("".join(c if c.isprintable() else " " for c in variable.reason).split())
        lines += [f"# {reason}", f"export {variable.name}={shlex.quote(variable.value)}"]
    return "\n".join(lines) + "\n"


def env_file(box: Machine, target: list[str]) -> GeneratedFix:
    """``env-file``: all of it."""
    found = recommended_variables(box)
    if not found:
        return advice_only("the GPUs, the interfaces or the version of torch")
    return _made(found, "Read it in the shell that starts the job, on each node.")


def pin_interface(box: Machine, target: list[str]) -> GeneratedFix:
    """``pin-interface``: the interface selectors alone."""
    found = interface_variables(box)
    if not found:
        return advice_only("a network interface that is up, has an address and leads out of this host")
    others = ", ".join(box.other_interfaces)
    return _made(
        found,
        f"{box.interface} is the fastest way out of this host that is up"
        + (f" (also up: {others}). Take the one the other nodes are reached by." if others else ".")
        + " Where a node names it otherwise, make the file there.",
    )


def _made(found: list[EnvVariable], words: str) -> GeneratedFix:
    return GeneratedFix(text=words, commands=[f"source ./{FILE}"], files={FILE: render_env_file(found)})
