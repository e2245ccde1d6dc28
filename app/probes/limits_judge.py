"""Checks of the limits of this host or container."""

from ..evidence import Check
from ..snapshot import LimitsSection, Snapshot
from ..text.units import bytes_text

MIB, GIB = 1 << 20, 1 << 30
SHM_TINY_BYTES = 128 * MIB  # the default of docker and Kubernetes is 64 MiB
SHM_WANTED_BYTES = GIB  # NVIDIA's minimum for a container with several GPUs
SHM_LEFT = 0.1
MEMLOCK_LOW_BYTES = MIB  # older kernels' default is 64 KiB, newer ones' 8 MiB
OPEN_FILES_LOW = 1024
CGROUP_TIGHT = 0.9
CONTAINERS = ("docker", "podman", "containerd")


def judge(snapshot: Snapshot) -> list[Check]:
    """Check each limit; sufficient ones are reported as ok."""
    limits = snapshot.limits
    if limits is None:
        return []
    return [_shm(limits), _memlock(limits), _open_files(limits), *_memory(limits), _ptrace(limits)]


def _shm(limits: LimitsSection) -> Check:
    total, free = limits.shm_total_bytes, limits.shm_free_bytes
    breaks = (
        "NCCL's ranks on one host and DataLoader workers pass data through it: NCCL fails with \"unhandled system "
        'error" while creating a shared memory segment, workers die with a bus error.'
    )
    if total is None or free is None or limits.shm_problem:
        return Check(
            "limits.shm-unusable",
            "fail",
            limits.shm_problem or "/dev/shm cannot be read",
            breaks,
            "limits.shm-unusable",
            where="/dev/shm",
            fix="mount -t tmpfs -o size=50%,mode=1777 tmpfs /dev/shm",
        )
    size = f"/dev/shm: {bytes_text(free)} of {bytes_text(total)} free"
    if total < SHM_WANTED_BYTES:
        status = "fail" if total <= SHM_TINY_BYTES else "warn"
        return Check("limits.shm-small", status, size, breaks, "limits.shm-small", "/dev/shm", _more_shm(limits))
    if free < max(SHM_LEFT * total, SHM_TINY_BYTES):
        return Check(
            "limits.shm-full",
            "fail" if free < SHM_TINY_BYTES else "warn",
            size,
            f"Files left over from ended runs fill it (torch_*, nccl-*, sem.*). {breaks}",
            "limits.shm-full",
            where="/dev/shm",
            fix="find /dev/shm -maxdepth 1 -user $USER -ls, remove files that no running job uses",
        )
    return Check("limits.shm-roomy", "ok", size, "Enough for NCCL and loader workers.", "limits.shm-roomy", "/dev/shm")


def _more_shm(limits: LimitsSection) -> str:
    if limits.container in CONTAINERS:
        return "start the container with --ipc=host, or --shm-size=16g"
    if limits.container == "kubernetes":
        return "mount an emptyDir with medium: Memory and sizeLimit: 16Gi at /dev/shm"
    return "mount -o remount,size=50% /dev/shm"


def _memlock(limits: LimitsSection) -> Check:
    if limits.memlock_bytes is None:
        return Check("limits.memlock", "ok", "locked memory: unlimited", where="ulimit -l")
    size = f"locked memory: at most {bytes_text(limits.memlock_bytes)}"
    if not limits.rdma_devices and limits.memlock_bytes >= MEMLOCK_LOW_BYTES:
        return Check("limits.memlock", "ok", size, "Matters only with RDMA; there is none here.", where="ulimit -l")
    devices = ", ".join(limits.rdma_devices) or "none visible here"
    fix = "ulimit -l unlimited (limits.conf: * - memlock unlimited; systemd: LimitMEMLOCK=infinity)"
    return Check(
        "limits.memlock-low",
        "fail" if limits.rdma_devices else "warn",
        size,
        f'InfiniBand, RoCE and EFA ({devices}) pin their buffers: NCCL ends with "ibv_reg_mr failed" or '
        '"Cannot allocate memory". Without RDMA it is harmless.',
        "limits.memlock-low",
        where="ulimit -l",
        fix="start the container with --ulimit memlock=-1" if limits.container in CONTAINERS else fix,
    )


def _open_files(limits: LimitsSection) -> Check:
    files = limits.open_files
    if files is None or files > OPEN_FILES_LOW:
        return Check("limits.files", "ok", f"open files: {files or 'unlimited'}", where="ulimit -n")
    return Check(
        "limits.files-low",
        "warn",
        f"open files: at most {files}",
        'Each peer, worker and shared tensor needs some: with many of them "Too many open files" follows.',
        "limits.files-low",
        where="ulimit -n",
        fix="start the container with --ulimit nofile=65536" if limits.container in CONTAINERS else "ulimit -n 65536",
    )


def _memory(limits: LimitsSection) -> list[Check]:
    checks: list[Check] = []
    limit, used = limits.cgroup_memory_limit_bytes, limits.cgroup_memory_used_bytes
    whose = f"the {limits.container} container" if limits.container else "this control group"
    if limit is not None and limit < limits.memory_total_bytes and used is not None:
        tight = used > CGROUP_TIGHT * limit
        checks.append(
            Check(
                "limits.cgroup-tight" if tight else "limits.memory",
                "warn" if tight else "ok",
                f"memory of {whose}: {bytes_text(used)} of {bytes_text(limit)} used",
                "At the limit the kernel kills a rank (exit code -9, no traceback), and the others wait for it."
                if tight
                else "",
                "limits.cgroup-tight" if tight else "",
                where="memory.max",
                fix="give the container more memory, or lower num_workers and prefetch_factor" if tight else "",
            )
        )
    else:
        free, total = bytes_text(limits.memory_available_bytes), bytes_text(limits.memory_total_bytes)
        checks.append(Check("limits.memory", "ok", f"memory: {free} of {total} available, {limits.cpus} CPUs"))
    if limits.cgroup_oom_kills:
        checks.append(
            Check(
                "limits.oom-killed",
                "warn",
                f"{limits.cgroup_oom_kills} processes of {whose} were killed by the OOM killer",
                "A rank or loader worker that ends with code -9 and no traceback ended this way.",
                "limits.oom-killed",
                where="memory.events",
                fix="dmesg | grep -i 'killed process'; then more memory, fewer workers, or smaller batches",
            )
        )
    return checks


def _ptrace(limits: LimitsSection) -> Check:
    if limits.can_ptrace:
        return Check("limits.ptrace", "ok", "stacks of running ranks can be read")
    return Check(
        "limits.ptrace",
        "warn",
        "stacks of running ranks cannot be read",
        f"kernel.yama.ptrace_scope is {limits.ptrace_scope}: triage of a hung job works without them.",
        where="kernel.yama.ptrace_scope",
        fix="start the container with --cap-add SYS_PTRACE"
        if limits.container in CONTAINERS
        else "sudo ddpwizard triage, or sudo sysctl kernel.yama.ptrace_scope=0",
    )
