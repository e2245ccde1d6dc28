"""Limits of this host: a real 64 MiB /dev/shm, real rlimits, real control groups; and what is judged about them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes.limits import _can_ptrace
from ddpwizard.app.probes.limits_judge import judge
from ddpwizard.app.snapshot import LimitsSection, Snapshot
from ddpwizard.app.system.cgroup_memory import read_v1, read_v2, tightest_limit
from helpers.memory_group import memory_group
from helpers.probe_namespaces import probe
from msgspec.structs import replace

MIB, GIB = 1 << 20, 1 << 30
HEALTHY = LimitsSection(
    shm_total_bytes=32 * GIB,
    shm_free_bytes=31 * GIB,
    memlock_bytes=None,
    open_files=65536,
    cgroup_memory_limit_bytes=None,
    cgroup_memory_used_bytes=None,
    cgroup_oom_kills=0,
    memory_total_bytes=64 * GIB,
    memory_available_bytes=60 * GIB,
    cpus=8,
)


def judged(**changes: object) -> dict[str, Check]:
    section = replace(HEALTHY, **changes)
    return {c.id: c for c in judge(Snapshot(taken_at=0, host="h", ddpwizard_version="0", limits=section))}


def small_shm(options: str) -> str:
    return f"mount -t tmpfs -o {options} tmpfs /dev/shm"


def test_shm_of_the_default_container_size() -> None:
    seen = probe(
        "limits",
        namespaces="-m",
        setup=[small_shm("size=64m")],
        command=["prlimit", "--memlock=65536", "--nofile=1024"],
    )
    section = seen.snapshot.limits
    assert section is not None
    assert (section.shm_total_bytes, section.memlock_bytes, section.open_files) == (64 * MIB, 65536, 1024)
    assert {"limits.shm-small", "limits.memlock-low", "limits.files-low"} <= set(seen.findings)
    assert seen.check("limits.shm-small").status == "fail"
    assert seen.check("limits.shm-small").title == "/dev/shm: 64 MiB of 64 MiB free"


def test_full_shm() -> None:
    setup = [small_shm("size=2g"), "fallocate -l 1950m /dev/shm/left-over"]
    seen = probe("limits", namespaces="-m", setup=setup)
    assert "limits.shm-full" in seen.findings


def test_read_only_shm() -> None:
    seen = probe("limits", namespaces="-m", setup=[small_shm("size=2g,ro")])
    assert seen.check("limits.shm-unusable").title == "/dev/shm is mounted read-only"


def test_missing_shm() -> None:
    setup = ["mount -t tmpfs tmpfs /dev", "mknod -m 666 /dev/null c 1 3", "mknod -m 666 /dev/urandom c 1 9"]
    seen = probe("limits", namespaces="-m", setup=setup)
    assert seen.check("limits.shm-unusable").title == "/dev/shm: No such file or directory"
    assert seen.check("limits.shm-unusable").status == "fail"


def test_limits_of_this_machine() -> None:
    seen = probe("limits")
    section = seen.snapshot.limits
    assert section is not None
    assert section.memory_total_bytes > section.memory_available_bytes > 0
    assert section.cpus == len(os.sched_getaffinity(0))
    state = os.statvfs("/dev/shm")
    assert section.shm_total_bytes == state.f_blocks * state.f_frsize


def test_limits_are_those_of_the_running_job() -> None:
    command = ["prlimit", "--memlock=131072", "--nofile=777", sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout
        assert job.stdout.readline() == b"up\n"
        section = probe("limits", pids=[job.pid]).snapshot.limits
        job.communicate(b"\n")
    assert section is not None
    assert (section.memlock_bytes, section.open_files) == (131072, 777)


def test_memory_limit_of_a_real_control_group() -> None:
    code = "import sys; block = bytearray(b'x') * (160 << 20); print('up', flush=True); input()"
    with (
        memory_group(256 * MIB) as group,
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job,
    ):
        (group / "cgroup.procs").write_text(str(job.pid))
        assert job.stdout
        assert job.stdout.readline() == b"up\n"
        section = probe("limits", pids=[job.pid]).snapshot.limits
        job.communicate(b"\n")
    assert section is not None
    assert section.cgroup_memory_limit_bytes == 256 * MIB
    assert section.cgroup_memory_used_bytes is not None
    assert 100 * MIB < section.cgroup_memory_used_bytes <= 256 * MIB
    assert section.cgroup_oom_kills == 0


def test_tightest_control_group_counts(tmp_path: Path) -> None:
    inner = tmp_path / "kubepods" / "pod1"
    inner.mkdir(parents=True)
    for group, limit in ((inner, "max"), (inner.parent, str(4 * GIB)), (tmp_path, "max")):
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{3 * GIB}\n")
        (group / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
        (group / "memory.events").write_text("low 0\noom 2\noom_kill 2\n")
    assert tightest_limit(str(tmp_path), "/kubepods/pod1", read_v2) == (4 * GIB, 2 * GIB, 2)
    assert tightest_limit(str(tmp_path), "/not/seen/from/here", read_v2) == (None, 2 * GIB, 2)


def test_cgroup_v1_without_a_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (tmp_path / "memory.usage_in_bytes").write_text(f"{GIB}\n")
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert read_v1(tmp_path) == (None, GIB, 3)


def test_healthy_machine() -> None:
    checks = judged()
    assert {check.status for check in checks.values()} == {"ok"}
    assert [check.finding for check in checks.values() if check.finding] == ["limits.shm-roomy"]


@pytest.mark.parametrize(
    ("changes", "id_", "status"),
    [
        ({"shm_total_bytes": 64 * MIB, "shm_free_bytes": 64 * MIB}, "limits.shm-small", "fail"),
        ({"shm_total_bytes": 512 * MIB, "shm_free_bytes": 512 * MIB}, "limits.shm-small", "warn"),
        ({"shm_free_bytes": 2 * GIB}, "limits.shm-full", "warn"),
        ({"shm_free_bytes": 1 * MIB}, "limits.shm-full", "fail"),
        ({"shm_total_bytes": None, "shm_free_bytes": None, "shm_problem": "gone"}, "limits.shm-unusable", "fail"),
        ({"memlock_bytes": 65536}, "limits.memlock-low", "warn"),
        ({"memlock_bytes": 8 * MIB, "rdma_devices": ["mlx5_0"]}, "limits.memlock-low", "fail"),
        ({"open_files": 1024}, "limits.files-low", "warn"),
        (
            {"cgroup_memory_limit_bytes": 10 * GIB, "cgroup_memory_used_bytes": int(9.5 * GIB)},
            "limits.cgroup-tight",
            "warn",
        ),
        ({"cgroup_oom_kills": 2}, "limits.oom-killed", "warn"),
    ],
)
def test_each_limit(changes: dict[str, object], id_: str, status: str) -> None:
    check = judged(**changes)[id_]
    assert (check.status, check.finding) == (status, id_)
    assert check.detail
    assert check.fix


@pytest.mark.parametrize(
    "changes",
    [
        {"memlock_bytes": 8 * MIB},
        {"cgroup_memory_limit_bytes": 10 * GIB, "cgroup_memory_used_bytes": GIB},
        {"cgroup_memory_limit_bytes": 1 << 50, "cgroup_memory_used_bytes": 63 * GIB},
    ],
)
def test_harmless_limit_is_no_finding(changes: dict[str, object]) -> None:
    assert [check.finding for check in judged(**changes).values() if check.finding] == ["limits.shm-roomy"]


@pytest.mark.parametrize(
    ("container", "fix"),
    [
        ("", "mount -o remount,size=50% /dev/shm"),
        ("docker", "start the container with --ipc=host, or --shm-size=16g"),
        ("kubernetes", "mount an emptyDir with medium: Memory and sizeLimit: 16Gi at /dev/shm"),
    ],
)
def test_fix_depends_on_the_container(container: str, fix: str) -> None:
    checks = judged(shm_total_bytes=64 * MIB, shm_free_bytes=64 * MIB, container=container)
    assert checks["limits.shm-small"].fix == fix


def test_unreadable_stacks() -> None:
    check = judged(can_ptrace=False, ptrace_scope=2)["limits.ptrace"]
    assert (check.status, check.finding) == ("warn", "")
    assert "kernel.yama.ptrace_scope is 2" in check.detail


def test_yama_scope_three_forbids_all() -> None:
    assert _can_ptrace(0)
    assert not _can_ptrace(3)
