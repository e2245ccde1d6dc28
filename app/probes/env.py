"""The launch environment of the shell, or of each rank of a running job; and nccl.conf."""

import os
import stat
from collections.abc import Mapping

from ..errors import InspectionError
from ..evidence import Check
from ..launchers.known_variables import HOME, is_launch_variable, parse_integer
from ..snapshot import EnvSection, Snapshot
from ..system import procfs
from ..text import redact
from .context import ProbeContext
from .env_rules import contract_checks, job_checks
from .env_settings import setting_checks
from .isolated import ChildRequest, run_isolated

CONF_LIMIT_BYTES = 64 * 1024
SYSTEM_CONF = "/etc/nccl.conf"


async def collect(context: ProbeContext, limit_s: float) -> EnvSection:
    """Collect the variables of the shell, or with ``context.pids`` those that the processes were started with.

    Raises:
        InspectionError: The job has ended, or none of its processes is readable.
    """
    return await run_isolated(read_env_section, EnvSection, context, limit_s=limit_s, subject="the launch environment")


def judge(snapshot: Snapshot) -> list[Check]:
    """Check that the variables are complete, agree between the ranks, and are valid for their readers."""
    env = snapshot.env
    if env is None:
        return []
    checks = job_checks(env) if env.ranks else contract_checks(env)
    return [*checks, *setting_checks(env, snapshot.gpus)]


def read_env_section(request: ChildRequest) -> EnvSection:
    """Read the section in this process (called in the child)."""
    owner, environ, ranks, unreadable = read_launch_environment(request)
    conf, files, problems = read_nccl_conf(environ)
    return EnvSection(
        owner=owner,
        variables=_launch_variables(environ),
        ranks={pid: _launch_variables(variables) for pid, variables in ranks.items()},
        nccl_conf=redact.redact_environment({name: value for name, value in conf.items() if name not in environ}),
        nccl_conf_files=files,
        nccl_conf_problems=problems,
        unreadable=unreadable,
    )


def read_launch_environment(request: ChildRequest) -> tuple[str, dict[str, str], dict[int, dict[str, str]], list[int]]:
    """Return the owner of the environment that counts (the job's lowest rank, else the shell), its variables, the
    variables of each rank without its helper processes, and the unreadable pids.

    Raises:
        InspectionError: The job has ended, or none of its processes is readable.
    """
    if not request.pids:
        return "this shell", request.environ, {}, []
    found = {pid: proc for pid in request.pids if (proc := procfs.process_of(pid)) and proc.state != "Z"}
    if not found:
        raise InspectionError(f"the job has ended (pid {_few(request.pids)})", "start it again, or leave out --pid")
    ranks = {pid: proc.environ for pid, proc in found.items()}
    unreadable = [pid for pid, proc in found.items() if proc.denied]
    for pid in unreadable:
        del ranks[pid]
    if not ranks:
        raise InspectionError(
            f"no permission to read the environment of pid {_few(list(found))}", "run ddpwizard as its user"
        )
    ranks = {
        pid: environ
        for pid, environ in ranks.items()
        if not (environ.get("RANK") and ranks.get(found[pid].parent, {}).get("RANK") == environ["RANK"])
    }
    ranked = [(rank, pid) for pid, environ in ranks.items() if (rank := parse_integer(environ.get("RANK"))) is not None]
    first = min(ranked)[1] if ranked else min(ranks)
    return redact.redact_text(found[first].name), ranks[first], ranks, unreadable


def read_nccl_conf(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the settings of nccl.conf, its files, and the problems in them.

    NCCL reads NCCL_CONF_FILE (since 2.23) or else ~/.nccl.conf, then /etc/nccl.conf. The first file wins, and the
    environment wins over both (src/misc/param.cc). Blanks in a line belong to name and value.
    """
    home = environ.get(HOME, "")
    own = environ.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else "")
    settings: dict[str, str] = {}
    files: list[str] = []
    problems: list[str] = []
    for path in filter(None, (own, SYSTEM_CONF)):
        try:
            lines = read_start_of_file(path, CONF_LIMIT_BYTES).decode(errors="replace").splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        files.append(path)
        for at, line in enumerate(lines, 1):
            name, equals, value = line.partition("=")
            if line.startswith("#") or not line.strip():
                continue
            if not equals or name != name.strip() or " " in name or value != value.strip():
                problems.append(
                    f"{path}:{at}: {redact.redact_text(line)[:80]!r} is not NAME=value; NCCL takes blanks as part of it"
                )
            if equals:
                settings.setdefault(name, value)
    return settings, files, problems


def read_start_of_file(path: str, limit_bytes: int) -> bytes:
    """Read the start of a regular file. A FIFO or a device is refused, because reading it could block.

    Raises:
        OSError: The file cannot be read; ``strerror`` is the reason.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(0, "not a regular file; NCCL blocks when it opens it")
        return os.read(fd, limit_bytes)
    finally:
        os.close(fd)


def _launch_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return redact.redact_environment(
        {name: value for name, value in environ.items() if is_launch_variable(name) and name != HOME}
    )


def _few(pids: list[int]) -> str:
    return ", ".join(map(str, pids[:4])) + (", …" if len(pids) > 4 else "")
