"""GPUs by name: whole words only, and the memory size if a name has several."""

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.hardware import gpu_catalog
from ddpwizard.app.hardware.machine import Machine
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
def test_gpu_name_matches_whole_words(name: str, key: str) -> None:
    assert gpu_catalog.get_gpu(name) == gpu_catalog.GPUS[key]


@pytest.mark.parametrize(
    ("name", "key", "memory_gib"),
    [
        ("NVIDIA H100 96GB", "h100", 95),
        ("A100-SXM-64GB", "a100-80g", 63.4),
        ("NVIDIA GH200 144G HBM3e", "gh200", 142.6),
        ("NVIDIA GH200 480GB", "gh200", 94.5),  # the memory of its host
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada", 47.5),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx6000-pro", 94.9),
        ("AMD Instinct MI300X 192GB", "mi300x", 191.5),
    ],
)
def test_another_memory_size_keeps_the_rates(name: str, key: str, memory_gib: float) -> None:
    found = gpu_catalog.get_gpu(name)
    assert found._replace(memory_gib=0.0) == gpu_catalog.GPUS[key]._replace(memory_gib=0.0)
    assert found.memory_gib == pytest.approx(memory_gib, rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "Quadro RTX 6000",
        "L400",
        "H1000",
        "A1",
        "",
        "abacus",
        "H100 NVL 48GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "A1000",
    ],
)
def test_other_gpu_names_are_unknown(name: str) -> None:
    assert gpu_catalog.find_gpu(name) is None
    with pytest.raises(UserError, match="not known"):
        gpu_catalog.get_gpu(name)


@pytest.mark.parametrize(
    ("name", "meant"), [("H10O", "H100"), ("rtx-409O", "RTX4090"), ("A100 80 G SXM5x", "A100-80G")]
)
def test_mistyped_gpu_name_gets_a_suggestion(name: str, meant: str) -> None:
    assert meant in closest(name, gpu_catalog.GPU_NAMES)


@pytest.mark.parametrize(
    "name",
    [
        "Tesla K80",  # compute capability 3.7
        "Tesla M40 24GB",  # 5.2
        "Tesla M60",
        "Quadro M6000",
        "Tesla P4",  # 6.1
        "Tesla P40",
        "NVIDIA GeForce GTX 1080 Ti",
        "GTX1080",
        "NVIDIA TITAN Xp",
        "Quadro P5000",
        "Tesla P100-PCIE-16GB",  # 6.0
        "Quadro GP100",
        "Tesla V100-SXM2-32GB",  # 7.0
        "Tesla V100S-PCIE-32GB",
        "V100-32G",
        "NVIDIA TITAN V",
        "Quadro GV100",
        "Tesla T4",  # 7.5
        "T4",
        "NVIDIA T4G",
        "NVIDIA T1000 8GB",
        "NVIDIA GeForce GTX 1660 SUPER",
        "NVIDIA GeForce RTX 2080 Ti",
        "RTX2080",
        "NVIDIA GeForce RTX 2060",
        "NVIDIA TITAN RTX",
        "Quadro RTX 6000",
        "Quadro RTX 8000",
        "AMD Instinct MI50",
    ],
)
def test_gpu_without_bf16(name: str) -> None:
    assert not gpu_catalog.has_bf16(name)
    assert not Machine(gpu_count=1, gpu_name=name).bf16


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A100-SXM4-80GB",  # compute capability 8.0
        "A100-80G",
        "NVIDIA A30",
        "NVIDIA A10",  # 8.6
        "NVIDIA A40",
        "NVIDIA A2",
        "NVIDIA RTX A6000",
        "NVIDIA GeForce RTX 2050",
        "NVIDIA GeForce RTX 3090",
        "NVIDIA RTX 2000 Ada Generation",  # 8.9
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA L4",
        "NVIDIA L40S",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA H100 80GB HBM3",  # 9.0
        "NVIDIA GH200 480GB",
        "NVIDIA B200",  # 10.0
        "NVIDIA GeForce RTX 5090",  # 12.0
        "AMD Instinct MI300X",
        "AMD Instinct MI250X",
    ],
)
def test_gpu_with_bf16(name: str) -> None:
    assert gpu_catalog.has_bf16(name)
    assert Machine(gpu_count=1, gpu_name=name).bf16


@pytest.mark.parametrize("key", gpu_catalog.GPUS)
def test_bf16_of_the_catalog(key: str) -> None:
    assert gpu_catalog.has_bf16(key) == (key.partition("-")[0] not in ("v100", "t4"))


def test_unknown_gpu_has_bf16_and_no_gpu_has_none() -> None:
    assert gpu_catalog.has_bf16(None)
    assert not Machine(gpu_count=0).bf16


@pytest.mark.parametrize("name", ["A100", "NVIDIA V100"])
def test_ambiguous_memory_size_is_an_error(name: str) -> None:
    with pytest.raises(UserError, match="which memory size"):
        gpu_catalog.get_gpu(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("A100-41G", "A100-40G"), ("NVIDIA A100-PCIE-38GB", "A100-PCIE-40G"), ("V100-30G", "V100-32G")],
)
def test_mistyped_memory_size_is_an_error(name: str, meant: str) -> None:
    with pytest.raises(UserError, match="no such memory size") as refused:
        gpu_catalog.get_gpu(name)
    assert refused.value.next_step == f"did you mean {meant}?"


def test_memory_selects_the_variant() -> None:
    assert gpu_catalog.find_gpu("A100", 40.0) == gpu_catalog.GPUS["a100-40g"]
    assert gpu_catalog.find_gpu("A100", 74.5) == gpu_catalog.GPUS["a100-80g"]
    assert gpu_catalog.find_gpu("V100", 29.8) == gpu_catalog.GPUS["v100-32g"]


@pytest.mark.parametrize("key", gpu_catalog.GPUS)
def test_figures_of_a_gpu_are_consistent(key: str) -> None:
    """Measured rates are below the peak, fp32 below 16 bit, the host link below GPU memory."""
    gpu = gpu_catalog.GPUS[key]
    assert 0 < gpu.product_tflops < gpu.tflops
    assert gpu.fp32_tflops < gpu.tflops
    assert gpu.host_gbps < gpu.memory_gbps / 10
    assert gpu.intra_gbps < gpu.memory_gbps
    assert key in gpu_catalog.matching_gpus(key)
