"""GPUs by name: usable memory, rates of matrix products, bandwidths.

Sources. Dense 16-bit and fp32 peak rates and memory bandwidths: the makers' data sheets, as quoted with their links by
torchtitan (``tools/utils.py``), Lightning Fabric 2.5 (``utilities/throughput.py``) and ml-engineering (August 2026,
``compute/accelerator``); its table of the best measured matrix product gives ``matmul_tflops``. GeForce cards
with fp32 accumulation, which training needs: half of the advertised figure. Memory: as ``nvidia-smi`` and
PyTorch's errors show it.
``intra_gbps`` is the bus bandwidth of a large ring over all GPUs of a usual server: for NVLink NCCL 2.30's own
figure for each link (``src/graph/topo.h``) times its number, which nccl-tests reaches (A100 235, H100 370: nccl-tests
#212; with NVLink SHARP an all-reduce shows more), for MI300X 313 as measured (ml-engineering, ``network``), without
NVLink what nccl-tests shows over PCIe (17 to 28 for 4 to 8 cards: nccl-tests #128, nccl #1639). ``host_gbps``: PCIe 3,
4 and 5 with 16 lanes, one way, as measured (12; 24.8 on A100; 55 on H200, ml-engineering).
"""

import re
from functools import lru_cache
from typing import NamedTuple

from ..errors import UserError
from ..text.suggestions import closest, did_you_mean

MATMUL_SHARE = 0.8  # of the peak, if no product was measured (0.73 to 0.87 for NVIDIA's in that table)
# Of that rate, over the products of a whole step: less if power limits the chip, as on H100. Fitted to the throughput
# that llm-foundry and torchtitan publish (``benchmarks``, December 2024); on an H200 products that followed each other
# for 5 s ran at 0.84 of the rate of the first ones (docs/gpu-runs.md); 0.8 for GPUs without such figures.
STEADY_SHARE, STEADY_AMPERE, STEADY_HOPPER, STEADY_H200 = 0.8, 0.83, 0.7, 0.84
ADA_SHARE = 0.92  # of the peak for cuBLAS on AD102: 105 to 115 of L20's 119.5 (xlite-dev/LeetCUDA, kernels/hgemm)
PCIE_3_GBPS, PCIE_4_GBPS, PCIE_5_GBPS = 12.0, 24.8, 55.0
CHIP_LINK_GBPS = 385.0  # NVLink-C2C of GH200 and GB300: of its 450 the share that PCIe 5 reaches


class GpuSpec(NamedTuple):
    """``memory_gib`` as a program sees it; ``tflops`` dense 16-bit peak; bandwidths in GB/s."""

    memory_gib: float
    tflops: float
    intra_gbps: float
    memory_gbps: float
    fp32_tflops: float
    host_gbps: float = PCIE_4_GBPS
    matmul_tflops: float | None = None
    steady_share: float = STEADY_SHARE
    fp8_tflops: float | None = None  # best measured product, else 0.7 of the peak; None without units for it

    @property
    def product_tflops(self) -> float:
        """Rate of a large 16-bit matrix product."""
        return self.matmul_tflops or self.tflops * MATMUL_SHARE


