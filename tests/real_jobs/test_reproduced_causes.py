"""Each cause whose failure a CPU can show: made to happen for real, and its output leads back to it."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.app.system.subprocesses import run_process
from helpers.built_in_knowledge import built_in_knowledge
from helpers.torchrun_server import Ended, run_python, run_torchrun

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.long]
KNOWLEDGE = built_in_knowledge()
LIMIT_S = 400
AT_A_TIME = 3  # the jobs mostly wait, for a time-out or for each other
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

GROUP = """\
from datetime import timedelta
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[1])))
rank = dist.get_rank()
"""
ALL_REDUCE = GROUP + "dist.all_reduce(torch.ones(1))\n"
WRAP = GROUP + "DDP(nn.Linear(2, 2), device_ids=[0])\n"
UNUSED = (
    GROUP
    + """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
    def forward(self, x):
        return self.used(x)
model = DDP(Net())
for _ in range(2):
    model(torch.ones(1, 2)).sum().backward()
"""
)
UNEVEN = (
    GROUP
    + """\
import time
hook = sys.excepthook
sys.excepthook = lambda *error: (hook(*error), sys.stderr.flush(), os._exit(1))
model = DDP(nn.Linear(2, 1))
for _ in torch.arange(5)[rank::2]:
    model(torch.ones(1, 2)).sum().backward()
time.sleep(2)  # the other rank waits in its third step by then
os._exit(0)  # both ranks end without a teardown, in which gloo at times aborts: that would be another cause
"""
)
RANK_CONDITIONAL = (
    GROUP
    + """\
def validate():
    if rank == 0:
        dist.all_reduce(torch.ones(1))
validate()
dist.barrier()
"""
)
LOADER = """\
import torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.zeros(4, 512, 512)
if __name__ == "__main__":
    for batch in DataLoader(Images(), batch_size=4, num_workers=2):
        pass
"""


class Reproduction(NamedTuple):
    """A job that fails because of ``cause``. ``run`` starts it in a directory and returns its output."""

    id: str
    cause: str
    run: Callable[[Path], str]


def output(command: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """Return the output of a command that ended with an error."""
    outcome = asyncio.run(run_process(command, limit_s=LIMIT_S, env=bare_environment(environ or {}), cwd=directory))
    assert outcome.status == "failed", (outcome.status, outcome.log)
    return outcome.log


def bare_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    return {**kept, "OMP_NUM_THREADS": "1", **extra}


def torchrun(
    directory: Path, script: str = ALL_REDUCE, environ: Mapping[str, str] | None = None, timeout_s: float = 60
) -> str:
    return under_torchrun(directory, ["--standalone"], script, environ, timeout_s)


def under_torchrun(
    directory: Path, options: Sequence[str], script: str, environ: Mapping[str, str] | None, timeout_s: float
) -> str:
    """The output of two ranks that ended with an error, and of their launcher."""
    ended = run_torchrun(
        ["--nproc-per-node=2", *options],
        written(directory, script),
        [str(timeout_s)],
        directory=directory,
        limit_s=LIMIT_S,
        environ=bare_environment(environ or {}),
    )
    assert ended.code == 1, ended
    return ended.log


def alone(directory: Path, environ: Mapping[str, str] | None = None, timeout_s: float = 60) -> str:
    """One process that calls all-reduce in the group of its environment."""
    ended = python(directory, environ or {}, timeout_s)
    assert ended.code == 1, ended
    return ended.log


def python(directory: Path, environ: Mapping[str, str], timeout_s: float) -> Ended:
    arguments = [str(timeout_s)]
    script = written(directory, ALL_REDUCE)
    return run_python(script, arguments, directory=directory, limit_s=LIMIT_S, environ=bare_environment(environ))


def written(directory: Path, script: str) -> Path:
    path = directory / "train.py"
    path.write_text(script)
    return path


def contract(rank: str, world_size: int, port: int, address: str = "127.0.0.1") -> dict[str, str]:
    return {"RANK": rank, "WORLD_SIZE": str(world_size), "MASTER_ADDR": address, "MASTER_PORT": str(port)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def incomplete_variables(directory: Path) -> str:
    return alone(directory, {"RANK": "0", "WORLD_SIZE": "1"})


def rank_that_is_no_number(directory: Path) -> str:
    return alone(directory, contract("${RANK}", 2, free_port()))


def numbered(directory: Path, *ranks: str) -> str:
    """The output of one process for each rank number."""
    port = free_port()
    with ThreadPoolExecutor(len(ranks)) as pool:
        ended = pool.map(lambda rank: python(directory, contract(rank, len(ranks), port), 10), ranks)
        return "\n".join([each.log for each in ended])


def port_without_listener(directory: Path) -> str:
    with socket.socket() as bound:  # bound without listen(), so that no other process gets the port meanwhile
        bound.bind(("127.0.0.1", 0))
        return alone(directory, contract("1", 2, bound.getsockname()[1]), timeout_s=5)


def unknown_name(directory: Path) -> str:
    return alone(directory, contract("1", 2, free_port(), "no-such-host.invalid"), timeout_s=5)


def taken_port(directory: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return alone(directory, contract("0", 1, server.getsockname()[1]))


def taken_port_under_torchrun(directory: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return under_torchrun(directory, [f"--master-port={server.getsockname()[1]}"], ALL_REDUCE, None, 60)


def wrong_interface(directory: Path, selector: str) -> str:
    return torchrun(directory, environ={"GLOO_SOCKET_IFNAME": selector})


def two_hosts_that_share_only_loopback(directory: Path) -> str:
    script = str(written(directory, ALL_REDUCE))

    async def on_both(hosts: tuple[str, str]) -> str:
        """The log of the rank that gives up; the other one waits on and is ended."""
        runs = [
            asyncio.ensure_future(
                run_process(
                    ["ip", "netns", "exec", host, sys.executable, script, "60"],
                    limit_s=LIMIT_S,
                    env=bare_environment({**contract(str(rank), 2, 29500, "10.231.0.1"), "GLOO_SOCKET_IFNAME": "lo"}),
                )
            )
            for rank, host in enumerate(hosts)
        ]
        done, waiting = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for other in waiting:
            other.cancel()
        await asyncio.wait(runs)
        return "\n".join([outcome.result().log for outcome in done])

    with two_hosts() as hosts:
        return asyncio.run(on_both(hosts))


@contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a cable, as two machines; only loopback is the same in both."""
    hosts = f"ddpw{os.getpid()}a", f"ddpw{os.getpid()}b"
    steps = [["netns", "add", host] for host in hosts]
    steps += [["link", "add", "eth0", "netns", hosts[0], "type", "veth", "peer", "name", "eth0", "netns", hosts[1]]]
    for number, host in enumerate(hosts, 1):
        steps += [["-n", host, "addr", "add", f"10.231.0.{number}/24", "dev", "eth0"]]
        steps += [["-n", host, "link", "set", device, "up"] for device in ("lo", "eth0")]
    if not shutil.which("ip"):
        pytest.skip("no ip command here, so no network namespaces")
    try:
        for step in steps:
            done = subprocess.run(["ip", *step], capture_output=True, text=True, timeout=30, check=False)
            if done.returncode:
                pytest.skip(f"network namespaces cannot be made here: ip {' '.join(step)}: {done.stderr.strip()}")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, timeout=30, check=False)


