"""The launch environment: of a shell, of real processes through /proc, and nccl.conf, a FIFO in its place included."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpwizard.app.evidence import Check
from ddpwizard.app.launchers.known_variables import COSTLY, KNOWN, NO_OP, RENAMED, closest_known_name, node_count
from ddpwizard.app.probes.env import judge
from ddpwizard.app.probes.ifname_selectors import selector_problem
from ddpwizard.app.snapshot import EnvSection, Gpu, GpuSection, Snapshot
from helpers.built_in_knowledge import built_in_knowledge
from helpers.probe_namespaces import probe

COMPLETE = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}
Start = Callable[[dict[str, str]], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process with the given environment; it runs and its environment is readable when this returns."""
    running: list[subprocess.Popen[bytes]] = []

    def one(environ: dict[str, str]) -> int:
        code = "print('up', flush=True); import time; time.sleep(300)"
        child = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE)
        running.append(child)
        assert child.stdout
        assert child.stdout.readline() == b"up\n"
        return child.pid

    yield one
    for child in running:
        child.kill()
        child.wait()


def judged(variables: dict[str, str], gpus: GpuSection | None = None, **section: object) -> list[Check]:
    env = EnvSection(owner="this shell", variables=variables, **section)  # type: ignore[arg-type]
    return judge(Snapshot(taken_at=0, host="h", ddpwizard_version="0", env=env, gpus=gpus))


def findings(checks: list[Check]) -> list[str]:
    return [check.finding for check in checks if check.finding]


def job(*ranks: dict[str, str], **section: object) -> list[Check]:
    by_pid = {100 + at: COMPLETE | {"RANK": str(at), "LOCAL_RANK": str(at)} | rank for at, rank in enumerate(ranks)}
    return judged(by_pid[100], None, ranks=by_pid, **section)


def test_plain_shell_is_no_finding() -> None:
    seen = probe("env", {})
    assert seen.snapshot.env is not None
    assert seen.snapshot.env.owner == "this shell"
    assert [(check.id, check.status, check.finding) for check in seen.checks] == [("env.absent", "skip", "")]


def test_complete_contract() -> None:
    checks = judged(COMPLETE)
    assert [(check.status, check.finding) for check in checks] == [("ok", "env.complete")]
    assert "RANK=1, WORLD_SIZE=4" in checks[0].detail


@pytest.mark.parametrize(
    ("change", "finding", "where", "text"),
    [
        ({"MASTER_ADDR": ""}, "env.incomplete", "MASTER_ADDR", "environment variable MASTER_ADDR expected"),
        ({"LOCAL_RANK": ""}, "env.incomplete", "LOCAL_RANK", "falls back to GPU 0"),
        ({"WORLD_SIZE": "four"}, "env.not-a-number", "WORLD_SIZE", "int()"),
        ({"MASTER_PORT": "29500x"}, "env.not-a-number", "MASTER_PORT", "int()"),
        ({"RANK": "4"}, "env.rank-out-of-range", "RANK", "0 to 3"),
        ({"RANK": "-1"}, "env.rank-out-of-range", "RANK", "0 to 3"),
        ({"LOCAL_RANK": "4"}, "env.rank-out-of-range", "LOCAL_RANK", "invalid device ordinal"),
        ({"MASTER_PORT": "70000"}, "env.port-out-of-range", "MASTER_PORT", "1 to 65535"),
    ],
)
def test_broken_contract(change: dict[str, str], finding: str, where: str, text: str) -> None:
    checks = judged(COMPLETE | change)
    assert findings(checks) == [finding]
    assert (checks[0].status, checks[0].where) == ("fail", where)
    assert text in checks[0].detail
    assert checks[0].fix


def test_incomplete_contract_without_a_launcher_is_a_warning() -> None:
    """Batch scripts export MASTER_ADDR and MASTER_PORT for torchrun's command line."""
    checks = judged({"MASTER_ADDR": "node0", "MASTER_PORT": "29500"})
    assert [(check.status, check.finding) for check in checks] == [("warn", "env.incomplete")]


def test_ranks_that_agree() -> None:
    checks = job({}, {}, {}, {})
    assert findings(checks) == ["env.complete"]
    assert checks[0].title.startswith("ranks 0–3 of 4 on this host")


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        (({}, {"RANK": "0"}, {}, {}), ["env.rank-duplicated"]),
        (({}, {}, {}, {"WORLD_SIZE": "5"}), ["env.world-size-differs"]),
        (({}, {}, {}, {"MASTER_PORT": "29501"}), ["env.world-size-differs"]),
        (({}, {}, {}), ["env.local-world-mismatch"]),
        (({}, {}, {}, {"MASTER_ADDR": ""}), ["env.incomplete", "env.world-size-differs"]),
    ],
)
def test_ranks_that_disagree(ranks: tuple[dict[str, str], ...], found: list[str]) -> None:
    assert findings(job(*ranks)) == found