# Words for another form of the same chip: "NVIDIA H100 PCIe", "NVIDIA H100 NVL".
FORMS = ("pcie", "nvl", "ada", "pro")
GPUS = {
    "gb300": GpuSpec(276.0, 2500, 720, 8000, 80, CHIP_LINK_GBPS, 1822, fp8_tflops=3615.6),
    "b300": GpuSpec(268.0, 2250, 720, 8000, 80, PCIE_5_GBPS, 1769, fp8_tflops=3353.3),
    "gb200": GpuSpec(184.5, 2500, 720, 8000, 80, PCIE_5_GBPS, 1822, fp8_tflops=3615.6),
    "b200": GpuSpec(178.0, 2250, 720, 8000, 80, PCIE_5_GBPS, 1745, fp8_tflops=3432.5),
    "gh200": GpuSpec(94.5, 989, 370, 4000, 67, CHIP_LINK_GBPS, 828.6, fp8_tflops=1535),
    "h200": GpuSpec(139.8, 989, 370, 4800, 67, PCIE_5_GBPS, 794.5, STEADY_H200, 1453.4),
    "h100": GpuSpec(79.1, 989, 370, 3350, 67, PCIE_5_GBPS, 794.5, STEADY_HOPPER, 1402.6),
    "h100-pcie": GpuSpec(79.1, 756, 28, 2000, 51, PCIE_5_GBPS, None, STEADY_HOPPER, 1059),
    "h100-nvl": GpuSpec(93.0, 835, 28, 3900, 60, PCIE_5_GBPS, None, STEADY_HOPPER, 1169),
    "h800": GpuSpec(79.1, 989, 160, 3350, 67, PCIE_5_GBPS, 794.5, STEADY_HOPPER, 1402.6),
    "h20": GpuSpec(95.0, 148, 370, 4000, 44, PCIE_5_GBPS, fp8_tflops=207),
    "a100-80g": GpuSpec(79.2, 312, 235, 2039, 19.5, PCIE_4_GBPS, 271.2, STEADY_AMPERE),
    "a100-40g": GpuSpec(39.4, 312, 235, 1555, 19.5, PCIE_4_GBPS, 271.2, STEADY_AMPERE),
    "a100-pcie-80g": GpuSpec(79.2, 312, 20, 1935, 19.5, PCIE_4_GBPS, 252.9, STEADY_AMPERE),
    "a100-pcie-40g": GpuSpec(39.4, 312, 20, 1555, 19.5, PCIE_4_GBPS, 252.9, STEADY_AMPERE),
    "a800": GpuSpec(79.2, 312, 160, 2039, 19.5, PCIE_4_GBPS, 271.2, STEADY_AMPERE),
    "v100-32g": GpuSpec(31.7, 125, 120, 900, 15.7, PCIE_3_GBPS),
    "v100-16g": GpuSpec(15.8, 125, 120, 900, 15.7, PCIE_3_GBPS),
    "v100-pcie-32g": GpuSpec(31.7, 112, 10, 900, 14, PCIE_3_GBPS),
    "v100-pcie-16g": GpuSpec(15.8, 112, 10, 900, 14, PCIE_3_GBPS),
    "rtx6000-pro": GpuSpec(94.9, 504, 28, 1792, 126, PCIE_5_GBPS, fp8_tflops=705),
    "rtx6000-ada": GpuSpec(47.5, 364, 20, 960, 91.1, matmul_tflops=364 * ADA_SHARE, fp8_tflops=510),
    "l40s": GpuSpec(44.4, 362, 20, 864, 91.6, fp8_tflops=513),
    "l40": GpuSpec(44.4, 181, 20, 864, 90.5, fp8_tflops=253),
    "l20": GpuSpec(44.5, 119.5, 20, 864, 59.8, matmul_tflops=110, fp8_tflops=167),
    "l4": GpuSpec(22.0, 121, 10, 300, 30.3, fp8_tflops=170),
    "a40": GpuSpec(44.4, 150, 20, 696, 37.4),
    "a30": GpuSpec(23.5, 165, 20, 933, 10.3),
    "a10": GpuSpec(22.0, 125, 10, 600, 31.2),
    "a10g": GpuSpec(22.1, 70, 10, 600, 35),
    "a6000": GpuSpec(47.5, 155, 20, 768, 38.7),
    "rtx5090": GpuSpec(31.4, 210, 28, 1792, 105, PCIE_5_GBPS, fp8_tflops=293),
    "rtx4090": GpuSpec(23.6, 165, 18, 1008, 82.6, matmul_tflops=165 * ADA_SHARE, fp8_tflops=231),
    "rtx4080": GpuSpec(15.7, 97.5, 18, 717, 48.7, matmul_tflops=97.5 * ADA_SHARE, fp8_tflops=136),
    "rtx3090": GpuSpec(23.7, 71, 18, 936, 35.6),
    "t4": GpuSpec(14.6, 65, 6, 320, 8.1, PCIE_3_GBPS),
    "mi250x": GpuSpec(63.9, 191.5, 50, 1638, 23.9, PCIE_4_GBPS),  # one of its two chips, as a program sees it
    "mi300x": GpuSpec(191.5, 1307, 310, 5300, 163.4, PCIE_5_GBPS, 668.4, fp8_tflops=1337),
    "mi325x": GpuSpec(255.5, 1307, 310, 6000, 163.4, PCIE_5_GBPS, 784.9, fp8_tflops=1570),
}
GPU_NAMES = [key.upper() for key in GPUS]
# Default bus bandwidth between nodes: one 200 Gbit/s adapter for two GPUs, shared by a node's ring.
INTER_GBPS = 90.0
INTRA_GBPS = 20.0  # PCIe without peer access, for an unknown GPU
TFLOPS = 150.0  # for an unknown GPU
UNKNOWN = GpuSpec(0.0, TFLOPS, INTRA_GBPS, 900.0, 35.0)  # a card of a workstation


# Another card than the one it is named after, with other memory.
VARIANTS = {"laptop", "mobile", "max", "ti", "super", "d"}
# GPUs without bf16 units: NVIDIA's of a compute capability below 8.0 (developer.nvidia.com/cuda-gpus), which compute
# bf16 in emulation at best, and AMD's before MI100. GTX, TITAN and Quadro ended as names before Ampere.
WITHOUT_BF16 = re.compile(
    r"\b("
    r"[KM]\d{1,4}[MX]?|"  # Kepler 3.x, Maxwell 5.x: K80, M60, Quadro M6000
    r"P\d{1,4}|GP100|"  # Pascal 6.x: P4, P40, P100, Quadro P5000
    r"V100[A-Z]?|GV100|Xavier|"  # Volta 7.0 and 7.2
    r"T\d{1,4}G?|RTX[ _-]?20[678]0|"  # Turing 7.5: T4, T1000, RTX 2080 Ti; not RTX 2050 and RTX 2000 Ada
    r"GTX(?:[ _-]?\d+)?|TITAN|Quadro|"
    r"MI(?:6|8|25|50|60)"
    r")\b",
    re.IGNORECASE,
)
MEMORY_TOLERANCE = 0.15  # of the memory in a name: a card of 24 GB has 22 GiB for programs
LEAST_MEMORY, MOST_MEMORY = 0.6, 2.0  # times the known memory of a GPU, for one with another size in its name
USABLE_SHARE = 0.99  # of the memory in the name of a data-centre GPU, in GiB


