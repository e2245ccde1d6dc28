"""GPUs by name: whole words only, and the memory where a name comes with several."""

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.hardware import gpu_catalog
from ddpwizard.app.text.suggestions import closest


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "h100"),
        ("4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80g"),
        ("A100-PCIE-40GB", "a100-pcie-40g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("H100 NVL 94GB", "h100-nvl"),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16g"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("Tesla V100-SXM2-32GB", "v100-32g"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Tesla T4", "t4"),
        ("NVIDIA H20", "h20"),
        ("H20-96G", "h20"),
    ],
)
def test_by_whole_words(name: str, key: str) -> None:
    assert gpu_catalog.get_gpu(name) == gpu_catalog.GPUS[key]


@pytest.mark.parametrize(
    "name", ["L400", "H1000", "A1", "", "abacus", "H100 NVL 48GB", "NVIDIA GeForce RTX 4090 Laptop GPU", "A1000"]
)
def test_another_one_is_not_known(name: str) -> None:
    assert gpu_catalog.find_gpu(name) is None
    with pytest.raises(UserError, match="not known"):
        gpu_catalog.get_gpu(name)


@pytest.mark.parametrize(
    ("name", "meant"), [("H10O", "H100"), ("rtx-409O", "RTX4090"), ("A100 80 G SXM5x", "A100-80G")]
)
def test_a_mistyped_one_is_told(name: str, meant: str) -> None:
    assert meant in closest(name, gpu_catalog.GPU_NAMES)


def test_without_units_for_bf16() -> None:
    assert not gpu_catalog.has_bf16("Tesla V100-SXM2-32GB")
    assert not gpu_catalog.has_bf16("T4")
    assert gpu_catalog.has_bf16("A100-80G")
    assert gpu_catalog.has_bf16(None)


@pytest.mark.parametrize("name", ["A100", "NVIDIA V100"])
def test_one_of_several_memories_is_asked_for(name: str) -> None:
    with pytest.raises(UserError, match="of which memory"):
        gpu_catalog.get_gpu(name)


def test_the_memory_given_tells_which() -> None:
    assert gpu_catalog.find_gpu("A100", 40.0) == gpu_catalog.GPUS["a100-40g"]
    assert gpu_catalog.find_gpu("A100", 74.5) == gpu_catalog.GPUS["a100-80g"]
    assert gpu_catalog.find_gpu("V100", 29.8) == gpu_catalog.GPUS["v100-32g"]


@pytest.mark.parametrize("key", gpu_catalog.GPUS)
def test_the_figures_go_together(key: str) -> None:
    """What is reached lies under the peak, fp32 under 16 bit, the host's link under the GPU's memory."""
    gpu = gpu_catalog.GPUS[key]
    assert 0 < gpu.product_tflops < gpu.tflops
    assert gpu.fp32_tflops < gpu.tflops
    assert gpu.host_gbps < gpu.memory_gbps / 10
    assert gpu.intra_gbps < gpu.memory_gbps
    assert key in gpu_catalog.matching_gpus(key)