def test_unreadable_rank_is_not_reported_as_missing() -> None:
    assert findings(job({}, {}, {}, unreadable=[777])) == ["env.complete"]


def test_same_problem_of_several_ranks_is_reported_once() -> None:
    assert findings(job(*[{"MASTER_PORT": "0"}] * 4)) == ["env.port-out-of-range"]


def test_real_processes(start: Start) -> None:
    pids = [start(COMPLETE | {"RANK": str(rank), "LOCAL_RANK": str(rank), "SOME": "thing"}) for rank in (3, 0, 1)]
    pids.append(start(COMPLETE | {"RANK": "1", "LOCAL_RANK": "2"}))
    seen = probe("env", {"RANK": "99"}, pids=pids)
    section = seen.snapshot.env
    assert section is not None
    assert section.owner.startswith(f"pid {pids[1]} (")  # rank 0's
    assert section.variables == COMPLETE | {"RANK": "0", "LOCAL_RANK": "0"}
    assert sorted(section.ranks) == sorted(pids)
    assert seen.findings == ["env.rank-duplicated"]
    assert str(pids[2]) in seen.check("env.rank-duplicated").detail


def test_single_process_without_a_launcher(start: Start) -> None:
    pid = start({"PATH": "/bin"})
    seen = probe("env", {}, pids=[pid])
    assert seen.findings == ["env.absent"]


def test_spawned_processes_without_variables_are_unknown(start: Start) -> None:
    seen = probe("env", {}, pids=[start({}), start({})])
    assert [(check.status, check.finding) for check in seen.checks] == [("unknown", "")]


def test_data_loader_workers_are_no_ranks(tmp_path: Path) -> None:
    """Forked helpers of a rank inherit its RANK; they are no second rank 1."""
    code = "import os, time; print(os.fork(), flush=True); time.sleep(300)"
    rank = subprocess.Popen([sys.executable, "-c", code], env=COMPLETE, stdout=subprocess.PIPE)
    assert rank.stdout
    worker = int(rank.stdout.readline().split()[0]) or int(rank.stdout.readline())
    try:
        seen = probe("env", {}, pids=[rank.pid, worker])
        assert seen.snapshot.env is not None
        assert list(seen.snapshot.env.ranks) == [rank.pid]
        assert "env.rank-duplicated" not in seen.findings
    finally:
        os.kill(worker, 9)
        rank.kill()
        rank.wait()


def test_ended_job_is_an_error() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert probe("env", {}, pids=[child.pid]).failed.startswith(f"the job has ended (pid {child.pid})")


def test_secrets_are_redacted(start: Start) -> None:
    login = "http://user:hunter2@proxy:3128"
    seen = probe("env", {}, pids=[start(COMPLETE | {"HTTP_PROXY": login, "NCCL_SECRET_TOKEN": "hunter2"})])
    assert seen.snapshot.env is not None
    assert "hunter2" not in str(seen.snapshot.env)


@pytest.mark.parametrize("via_variable", [True, False])
def test_fifo_as_nccl_conf_does_not_block(tmp_path: Path, via_variable: bool) -> None:
    fifo = tmp_path / (".nccl.conf" if not via_variable else "other.conf")
    os.mkfifo(fifo)
    seen = probe("env", {"HOME": str(tmp_path)} | ({"NCCL_CONF_FILE": str(fifo)} if via_variable else {}))
    assert seen.failed == ""
    assert seen.check("env.conf-file-unreadable").detail == (
        f"{fifo}: not a regular file; NCCL blocks when it opens it."
    )


