"""GPUs: recorded answers of NVML (see fixtures/nvml/README.md) with real processes, and the checks."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.evidence import Check
from ddpwizard.app.hardware.gpu_catalog import find_gpu, get_gpu
from ddpwizard.app.probes import gpus
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.probes.isolated import ChildRequest
from ddpwizard.app.probes.nvml import read_nvml
from ddpwizard.app.snapshot import EnvSection, GpuSection, Snapshot
from ddpwizard.app.text.units import GIB
from helpers.nvml_stub import StubNvml
from msgspec.structs import replace


def snapshot(section: GpuSection, env: EnvSection | None = None) -> Snapshot:
    return Snapshot(taken_at=0, host="node", ddpwizard_version="0", gpus=section, env=env)


def look_at(fixture: str, pids: dict[str, int] | None = None, **environ: str) -> GpuSection:
    return gpus.build_gpu_section(read_nvml(StubNvml(fixture, pids)), ChildRequest(environ))


def found(section: GpuSection) -> dict[str, Check]:
    """Finding to check; checks without a finding under their id."""
    return {check.finding or check.id: check for check in gpus.judge(snapshot(section))}


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start(processes: list[subprocess.Popen[bytes]], **environ: str) -> int:
    """A real Python process that waits, with these variables; its pid once it runs as Python."""
    env = {**os.environ, **environ}
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


class TestReading:
    def test_healthy_machine(self):
        section = look_at("h100x8")
        assert section.driver == "570.124.06"
        assert [gpu.index for gpu in section.gpus] == list(range(8))
        first = section.gpus[0]
        assert (first.name, first.pci_id) == ("NVIDIA H100 80GB HBM3", "00000000:19:00.0")
        assert first.memory_used_bytes == 1 << 20, "what the driver keeps for itself is not in use"
        assert (first.ecc_uncorrected, first.throttle, first.compute_mode, first.mig) == (0, [], "default", False)

    def test_recorded_machine(self, processes: list[subprocess.Popen[bytes]]):
        pid = start(processes)
        (gpu,) = look_at("h200-virtual-machine", {"program": pid}).gpus
        assert (gpu.name, gpu.nvlinks, gpu.mig, gpu.throttle) == ("NVIDIA H200", 0, False, [])
        assert [process.pid for process in gpu.processes] == [pid]
        context_bytes = (gpu.processes[0].used_bytes or 0) - (1 << 30)
        assert 0 < context_bytes < gpu.memory_used_bytes - (1 << 30) < 1 << 30
        assert find_gpu(gpu.name, gpu.memory_total_bytes / GIB) == get_gpu("H200")

    def test_unsupported_values_are_none(self):
        section = look_at("old-driver")
        gpu = section.gpus[0]
        assert (gpu.ecc_uncorrected, gpu.mig, gpu.memory_used_bytes) == (None, False, 468189184)
        assert set(found(section)) == {"gpus"}

    @pytest.mark.parametrize(("states", "links"), [([], 0), ([1] * 18, 18), ([1, 0, 1, 1], 3)])
    def test_active_nvlinks_are_counted(self, states: list[int], links: int):
        stub = StubNvml("h100x8")
        stub.devices = [device | {"nvlink_states": states} for device in stub.devices]
        assert {gpu.nvlinks for gpu in gpus.build_gpu_section(read_nvml(stub), ChildRequest({})).gpus} == {links}

    def test_lost_gpu_does_not_hide_the_others(self):
        section = look_at("one-lost")
        assert [gpu.index for gpu in section.gpus] == [0, 1, 2, 3, 4, 5, 7]
        assert found(section)["gpus.lost"].detail == "GPU 6: GPU is lost"

    def test_no_driver(self):
        section = look_at("library-mismatch")
        assert (section.gpus, section.problem) == ([], "Driver/library version mismatch")

    def test_nvml_is_shut_down(self):
        stub = StubNvml("h100x8")
        read_nvml(stub)
        assert not stub.open


class TestHere:
    def test_nvml_of_this_machine_or_its_absence(self):
        section = asyncio.run(
            gpus.collect(ProbeContext(python=sys.executable, environ={"LOCAL_WORLD_SIZE": "2"}), limit_s=10.0)
        )
        assert bool(section.driver) != bool(section.problem)
        assert section.local_world_size == 2
        assert gpus.judge(snapshot(section))

    def test_hanging_nvml_times_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        (tmp_path / "pynvml.py").write_text(
            "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)
        started = time.monotonic()
        section = asyncio.run(gpus.collect(ProbeContext(python=sys.executable), limit_s=1.0))
        check = found(section)["gpus.no-answer"]
        assert (check.status, check.detail[:30]) == ("fail", "NVML did not return within 1 s")
        assert time.monotonic() - started < 30


class TestVisible:
    """CUDA_VISIBLE_DEVICES as CUDA reads it."""

    def devices(self, value: str | None, fixture: str = "h100x8") -> tuple[list[int], str]:
        section = replace(look_at(fixture), visible=value)
        visible, odd = gpus.visible_devices(section)
        return [device.gpu.index for device in visible], odd

    def test_unset_shows_all(self):
        assert self.devices(None) == (list(range(8)), "")

    def test_order_is_kept(self):
        assert self.devices("3, 1,0") == ([3, 1, 0], "")

    @pytest.mark.parametrize("value", ["", "-1"])
    def test_hides_all(self, value: str):
        shown, odd = self.devices(value)
        assert shown == [] and "hides all" in odd

    def test_device_listed_twice_hides_all(self):
        shown, odd = self.devices("0,1,0")
        assert shown == [] and "'0' twice" in odd

    def test_missing_device_ends_the_list(self):
        shown, odd = self.devices("0,9,1")
        assert shown == [0] and "'9'" in odd and "only the 1 before it" in odd

    def test_only_missing_devices_hide_all(self):
        shown, odd = self.devices("all")
        assert shown == [] and "no GPU is visible" in odd

    def test_unique_uuid_prefix_selects_a_device(self):
        section = look_at("h100x8")
        uuid = section.gpus[5].uuid
        assert self.devices(f"{uuid},{section.gpus[2].uuid[:12]}") == ([5, 2], "")
        shown, odd = self.devices("GPU-")
        assert shown == [] and "not there" in odd

    def test_a_mig_slice(self):
        section = look_at("mig")
        uuid = section.gpus[0].mig_uuids[1]
        shown, odd = gpus.visible_devices(look_at("mig", CUDA_VISIBLE_DEVICES=uuid))
        assert [(device.gpu.index, device.slice) for device in shown] == [(0, uuid)] and not odd
        assert self.devices("MIG-nope", "mig")[0] == []


class TestJudge:
    def test_healthy_gpus_show_the_device_of_each_rank(self):
        checks = found(look_at("h100x8", CUDA_VISIBLE_DEVICES="7,0"))
        assert set(checks) == {"gpus"}
        assert checks["gpus"].status == "ok" and checks["gpus"].title.startswith("8 × NVIDIA H100")
        assert "0 → GPU 7 00000000:DB:00.0, 1 → GPU 0" in checks["gpus"].detail

    def test_one_to_one(self):
        check = found(look_at("h100x8", LOCAL_WORLD_SIZE="8"))["gpus.one-to-one"]
        assert check.status == "ok" and "local rank 7: GPU 7" in check.detail

    def test_more_ranks_than_gpus(self):
        checks = found(look_at("h100x8", LOCAL_WORLD_SIZE="4", CUDA_VISIBLE_DEVICES="0,1"))
        assert checks["gpus.fewer-than-ranks"].title == "4 ranks on this host, 2 visible GPUs"
        assert checks["gpus.fewer-than-ranks"].fix == "--nproc-per-node=2"
        assert "gpus.one-to-one" not in checks

    @pytest.mark.parametrize(("holder", "status"), [("rank", "fail"), ("another program", "warn")])
    def test_job_on_cpus_needs_no_gpus(self, holder: str, status: str, processes: list[subprocess.Popen[bytes]]):
        pid = start(processes, RANK="0", LOCAL_RANK="0", WORLD_SIZE="2")
        other = start(processes)
        section = look_at("h200-virtual-machine", {"program": pid if holder == "rank" else other}, LOCAL_WORLD_SIZE="2")
        ended = 1 << 30  # above every number of a process
        env = EnvSection(owner="", variables={}, ranks={pid: {"RANK": "0"}, ended: {"RANK": "1"}})
        (check,) = (check for check in gpus.judge(snapshot(section, env)) if check.id == "gpus.ranks")
        assert check.status == status
        assert ("that no rank uses" in check.title) == (status == "warn")

    def test_hidden_gpus(self):
        checks = found(look_at("h100x8", LOCAL_WORLD_SIZE="1", CUDA_VISIBLE_DEVICES=""))
        assert checks["env.visible-devices-odd"].status == "fail"
        assert checks["gpus.fewer-than-ranks"].status == "fail"

    def test_no_driver(self):
        assert found(GpuSection(problem="NVML Shared Library Not Found"))["gpus.none"].status == "skip"
        check = found(GpuSection(problem="Driver Not Loaded", on_pci_bus=8))["gpus.none"]
        assert check.status == "fail" and "8 NVIDIA GPUs on the PCI bus" in check.title

    def test_gpu_without_memory_of_its_own(self):
        section = look_at("gb10")
        gpu = section.gpus[0]
        assert (gpu.shares_host_memory, section.problem) == (True, "")
        assert gpu.memory_total_bytes > 0
        checks = found(section)
        assert set(checks) == {"gpus"}
        assert checks["gpus"].title.startswith("1 × NVIDIA GB10 ")
        assert checks["gpus"].title.endswith(" shared with the host")

    def test_gpu_that_the_driver_does_not_list(self):
        seven = replace(look_at("h100x8"), on_pci_bus=8, lost=0, assigned=False)
        seven = replace(seven, gpus=seven.gpus[:7])
        check = found(seven)["gpus.missing"]
        assert (check.status, check.title) == ("fail", "1 GPU of 8 on the PCI bus unknown to the driver")
        assert "gpus.missing" not in found(replace(seven, assigned=True)), "a scheduler assigned seven of them"
        assert "gpus.missing" not in found(replace(seven, lost=1)), "it is reported as one that does not answer"

    def test_ecc_throttle_and_mode_name_the_gpus(self):
        checks = found(look_at("ecc-and-throttled"))
        assert set(checks) == {"gpus", "gpus.ecc-errors", "gpus.throttled", "gpus.exclusive-mode"}
        assert "GPU 3 (00000000:5D:00.0): 2" in checks["gpus.ecc-errors"].detail
        assert checks["gpus.throttled"].detail == "GPU 4 (00000000:9B:00.0): hw-slowdown, hw-thermal at 88 °C"
        assert "GPU 7 (00000000:DB:00.0): exclusive-process" in checks["gpus.exclusive-mode"].detail

    def test_mig(self):
        checks = found(look_at("mig"))
        assert "GPU 0 (00000000:07:00.0): 3 slices" in checks["gpus.mig-on"].detail
        assert "gpus.ecc-errors" not in checks


class TestMemory:
    """Holders of GPU memory; the pids are those of real processes."""

    def test_two_ranks_of_one_job_share_a_gpu(self, processes: list[subprocess.Popen[bytes]]):
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29544"}
        pids = {f"rank {rank}": start(processes, RANK=str(rank), LOCAL_RANK=str(rank), **job) for rank in (0, 1)}
        section = look_at("shared-by-two-ranks", pids, LOCAL_WORLD_SIZE="2")
        assert [process.rank for process in section.gpus[0].processes] == [0, 1]
        checks = found(section)
        shared = checks["gpus.shared-device"]
        assert shared.title == "GPU 0: ranks 0, 1 of one job hold memory on it"
        assert f"rank 1 is pid {pids['rank 1']}" in shared.detail
        assert "gpus.one-to-one" not in checks and "gpus.memory-held" not in checks

    def test_ranks_of_two_jobs_are_not_one_job(self, processes: list[subprocess.Popen[bytes]]):
        pids = {
            f"rank {rank}": start(processes, RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            for rank, port in ((0, "29545"), (1, "29546"))
        }
        assert "gpus.shared-device" not in found(look_at("shared-by-two-ranks", pids))

    def test_orphaned_rank_holds_memory(self, processes: list[subprocess.Popen[bytes]]):
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29547", "TORCHELASTIC_RUN_ID": "gone"}
        pids = {f"rank {rank}": start(processes, RANK=str(rank), **job) for rank in (0, 1)}
        held = found(look_at("shared-by-two-ranks", pids))["gpus.memory-held"]
        assert "rank 0 of a job whose launcher is gone" in held.detail
        assert held.fix.endswith(f"kill {' '.join(str(pid) for pid in sorted(pids.values()))}")

    def test_memory_of_another_program_and_of_no_process(self, processes: list[subprocess.Popen[bytes]]):
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        pids = {"ended": ended.pid, "notebook": start(processes)}
        section = replace(look_at("memory-without-owner", pids), sees_all_pids=True)  # tests may run in a container
        checks = found(section)
        assert f"GPU 6: 7.4 GiB by pid {pids['notebook']}" in checks["gpus.memory-held"].detail
        gone = checks["gpus.holder-gone"].detail
        assert f"GPU 2: 63.2 GiB by pid {ended.pid}, which has ended" in gone
        assert "GPU 5: 12 GiB by no process" in gone

    def test_unknown_pids_in_a_container_are_not_reported_as_ended(self):
        section = look_at("memory-without-owner", {"ended": 2**22 - 1, "notebook": 2**22 - 2})
        checks = {
            check.finding: check
            for check in gpus.judge(snapshot(replace(section, sees_all_pids=False)))
            if check.finding
        }
        assert set(checks) == {"gpus.memory-held"}
        assert "GPU 2: 63.2 GiB by something outside this container" in checks["gpus.memory-held"].detail

    def test_secrets_in_a_command_line_are_hidden(self, processes: list[subprocess.Popen[bytes]]):
        process = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()", "--api-key=abc123secret"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        section = look_at("memory-without-owner", {"ended": process.pid, "notebook": process.pid})
        command = section.gpus[6].processes[0].command
        assert "--api-key" in command and "abc123secret" not in command