def small_shared_memory(directory: Path, options: str) -> str:
    mount = f"mount -t tmpfs -o {options} tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, timeout=30, check=False).returncode:
        pytest.skip("no mount namespace can be made here, so /dev/shm cannot be made small")
    train = [sys.executable, str(written(directory, LOADER))]
    return output(["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *train], directory)


# The longest first, so that none of them runs alone at the end.
REPRODUCTIONS = (
    Reproduction(
        "rank-condition", "rank-conditional-collective", lambda at: torchrun(at, RANK_CONDITIONAL, timeout_s=30)
    ),
    Reproduction("rank-out-of-range", "env-contract-broken", lambda at: numbered(at, "0", "2")),
    Reproduction("rank-duplicated", "env-contract-broken", lambda at: numbered(at, "0", "1", "1")),
    Reproduction("uneven-inputs", "uneven-inputs", lambda at: torchrun(at, UNEVEN)),
    Reproduction("nobody-listens", "master-unreachable", port_without_listener),
    Reproduction("unused-parameters", "unused-parameters", lambda at: torchrun(at, UNUSED)),
    Reproduction("unknown-name", "master-unreachable", unknown_name),
    Reproduction("ddp-before-device", "wrap-before-device", lambda at: torchrun(at, WRAP)),
    Reproduction("no-such-interface", "wrong-nic", lambda at: wrong_interface(at, "nope0")),
    Reproduction("excluded-interface", "wrong-nic", lambda at: wrong_interface(at, "^docker0")),
    Reproduction("loopback-between-two-hosts", "wrong-nic", two_hosts_that_share_only_loopback),
    Reproduction("rank-no-number", "env-contract-broken", rank_that_is_no_number),
    Reproduction("small-shm", "shm-too-small", lambda at: small_shared_memory(at, "size=6m")),
    Reproduction("small-read-only-shm", "shm-too-small", lambda at: small_shared_memory(at, "ro,size=6m")),
    Reproduction("missing-variable", "env-contract-broken", incomplete_variables),
    Reproduction("no-launcher", "bare-python-launch", alone),
    Reproduction("taken-port", "port-in-use", taken_port),
    Reproduction("taken-port-under-torchrun", "port-in-use", taken_port_under_torchrun),
)


@pytest.fixture(scope="module")
def outputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, "Future[str]"]:
    """The output of each selected job, once all have ended."""
    selected = [item.name for item in request.session.items]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return {
            each.id: pool.submit(each.run, tmp_path_factory.mktemp(each.id))
            for each in REPRODUCTIONS
            if any(each.id in name for name in selected)
        }


@pytest.mark.parametrize("job", REPRODUCTIONS, ids=[each.id for each in REPRODUCTIONS])
def test_output_of_real_failure_is_diagnosed(job: Reproduction, outputs: dict[str, "Future[str]"]) -> None:
    log = outputs[job.id].result()
    case = Case(KNOWLEDGE)
    add_to_case(case, [source_of_text(log, "train.log")])
    first = case.diagnosis().causes[0]
    assert first.id == job.cause, f"{first}\n{log}"
    assert any(line.source == "log" for line in first.because)
