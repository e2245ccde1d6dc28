"""The machine of a plan: by name, in numbers, detected, or from a snapshot."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.hardware import gpu_catalog, server_catalog
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.plan.machine import free_nvme, links_from_bench, resolve_machine
from ddpwizard.app.plan.timing.communication import PCIE_HOP_S, Links
from ddpwizard.app.snapshot import AllreduceSection, BenchRow, GpuSection, Snapshot
from ddpwizard.app.text.units import GIB
from helpers.h100_sections import LIMITS, gpu

NOTHING = Machine(gpu_count=0)


def here() -> Machine:
    return NOTHING


def not_asked() -> Machine:
    raise AssertionError("this machine was inspected")


class TestNamed:
    def test_machine_name_gives_gpus_links_and_host(self) -> None:
        found = resolve_machine({"machine": "p4d.24xlarge"}, not_asked)
        assert (found.gpus, found.nodes, found.gpu, found.gpu_memory_gib) == (8, 1, "A100-40G", 39.4)
        assert (found.host_bytes, found.nvme_bytes) == (1152 * GIB, 8e12)
        assert found.links.intra_gbps == gpu_catalog.GPUS["a100-40g"].intra_gbps
        assert found.notes[0].startswith("p4d.24xlarge: 8 × A100-40G, 1152 GiB of host memory, 8.0 TB of NVMe")

    def test_several_machines_of_one_name(self) -> None:
        found = resolve_machine({"machine": "Standard_ND96isr_H100_v5", "nodes": 4}, not_asked)
        assert (found.gpus, found.nodes, found.gpu) == (32, 4, "H100")
        assert found.links.inter_gbps == 360  # of 8 adapters of 400 Gbit/s
        assert resolve_machine({"machine": "dgx h100", "gpus": 24}, not_asked).nodes == 3
        assert resolve_machine({"machine": "dgx-h100", "gpus": 4}, not_asked).nodes == 1

    @pytest.mark.parametrize(
        ("gpu", "memory_gib", "gpus", "gib", "after"),
        [
            ("H100", 79.1, 8, 1863, "as in dgx-h100"),
            ("NVIDIA H100 80GB HBM3", 79.1, 4, 931, "as in dgx-h100 for 4 of its 8 GPUs"),
            ("A100-80G", 79.2, 8, 1152, "as in p4de.24xlarge"),
            ("A10G", 22.1, 1, 16, "as in g5.xlarge"),
            ("RTX4090", 23.6, 2, 94, "twice its GPUs'"),
            (None, 23.6, 1, 47, "twice its GPUs'"),
        ],
    )
    def test_default_host_memory(self, gpu: str | None, memory_gib: float, gpus: int, gib: float, after: str) -> None:
        host = server_catalog.assume_host(gpu, memory_gib, gpus)
        assert host
        assert (round(host.bytes / GIB), host.after) == (gib, after)
        assert server_catalog.assume_host(None, None, 8) is None

    @pytest.mark.parametrize(
        ("gpu", "gpus", "gbps", "after"),
        [
            ("H100", 8, 360, ", as in dgx-h100"),
            ("H100", 4, 180, ", as in dgx-h100 for 4 of its 8 GPUs"),
            ("A100-80G", 8, 45, ", as in p4de.24xlarge"),
            ("RTX4090", 8, gpu_catalog.INTER_GBPS, ""),
        ],
    )
    def test_default_network_between_nodes(self, gpu: str, gpus: int, gbps: float, after: str) -> None:
        assert server_catalog.assume_network(gpu, None, gpus) == (gbps, after)
        given = {"gpu": gpu, "gpus": 2 * gpus, "nodes": 2}
        assert resolve_machine(given, not_asked).links.inter_gbps == gbps
        assert any(
            line.startswith(f"link between nodes: {gbps:g} GB/s{after};")
            for line in resolve_machine(given, not_asked).notes
        )

    @pytest.mark.parametrize("name", server_catalog.SERVERS)
    def test_every_server_has_a_known_gpu(self, name: str) -> None:
        server = server_catalog.get_server(name.upper())
        assert gpu_catalog.get_gpu(server.gpu.upper()) == server.hardware
        assert server.host_gib > server.hardware.memory_gib / 2

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"machine": "abacus"}, "machine abacus: not known"),
            ({"machine": "p5.48xlarge", "gpu": "A100"}, "--gpu together with --machine p5.48xlarge"),
            ({"machine": "p5.48xlarge", "gpus": 16, "nodes": 1}, "16 GPUs on 1 of p5.48xlarge: 8 × 1 = 8"),
            ({"machine": "p5.48xlarge", "machine_snapshot": "snapshot.json"}, "exclude each other"),
        ],
    )
    def test_conflicting_options_are_refused(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            resolve_machine(given, not_asked)


class TestInNumbers:
    def test_gpus_given_in_numbers(self) -> None:
        given = {"gpus": 16, "gpu_memory": "80GB", "host_memory": "1TB", "intra_gbps": 100.0, "inter_gbps": 20.0}
        found = resolve_machine(given, not_asked)
        assert (found.gpus, found.nodes, found.links[:2]) == (16, 2, (100, 20))
        assert found.gpu_memory_gib == pytest.approx(74.5, rel=0.001)
        assert found.host_bytes == pytest.approx(1e12)
        assert found.notes == ["nodes: 2, 8 GPUs each"]

    def test_default_links_are_those_of_the_gpu(self) -> None:
        found = resolve_machine({"gpus": 8, "gpu": "H100"}, not_asked)
        assert found.links.intra_gbps == gpu_catalog.GPUS["h100"].intra_gbps
        assert found.notes == [f"link within a node: {gpu_catalog.GPUS['h100'].intra_gbps:g} GB/s"]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"gpus": 0}, "gpus is 0"),
            ({"gpus": -1}, "gpus is -1"),
            ({"nodes": 10**9}, "nodes is 1000000000"),
            ({"gpus": 2, "intra_gbps": float("nan")}, "--intra-gbps is nan"),
            ({"gpus": 2, "inter_gbps": -1.0}, "--inter-gbps is -1"),
            ({"gpus": 2, "gpu_memory": "much"}, "--gpu-memory is much"),
            ({"gpus": 2, "host_memory": "-1GB"}, "--host-memory is -1GB"),
            ({"gpus": 2, "gpu": "Voodoo2"}, "GPU Voodoo2: not known"),
        ],
    )
    def test_invalid_numbers_are_refused(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            resolve_machine(given, not_asked)


class TestHere:
    def test_detects_this_machine_without_gpu_options(self) -> None:
        machine = Machine(
            gpu_count=4,
            gpu_name="NVIDIA H100 80GB HBM3",
            gpu_free_bytes=70 * GIB,
            memory_free_bytes=500 * GIB,
            nvlinks=18,
            nvme_free_bytes=2e12,
        )
        found = resolve_machine({"nodes": 2}, lambda: machine)
        assert (found.gpus, found.nodes, found.gpu_memory_gib) == (8, 2, 70)
        assert (found.host_bytes, found.nvme_bytes) == (500 * GIB, 2e12)
        assert found.links.intra_gbps == gpu_catalog.GPUS["h100"].intra_gbps

    def test_gpus_without_nvlink_use_pcie(self) -> None:
        machine = Machine(gpu_count=2, gpu_name="NVIDIA A100-SXM4-80GB", gpu_free_bytes=79 * GIB, nvlinks=0)
        found = resolve_machine({}, lambda: machine)
        assert (found.links.intra_gbps, found.links.intra_latency_s) == (gpu_catalog.INTRA_GBPS, PCIE_HOP_S)
        assert "link within a node: PCIe, no NVLink found" in found.notes

    def test_no_gpu(self) -> None:
        assert resolve_machine({}, here)[:4] == (1, 1, None, None)

    def test_free_space_on_an_nvme_drive(self) -> None:
        free, where = free_nvme()
        assert (free > 0) == bool(where)


def bench(backend: str, ranks: int, rows: list[tuple[int, float]], correct: bool = True) -> AllreduceSection:
    made = [
        BenchRow(
            operation="all-reduce",
            backend=backend,
            ranks=ranks,
            bytes=size,
            seconds=seconds,
            algbw_gbps=size / seconds / 1e9,
            busbw_gbps=size / seconds / 1e9 * 2 * (ranks - 1) / ranks,
            correct=correct,
        )
        for size, seconds in rows
    ]
    return AllreduceSection(backend=backend, ranks=ranks, rows=made)


ROWS = [(4, 30e-6), (2**20, 60e-6), (2**30, 5e-3)]


class TestSaved:
    def saved(self, directory: Path, gpus: int, section: AllreduceSection | None) -> str:
        snapshot = Snapshot(
            taken_at=1_790_000_000.0,
            host="node-a",
            ddpwizard_version="0.5",
            gpus=GpuSection(driver="570" if gpus else "", gpus=[gpu(n, 1) for n in range(gpus)]),
            limits=LIMITS,
            allreduce=section,
        )
        (directory / "snapshot.json").write_bytes(msgspec.json.encode(snapshot))
        return str(directory / "snapshot.json")

    def test_snapshot_gives_measured_links(self, tmp_path: Path) -> None:
        found = resolve_machine({"machine_snapshot": self.saved(tmp_path, 8, bench("nccl", 8, ROWS))}, not_asked)
        assert (found.gpus, found.gpu_memory_gib, found.host_bytes) == (8, 79, 48 * GIB)
        assert found.links.measured
        assert found.links.intra_gbps == pytest.approx(2**30 / 5e-3 / 1e9 * 2 * 7 / 8)
        assert 0 < found.links.intra_latency_s < 30e-6
        (line,) = [line for line in found.notes if line.startswith("link")]
        assert line.endswith("measured 2026-09-21 14:13 UTC over nccl with 8 ranks")
        assert "in the snapshot of node-a" in found.notes[0]
        assert "host memory: 48 GiB free in the snapshot of node-a, 2026-09-21 14:13 UTC" in found.notes

    @pytest.mark.parametrize("given", [{}, {"gpus": 8, "gpu_memory": "80GB"}, {"gpu": "H100"}, {"gpus": 2}])
    @pytest.mark.parametrize("seen", [8, 0])
    def test_all_reduce_on_cpus_does_not_apply_to_gpus(self, given: dict[str, Any], seen: int, tmp_path: Path) -> None:
        found = resolve_machine(
            {"machine_snapshot": self.saved(tmp_path, seen, bench("gloo", 8, ROWS))} | given, not_asked
        )
        assert not found.links.measured
        assert found.links.intra_gbps >= gpu_catalog.INTRA_GBPS
        assert any("does not apply to GPUs" in line for line in found.notes)
        assert len([line for line in found.notes if line.startswith("link within")]) <= 1

    def test_option_overrides_the_snapshot(self, tmp_path: Path) -> None:
        given = {"machine_snapshot": self.saved(tmp_path, 8, bench("nccl", 8, ROWS)), "intra_gbps": 7.0, "gpus": 4}
        found = resolve_machine(given, not_asked)
        assert (found.gpus, found.links.intra_gbps) == (4, 7)

    @pytest.mark.parametrize("section", [None, AllreduceSection(backend="nccl", ranks=8, rows=[])])
    def test_snapshot_without_a_measurement(self, section: AllreduceSection | None, tmp_path: Path) -> None:
        found = resolve_machine({"machine_snapshot": self.saved(tmp_path, 8, section)}, not_asked)
        assert not found.links.measured
        assert any(line.startswith("links: ") for line in found.notes)

    def test_incorrect_all_reduce_results_are_ignored(self) -> None:
        assert links_from_bench(bench("nccl", 8, ROWS, correct=False), Links(1, 1)) is None

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"schema": "other/1"}'])
    def test_invalid_snapshot_is_refused(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "snapshot.json").write_bytes(content)
        with pytest.raises(UserError):
            resolve_machine({"machine_snapshot": str(tmp_path / "snapshot.json")}, not_asked)
