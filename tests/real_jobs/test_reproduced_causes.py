"""Each cause whose failure a CPU can show: made to happen for real, and its output leads back to it."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.evidence import RankedCause
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.app.system.subprocesses import run_process
from ddpwizard.knowledge.loader import read_knowledge

pytestmark = [pytest.mark.jobs, pytest.mark.slow]
KNOWLEDGE = read_knowledge()
LIMIT_S = 400
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
model = DDP(nn.Linear(2, 1))
for _ in torch.arange(5)[rank::2]:
    model(torch.ones(1, 2)).sum().backward()
os._exit(0)  # without a teardown, in which gloo at times aborts: that would be another cause
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


def output(command: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """Return the output of a command that ended with an error."""
    outcome = asyncio.run(run_process(command, limit_s=LIMIT_S, env=bare_environment(environ or {}), cwd=directory))
    assert outcome.status == "failed", (outcome.status, outcome.log)
    return outcome.log


def bare_environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCH_VARIABLES}
    return {**kept, "OMP_NUM_THREADS": "1", **extra}


def torchrun(tmp_path: Path, script: str, environ: Mapping[str, str] | None = None, timeout_s: float = 60) -> str:
    line = ["--standalone", "--nproc-per-node=2", str(written(tmp_path, script)), str(timeout_s)]
    return output([sys.executable, "-m", "torch.distributed.run", *line], tmp_path, environ)


def alone(tmp_path: Path, environ: Mapping[str, str] | None = None, timeout_s: float = 60) -> str:
    """One process that calls all-reduce in the group of its environment."""
    return output([sys.executable, str(written(tmp_path, ALL_REDUCE)), str(timeout_s)], tmp_path, environ)


def written(directory: Path, script: str) -> Path:
    path = directory / "train.py"
    path.write_text(script)
    return path


def diagnosed(log: str) -> list[RankedCause]:
    case = Case(KNOWLEDGE)
    add_to_case(case, [source_of_text(log, "train.log")])
    return case.diagnosis().causes


def assert_first(log: str, cause: str) -> None:
    first = diagnosed(log)[0]
    assert first.id == cause, (first, log[-3000:])
    assert any(line.source == "log" for line in first.because)


def contract(rank: str, world_size: int, port: int, address: str = "127.0.0.1") -> dict[str, str]:
    return {"RANK": rank, "WORLD_SIZE": str(world_size), "MASTER_ADDR": address, "MASTER_PORT": str(port)}


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_bare_python_launch(tmp_path: Path):
    assert_first(alone(tmp_path), "bare-python-launch")


def test_env_contract_broken_by_a_variable_that_is_missing(tmp_path: Path):
    assert_first(alone(tmp_path, {"RANK": "0", "WORLD_SIZE": "1"}), "env-contract-broken")


def test_env_contract_broken_by_a_rank_that_is_no_number(tmp_path: Path, free_port: int):
    assert_first(alone(tmp_path, contract("${RANK}", 2, free_port)), "env-contract-broken")


@pytest.mark.parametrize("ranks", [("0", "2"), ("0", "1", "1")], ids=["out-of-range", "duplicated"])
def test_env_contract_broken_by_the_numbering(tmp_path: Path, free_port: int, ranks: tuple[str, ...]):
    world_size = len(ranks)
    script = str(written(tmp_path, ALL_REDUCE))

    async def together() -> list[str]:
        runs = [
            run_process(
                [sys.executable, script, "10"],
                limit_s=LIMIT_S,
                env=bare_environment(contract(rank, world_size, free_port)),
            )
            for rank in ranks
        ]
        return [outcome.log for outcome in await asyncio.gather(*runs)]

    assert_first("\n".join(asyncio.run(together())), "env-contract-broken")


def test_master_unreachable_because_nobody_listens(tmp_path: Path, free_port: int):
    assert_first(alone(tmp_path, contract("1", 2, free_port), timeout_s=5), "master-unreachable")


def test_master_unreachable_because_the_name_is_unknown(tmp_path: Path, free_port: int):
    environ = contract("1", 2, free_port, "no-such-host.invalid")
    assert_first(alone(tmp_path, environ, timeout_s=5), "master-unreachable")


def test_port_in_use(tmp_path: Path, taken_port: int):
    assert_first(alone(tmp_path, contract("0", 1, taken_port)), "port-in-use")


def test_port_in_use_under_torchrun(tmp_path: Path, taken_port: int):
    line = ["--nproc-per-node=2", f"--master-port={taken_port}", str(written(tmp_path, ALL_REDUCE)), "60"]
    log = output([sys.executable, "-m", "torch.distributed.run", *line], tmp_path)
    assert_first(log, "port-in-use")


def test_wrap_before_device(tmp_path: Path):
    assert_first(torchrun(tmp_path, WRAP), "wrap-before-device")


def test_unused_parameters(tmp_path: Path):
    assert_first(torchrun(tmp_path, UNUSED), "unused-parameters")


def test_uneven_inputs(tmp_path: Path):
    assert_first(torchrun(tmp_path, UNEVEN), "uneven-inputs")


def test_rank_conditional_collective(tmp_path: Path):
    assert_first(torchrun(tmp_path, RANK_CONDITIONAL, timeout_s=30), "rank-conditional-collective")


@pytest.mark.parametrize("selector", ["nope0", "^docker0"])
def test_wrong_nic_by_its_selector(tmp_path: Path, selector: str):
    assert_first(torchrun(tmp_path, ALL_REDUCE, {"GLOO_SOCKET_IFNAME": selector}), "wrong-nic")


def test_wrong_nic_between_two_hosts(tmp_path: Path, two_hosts: tuple[str, str]):
    script = str(written(tmp_path, ALL_REDUCE))

    async def on_both() -> str:
        """The log of the rank that gives up; the other one waits on and is ended."""
        runs = [
            asyncio.ensure_future(
                run_process(
                    ["ip", "netns", "exec", host, sys.executable, script, "60"],
                    limit_s=LIMIT_S,
                    env=bare_environment({**contract(str(rank), 2, 29500, "10.231.0.1"), "GLOO_SOCKET_IFNAME": "lo"}),
                )
            )
            for rank, host in enumerate(two_hosts)
        ]
        done, waiting = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for other in waiting:
            other.cancel()
        return "\n".join([outcome.result().log for outcome in done])

    assert_first(asyncio.run(on_both()), "wrong-nic")


@pytest.fixture
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


@pytest.mark.parametrize("options", ["size=6m", "ro,size=6m"])
def test_shm_too_small(tmp_path: Path, options: str):
    mount = f"mount -t tmpfs -o {options} tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, timeout=30, check=False).returncode:
        pytest.skip("no mount namespace can be made here, so /dev/shm cannot be made small")
    train = [sys.executable, str(written(tmp_path, LOADER))]
    assert_first(
        output(["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *train], tmp_path), "shm-too-small"
    )