def test_settings_of_nccl_conf(tmp_path: Path) -> None:
    conf = tmp_path / ".nccl.conf"
    conf.write_text("# comment\nNCCL_SOCKET_IFNAME=eth0\nNCCL_DEBUG=INFO\nNCCL_IB_DISABLE = 1\nexport NCCL_ALGO=Ring\n")
    seen = probe("env", {"HOME": str(tmp_path), "NCCL_DEBUG": "WARN"})
    section = seen.snapshot.env
    assert section is not None
    assert section.nccl_conf == {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_DISABLE ": " 1", "export NCCL_ALGO": "Ring"}
    assert [problem.partition(": ")[0] for problem in section.nccl_conf_problems] == [f"{conf}:4", f"{conf}:5"]
    assert "env.conf-file-in-force" in seen.findings
    assert seen.findings.count("env.conf-file-unreadable") == 2
    assert "HOME" not in section.variables


@pytest.mark.parametrize(
    ("variable", "value", "odd"),
    [
        ("NCCL_SOCKET_IFNAME", "eth0,eth1", False),
        ("NCCL_SOCKET_IFNAME", "^=docker0,lo", False),
        ("NCCL_SOCKET_IFNAME", "=eth0", False),
        ("NCCL_SOCKET_IFNAME", "eth0, eth1", True),
        ("NCCL_SOCKET_IFNAME", "eth0,^lo", True),
        ("NCCL_SOCKET_IFNAME", "=^eth0", True),
        ("NCCL_SOCKET_IFNAME", '"eth0"', True),
        ("NCCL_SOCKET_IFNAME", "eth*", True),
        ("NCCL_SOCKET_IFNAME", "e", True),
        ("GLOO_SOCKET_IFNAME", "eth0,eth1", False),
        ("GLOO_SOCKET_IFNAME", "^docker0", True),
        ("GLOO_SOCKET_IFNAME", "=eth0", True),
        ("GLOO_SOCKET_IFNAME", "eth0,", True),
    ],
)
def test_misread_selectors(variable: str, value: str, odd: bool) -> None:
    assert bool(selector_problem(variable, value)) is odd
    assert ("env.selector-misread" in findings(judged({variable: value}))) is odd


def gpus(count: int) -> GpuSection:
    one = Gpu(index=0, uuid="GPU-0", name="n", pci_id="p", memory_total_bytes=1, memory_used_bytes=0)
    return GpuSection(driver="1" if count else "", gpus=[one] * count)


@pytest.mark.parametrize(
    ("value", "section", "odd"),
    [
        ("0,1", gpus(2), False),
        ("GPU-abc,GPU-def", gpus(2), False),
        ("", gpus(2), True),
        ("-1", gpus(2), True),
        ("0,0", gpus(2), True),
        ("0,2", gpus(2), True),
        ("0,x", gpus(2), True),
        ("0,7", None, False),
        ("", None, True),
        ("", gpus(0), False),
    ],
)
def test_visible_devices(value: str, section: GpuSection | None, odd: bool) -> None:
    assert ("env.visible-devices-odd" in findings(judged({"CUDA_VISIBLE_DEVICES": value}, section))) is odd


def test_unread_names() -> None:
    checks = judged(
        {"NCCL_TIMEOUT": "3600", "NCCL_SOCKET_IFNAMES": "eth0", "NCCL_DEBUG": "INFO", "NCCL_OWN_THING": "1"}
    )
    found = {check.where: check for check in checks if check.finding == "env.no-op-variable"}
    assert set(found) == {"NCCL_TIMEOUT", "NCCL_SOCKET_IFNAMES"}
    assert "init_process_group(timeout=" in found["NCCL_TIMEOUT"].detail
    assert found["NCCL_SOCKET_IFNAMES"].fix == "unset NCCL_SOCKET_IFNAMES; export NCCL_SOCKET_IFNAME=eth0"


def test_old_and_costly_names_are_checks_without_a_finding() -> None:
    checks = judged({"NCCL_BLOCKING_WAIT": "1", "NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "0"})
    found = {check.where: (check.id, check.finding) for check in checks if check.where}
    assert found == {"NCCL_BLOCKING_WAIT": ("env.old-name", ""), "NCCL_P2P_DISABLE": ("env.costly", "")}


def test_known_names_are_no_misspellings() -> None:
    assert [name for name in KNOWN if closest_known_name(name)] == []
    assert all(new in KNOWN or new.startswith("TORCH_FR_") for new, _ in RENAMED.values())
    assert not set(NO_OP) & KNOWN
    assert {name for name, _ in COSTLY if name.startswith("NCCL_")} <= KNOWN


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"GROUP_WORLD_SIZE": "2"}, 2),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 2),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, 1),
        ({"SLURM_NNODES": "4"}, 4),
        ({"WORLD_SIZE": "16"}, None),
        ({"PET_NNODES": "1:4"}, None),
        ({}, None),
    ],
)
def test_node_count(variables: dict[str, str], count: int | None) -> None:
    assert node_count(variables) == count


def test_every_finding_of_the_host_probes_is_declared() -> None:
    """Findings are literals in the source of the judges; the knowledge base must declare them."""
    import re

    from ddpwizard.app import probes

    declared = built_in_knowledge().findings()
    folder = Path(probes.__path__[0])
    sources = [path.read_text() for path in folder.glob("*.py")]
    for name in ("env", "ports", "network", "limits", "resolve"):
        used = {id_ for source in sources for id_ in re.findall(rf'"({name}\.[a-z-]+)"', source)}
        ids = {id_ for id_ in declared if id_.startswith(f"{name}.")}
        assert ids <= used, f"declared, never reported: {ids - used}"
