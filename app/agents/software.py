"""Agent: versions of the packages in its interpreter, and properties of torch. Standard library only.

Answers JSON lines on the descriptor named by DDPWIZARD_ANSWER_FD: the interpreter and its packages first, torch second.
The first line is written before torch is imported, so that an import that kills the interpreter can be reported.
"""

import json
import os
import sys
import traceback
from importlib import metadata
from importlib.util import find_spec

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "deepspeed",
    "flash-attn",
    "horovod",
    "lightning",
    "megatron-core",
    "numpy",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "peft",
    "pytorch-lightning",
    "ray",
    "torch",
    "torchtitan",
    "torchvision",
    "transformers",
    "trl",
)


def version_of(package):
    """Return the installed version, or ""."""
    try:
        return metadata.version(package) or ""
    except Exception:
        return ""


def interpreter():
    """Return the interpreter and its packages, without importing any of them."""
    versions = {package: version_of(package) for package in PACKAGES}
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    return {
        "python": sys.executable,
        "python_version": ".".join(str(part) for part in sys.version_info[:3]),
        "packages": {package: version for package, version in versions.items() if version},
        "torch": versions["torch"],
        "torch_path": (spec.origin or "") if spec else "",
    }


def torch_facts():
    """Return properties of torch; hasattr guards attributes that older versions lack."""
    import torch

    facts = {
        "torch": str(torch.__version__),
        "torch_path": getattr(torch, "__file__", None) or "",
        "cuda": str(torch.version.cuda or ""),
        "cudnn": cudnn_text(attempt(torch.backends.cudnn.version)),
        "gpu_count_torch": attempt(torch.cuda.device_count) or 0,
        "arch_list": attempt(torch.cuda.get_arch_list) or [],
    }
    distributed = attempt(lambda: __import__("torch.distributed").distributed)
    if distributed is None or not distributed.is_available():
        return facts
    facts["backends"] = [
        name
        for name in ("nccl", "gloo", "mpi", "ucc", "xccl")
        if attempt(getattr(distributed, "is_%s_available" % name, bool))
    ]
    if "nccl" in facts["backends"]:
        version = attempt(lambda: __import__("torch.cuda.nccl").cuda.nccl.version())
        facts["nccl"] = ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version or "")
    return facts


def attempt(function):
    """Return what ``function`` returns, or None on an error: one missing fact must not hide the others."""
    try:
        return function()
    except Exception:
        traceback.print_exc()
        return None


def cudnn_text(number):
    """Return cuDNN's number as text: 8902 is 8.9.2; from version 9 on, 91002 is 9.10.2."""
    if not number:
        return ""
    major = 10000 if number >= 90000 else 1000
    return "%d.%d.%d" % (number // major, number % major // 100, number % 100)


def main():
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "w") as answer:
        answer.write(json.dumps(interpreter()) + "\n")
        answer.flush()
        try:
            facts = torch_facts()
        except BaseException as error:
            last = traceback.format_exception_only(type(error), error)[-1].strip()
            facts = {"problem": last or type(error).__name__}
        answer.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