@lru_cache(maxsize=64)
def name_words(name: str) -> tuple[str, ...]:
    """Split a GPU's name into words. ``rtx 4090`` is one word, as ``RTX4090`` is."""
    return tuple(re.findall(r"[a-z0-9]+", re.sub(r"rtx[ _-]?(?=\d{4}\b)", "rtx", name.lower())))


def has_bf16(name: str | None) -> bool:
    """Return whether a GPU has bf16 units (NVIDIA: compute capability 8.0). True if the name is not known."""
    return not WITHOUT_BF16.search(name or "")


def matching_gpus(name: str | None) -> list[str]:
    """Return the keys of the GPUs that a name may mean: "A100-SXM4-80GB", "4090". Only whole words match."""
    given = name_words(name or "")
    if VARIANTS.intersection(given):
        return []
    fitting = [key for key in GPUS if {family := key.partition("-")[0], family.removeprefix("rtx")}.intersection(given)]
    form = next((each for each in FORMS if each in given and any(each in key.split("-") for key in fitting)), None)
    fitting = [key for key in fitting if next((each for each in FORMS if each in key.split("-")), None) == form]
    size = _named_memory_gb(name)
    similar = [key for key in fitting if size and abs(GPUS[key].memory_gib - size) <= MEMORY_TOLERANCE * size]
    return similar or _nearest_memory(fitting, size)


def _named_memory_gb(name: str | None) -> int | None:
    """Return the memory that a name contains: 64 for "A100-SXM-64GB"."""
    size = re.search(r"(?<![a-z0-9])(\d+) ?g(?:i?b)?(?![a-z0-9])", (name or "").lower())
    return int(size[1]) if size else None


def _nearest_memory(keys: list[str], size: int | None) -> list[str]:
    """Return the one form of a GPU whose memory is nearest to another size, whose rates it shares; all without a
    size or with one that is its host's ("GH200 480GB"), none for a small part of a GPU.
    """
    nearest = sorted(keys, key=lambda key: abs(GPUS[key].memory_gib - (size or 0)))[:1]
    if not (size and nearest) or size > MOST_MEMORY * GPUS[nearest[0]].memory_gib:
        return keys
    return nearest if size >= LEAST_MEMORY * GPUS[nearest[0]].memory_gib else []


@lru_cache(maxsize=64)
def find_gpu(name: str | None, memory_gib: float | None = None) -> GpuSpec | None:
    """Return the GPU of a name, or None. If several match, it is the smallest with ``memory_gib``."""
    fitting = sorted((_sized(GPUS[key], name) for key in matching_gpus(name)), key=lambda gpu: gpu.memory_gib)
    return next(
        (gpu for gpu in fitting if gpu.memory_gib >= 0.95 * (memory_gib or 0)), fitting[-1] if fitting else None
    )


def get_gpu(name: str) -> GpuSpec:
    """Return the GPU of a name.

    Raises:
        UserError: The name is unknown, matches several GPUs with different memory, or has a size close to a GPU's own.
    """
    fitting = matching_gpus(name)
    if not fitting:
        raise UserError(
            f"GPU {name or 'is empty'}: not known",
            did_you_mean(closest(name, GPU_NAMES)) or f"one of {all_gpu_names()}",
        )
    if len(fitting) > 1:
        raise UserError(f"GPU {name}: which memory size?", f"write {' or '.join(key.upper() for key in fitting)}")
    if _has_mistyped_size(name, fitting[0]):
        raise UserError(f"GPU {name}: no such memory size", did_you_mean([key.upper() for key in fitting]))
    return _sized(GPUS[fitting[0]], name)


def _has_mistyped_size(name: str, key: str) -> bool:
    """Return whether a name has another size than its GPU, one that is too close to be that of another GPU."""
    size, own = _named_memory_gb(name), _named_memory_gb(key)
    return bool(size and own and size != own and abs(size - own) <= MEMORY_TOLERANCE * size)


def _sized(gpu: GpuSpec, name: str | None) -> GpuSpec:
    """Return a GPU with the memory in its name if that is another size than usual."""
    size = _named_memory_gb(name)
    is_other = size and abs(gpu.memory_gib - size) > MEMORY_TOLERANCE * size and size <= MOST_MEMORY * gpu.memory_gib
    return gpu._replace(memory_gib=size * USABLE_SHARE) if size and is_other else gpu


def all_gpu_names() -> str:
    """Return all names, separated by commas."""
    return ", ".join(GPU_NAMES)
