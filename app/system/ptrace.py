"""Reasons why the kernel refuses to inspect a process, and the commands that change it.

ptrace(2), "Ptrace access mode checking", gives the rules; the Yama module adds its scope
(Documentation/admin-guide/LSM/Yama.rst), a container takes capabilities away, and hidepid hides processes (proc(5)).
"""

import os
import pwd
import re
from pathlib import Path

import msgspec

from . import proc_files

SYS_PTRACE = 1 << 19  # linux/capability.h
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")


class PtraceAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Rights of the inspecting and of the inspected process. ``ptrace_scope`` is None without Yama."""

    pid: int
    user: str
    same_user: bool
    root: bool
    sys_ptrace: bool
    more_capable: bool  # it has capabilities that we lack
    ptrace_scope: int | None
    container: bool


def read_access(pid: int) -> PtraceAccess:
    """Read the rights that decide whether we may inspect a process."""
    uid = _number(pid, r"^Uid:\s+\d+\s+(\d+)")
    own, of_process = _capabilities(os.getpid(), "CapEff"), _capabilities(pid, "CapPrm")
    return PtraceAccess(
        pid=pid,
        user=_user(uid),
        same_user=uid in (None, os.geteuid()),
        root=os.geteuid() == 0,
        sys_ptrace=bool(own & SYS_PTRACE),
        more_capable=bool(of_process & ~own),
        ptrace_scope=read_ptrace_scope(),
        container=any(Path(mark).exists() for mark in CONTAINER_MARKS),
    )


def read_ptrace_scope() -> int | None:
    """Return kernel.yama.ptrace_scope, or None without Yama."""
    try:
        return int((proc_files.PROC / "sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None


def has_sys_ptrace(pid: int) -> bool:
    """Return whether a process has the capability to trace other processes."""
    return bool(_capabilities(pid, "CapEff") & SYS_PTRACE)


def access_problem(rights: PtraceAccess) -> str:
    """Return one sentence: the reason of the refusal, and the command that gives access."""
    again = f"sudo ddpwizard triage --pid {rights.pid}"
    if rights.ptrace_scope == 3:
        return (
            "kernel.yama.ptrace_scope is 3, which forbids it to everybody until the next boot; a job started with "
            "`ddpwizard run -- …` needs no such right"
        )
    if rights.sys_ptrace:
        return "refused although we have SYS_PTRACE (seccomp or a security module); run ddpwizard as root on the host"
    if not rights.same_user and not rights.root:
        return f"the process belongs to user {rights.user}: `{again}`"
    if rights.root or rights.more_capable:
        if rights.container:
            return (
                "this container lacks the SYS_PTRACE capability: start it with `docker run --cap-add SYS_PTRACE …` "
                "(Kubernetes: securityContext.capabilities.add), or run `sudo ddpwizard triage` on the host"
            )
        return f"we lack the SYS_PTRACE capability: `{again}` from a login that has it"
    if rights.ptrace_scope:
        change = "" if rights.ptrace_scope == 2 else ", or `sudo sysctl kernel.yama.ptrace_scope=0`"
        return f"kernel.yama.ptrace_scope is {rights.ptrace_scope}: `{again}`{change}"
    return f"refused without a reason that shows (seccomp, or a process that is not dumpable): `{again}`"


def proc_hidden() -> str:
    """Return a sentence if /proc hides other users' processes from us, or ""."""
    if os.geteuid() == 0:
        return ""
    try:
        mounts = (proc_files.PROC / "self/mounts").read_text()
    except OSError:
        return ""
    return proc_hidden_by_mount(mounts)


def proc_hidden_by_mount(mounts: str) -> str:
    """Return the sentence that follows from the text of /proc/self/mounts, or ""."""
    found = re.search(r"^\S+ /proc proc \S*\bhidepid=([124]|noaccess|invisible|ptraceable)\b", mounts, re.MULTILINE)
    if not found:
        return ""
    return f"/proc hides the processes of other users (hidepid={found[1]}): `sudo ddpwizard triage` shows them"


def _capabilities(pid: int, name: str) -> int:
    return _number(pid, rf"^{name}:\s+([0-9a-f]+)", 16) or 0


def _number(pid: int, pattern: str, base: int = 10) -> int | None:
    found = re.search(pattern, proc_files.read_text_of(pid, "status"), re.MULTILINE)
    return int(found[1], base) if found else None


def _user(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else "?"
    except KeyError:
        return str(uid)
