"""Run a probe in an environment of its own: real namespaces, limits, another user; skipped where not permitted."""

import asyncio
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import msgspec
import pytest
from ddpwizard.app.errors import InspectionError
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.snapshot import Snapshot


class Seen(NamedTuple):
    """The answer of a probe in that environment."""

    snapshot: Snapshot
    checks: list[Check]
    elapsed_s: float
    failed: str

    @property
    def findings(self) -> list[str]:
        return [check.finding for check in self.checks if check.finding]

    def check(self, id_: str) -> Check:
        return next(check for check in self.checks if check.id == id_)


def probe(
    name: str,
    environ: Mapping[str, str] | None = None,
    *,
    pids: Sequence[int] = (),
    namespaces: str = "",
    setup: Sequence[str] = (),
    command: Sequence[str] = (),
    limit_s: float = 60.0,
) -> Seen:
    """Collect and judge in a separate process: in new ``namespaces`` (flags of unshare), after the ``setup`` commands,
    below a ``command`` that starts others (``prlimit …``). The limit is long: the machine may be busy."""
    order = {"probe": name, "environ": dict(environ or {}), "pids": list(pids), "setup": list(setup)}
    argv = [*command, sys.executable, __file__, json.dumps(order | {"limit_s": limit_s})]
    if namespaces:
        argv = [*unshare_or_skip(namespaces), *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    answer = done.stdout.splitlines()[-1]
    if answer.startswith("skip: "):
        pytest.skip(answer)
    return msgspec.json.decode(answer, type=Seen)


def unshare_or_skip(flags: str) -> list[str]:
    """The command that makes these namespaces, where this machine permits them."""
    argv = ["unshare", *shlex.split(flags)]
    if not shutil.which("unshare") or subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"unshare {flags} is not permitted here")
    return argv


def _main() -> None:
    order: dict[str, Any] = json.loads(sys.argv[1])
    children: list[subprocess.Popen[bytes]] = []
    for line in order["setup"]:
        if line.startswith("listen "):
            children.append(_listen(int(line.split()[1])))
            continue
        done = subprocess.run(shlex.split(line), capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"skip: {line}: {done.stderr.strip()}")
            return
    module = import_module(f"ddpwizard.app.probes.{order['probe']}")
    context = ProbeContext(python=sys.executable, environ=order["environ"], pids=order["pids"])
    started, failed, section = time.monotonic(), "", None
    try:
        section = asyncio.run(module.collect(context, order["limit_s"]))
    except InspectionError as error:
        failed = str(error)
    elapsed_s = time.monotonic() - started
    snapshot = Snapshot(
        taken_at=0.0, host="box", ddpwizard_version="0", **({order["probe"]: section} if section else {})
    )
    for child in children:
        child.kill()
        child.wait()
    print(msgspec.json.encode(Seen(snapshot, module.judge(snapshot), elapsed_s, failed)).decode())


def _listen(port: int) -> "subprocess.Popen[bytes]":
    """A process that listens on a port of this namespace; returns when it does."""
    code = "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print('up', flush=True); s.accept()"
    child = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=subprocess.PIPE)
    assert child.stdout
    assert child.stdout.readline() == b"up\n"
    return child


if __name__ == "__main__":
    _main()
