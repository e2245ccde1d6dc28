"""The rendezvous port, MASTER_PORT or 29500: whether rank 0 can listen on it, its holder, and a free port."""

import errno
import os
import pwd
import socket
from pathlib import Path

import msgspec

from ..errors import InspectionError
from ..evidence import Check
from ..launchers.known_variables import parse_integer
from ..snapshot import PortSection, Snapshot
from ..system import procfs
from ..system.sockets import LISTEN, TcpSocket, list_tcp_sockets
from ..text import redact
from .context import ProbeContext
from .env import read_launch_environment
from .isolated import ChildRequest, run_isolated

DEFAULT_PORT = 29500  # torch's static rendezvous, torch.distributed.launch, accelerate, deepspeed


async def collect(context: ProbeContext, limit_s: float) -> PortSection:
    """Collect the state and the holder of the port.

    Raises:
        InspectionError: There is no /proc/net/tcp, or it could not be read in time.
    """
    return await run_isolated(read_port_section, PortSection, context, limit_s=limit_s, subject="the rendezvous port")


def judge(snapshot: Snapshot) -> list[Check]:
    """Check that rank 0 can listen on the port."""
    ports = snapshot.ports
    if ports is None:
        return []
    name = f"port {ports.port} ({'MASTER_PORT' if ports.from_variable else 'the default'})"
    where = f"port {ports.port}"
    if ports.ours:
        return [Check("ports.held-by-job", "ok", f"{name} is held by the job itself", ports.holder, where=where)]
    if snapshot.resolve and snapshot.resolve.addresses and not snapshot.resolve.ours:
        master = snapshot.resolve.master_addr
        return [Check("ports.elsewhere", "skip", f"{name} matters on {master}", "Rank 0 listens there.", where=where)]
    if ports.free:
        return [Check("ports.free", "ok", f"{name} is free", "Rank 0 can listen on it.", "ports.free", where=where)]
    if ports.problem:
        return [
            Check(
                "ports.refused",
                "fail",
                f"{name} cannot be listened on",
                f"{ports.problem}. Rank 0 fails when it opens its store, and the others wait for it.",
                where=where,
                fix=f"export MASTER_PORT={ports.free_alternative}",
            )
        ]
    end = f"if it is left over, end it: kill {ports.holder_pid}; or " if ports.holder_pid else ""
    return [
        Check(
            "ports.busy",
            "fail",
            f"{name} is taken by {ports.holder or 'an unknown process'}",
            "Rank 0 of a job that needs it fails with EADDRINUSE (errno 98); the others join the wrong job or wait. "
            "(On one node and without --master-port, torchrun chooses a free port since torch 2.12.)",
            "ports.busy",
            where=f"pid {ports.holder_pid}" if ports.holder_pid else where,
            fix=f"{end}use another port: torchrun --master-port {ports.free_alternative} …, "
            "or on one node let torchrun choose: torchrun --standalone …",
        )
    ]


def read_port_section(request: ChildRequest) -> PortSection:
    """Read the section in this process (called in the child)."""
    _, environ, _, _ = read_launch_environment(request)
    given = parse_integer(environ.get("MASTER_PORT"))
    from_variable = given is not None and 0 < given < 65536
    port = given if given is not None and from_variable else DEFAULT_PORT
    sockets = _sockets()
    problem = _bind_problem(port)
    listeners = [entry for entry in sockets if entry.local[1] == port and entry.state == LISTEN]
    taken = bool(listeners) or problem == errno.EADDRINUSE
    section = PortSection(
        port=port,
        from_variable=from_variable,
        free=not taken and not problem,
        free_alternative=_free_port(port, sockets),
        problem="" if taken or not problem else _bind_error_text(port, problem),
    )
    if not taken:
        return section
    holders = listeners or [entry for entry in sockets if entry.local[1] == port and entry.inode]
    pid = _holder({entry.inode for entry in holders})
    holder = procfs.process_of(pid) if pid else None
    if not holder:
        users = sorted({_user(entry.uid) for entry in holders})
        whose = f"a process of {' or '.join(users)} that this user cannot inspect" if users else ""
        return msgspec.structs.replace(section, holder=whose)
    return msgspec.structs.replace(
        section,
        holder_pid=holder.pid,
        holder=redact.redact_text(holder.name),
        ours=_is_of_job(holder.pid, request.pids),
    )


def _sockets() -> list[TcpSocket]:
    """Every TCP socket of this network namespace that is bound and listening or connected.

    Raises:
        InspectionError: There is no /proc/net/tcp.
    """
    if not Path("/proc/net/tcp").exists():
        raise InspectionError("there is no /proc/net/tcp", "run ddpwizard on Linux, with /proc mounted")
    return list_tcp_sockets(os.getpid())


def _bind_problem(port: int) -> int:
    """The errno of binding the port, 0 on success. It does not listen, so that a starting job is not disturbed."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return error.errno
    return 0


def _bind_error_text(port: int, number: int) -> str:
    if number == errno.EACCES:
        return f"ports below 1024 need root, and {port} is one" if port < 1024 else "the kernel refuses this user"
    return os.strerror(number)


def _free_port(above: int, sockets: list[TcpSocket]) -> int:
    """The first port above ``above`` that no socket uses and that can be bound, or 0."""
    used = {entry.local[1] for entry in sockets}
    candidates = (
        [*range(above + 1, 65536), *range(DEFAULT_PORT, above)] if above >= 1024 else range(DEFAULT_PORT, 65536)
    )
    return next((port for port in candidates if port not in used and not _bind_problem(port)), 0)


def _holder(inodes: set[int]) -> int | None:
    """The lowest pid that has one of these sockets open, among the processes that this user can inspect."""
    held = inodes - {0}
    return next((pid for pid in sorted(procfs.all_processes()) if held & procfs.open_sockets(pid)), None)


def _is_of_job(pid: int, job: list[int]) -> bool:
    """Return whether ``pid`` is a process of the job or an ancestor of one (torchrun's agent hosts the store)."""
    if not job:
        return False
    processes = procfs.all_processes()
    return pid in job or any(pid == ancestor.pid for member in job for ancestor in procfs.ancestors(member, processes))


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user id {uid}"
