"""Versions of torch, CUDA, cuDNN and NCCL in the target interpreter."""

from pathlib import Path

import msgspec

from ..errors import InspectionError
from ..evidence import Check
from ..hardware.visible_gpus import visible_devices
from ..snapshot import Snapshot, SoftwareSection
from ..system.subprocesses import ProcessOutcome, run_process
from ..text.units import count_text
from .context import ProbeContext

AGENT = Path(__file__).parent.parent / "agents" / "software.py"


async def collect(context: ProbeContext, limit_s: float) -> SoftwareSection:
    """Query the target interpreter in a child.

    Raises:
        InspectionError: The interpreter cannot be started, is older than Python 3.9, or did not answer in time.
    """
    outcome = await run_process([context.python, str(AGENT)], limit_s=limit_s, env=context.environ, answers=True)
    return build_software_section(outcome, context.python)


def build_software_section(outcome: ProcessOutcome, python: str) -> SoftwareSection:
    """Build the section from the agent's answer: two lines, or one if importing torch ended the interpreter.

    Raises:
        InspectionError: The answer is missing or incomplete.
    """
    lines = outcome.answer.splitlines()
    if outcome.status == "timed_out":
        where = f"importing torch in {python}" if lines else python
        raise InspectionError(f"{where} {outcome.why}", "its file system may be slow; run import torch there yourself")
    try:
        facts = [msgspec.json.decode(line, type=dict) for line in lines]
        if not facts:
            raise InspectionError(
                f"{python} gave no answer ({outcome.why})", "choose Python 3.9 or newer with --python"
            )
        if len(facts) == 1:
            facts.append({"problem": f"importing torch ended the interpreter {_end(outcome.code)}"})
        return msgspec.convert(facts[0] | facts[1], SoftwareSection)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InspectionError(f"{python} gave an answer that cannot be read: {error}", "check --python") from error


def _end(code: int) -> str:
    return f"(signal {code - 128})" if code > 128 else f"(code {code})"


def judge(snapshot: Snapshot) -> list[Check]:
    """Check the interpreter's torch, also against the GPUs if they were collected."""
    software = snapshot.software
    if software is None:
        return []
    if software.problem:
        return [_no_torch(software)]
    checks = list(_missing_backends(software, snapshot))
    return checks or [_fine(software)]


def _no_torch(software: SoftwareSection) -> Check:
    if software.torch or software.torch_path:
        return Check(
            "software.torch",
            "fail",
            f"torch {software.torch} cannot be imported".replace("  ", " "),
            f"{software.problem} (in {software.python})",
            finding="software.torch-broken",
            where=software.torch_path,
            fix=f"{software.python} -m pip install --force-reinstall torch",
        )
    return Check(
        "software.torch",
        "fail",
        "the target interpreter has no torch",
        f"{software.python} (Python {software.python_version}) does not find it; no training script can start there",
        finding="software.torch-missing",
        where=software.python,
        fix="choose the interpreter of your training environment with --python, or install torch there",
    )


def _missing_backends(software: SoftwareSection, snapshot: Snapshot) -> list[Check]:
    gpus = snapshot.gpus.gpus if snapshot.gpus else []
    checks: list[Check] = []
    if not software.backends:
        checks.append(
            Check(
                "software.distributed",
                "fail",
                f"torch {software.torch} was built without torch.distributed",
                "DDP, FSDP and torchrun do not work with it",
                finding="software.no-distributed",
                where=software.torch_path,
                fix="install an official build of torch for Linux",
            )
        )
    elif "nccl" not in software.backends and (gpus or software.cuda):
        checks.append(
            Check(
                "software.nccl",
                "fail" if gpus else "warn",
                f"torch {software.torch} was built without NCCL",
                'init_process_group("nccl") fails; with gloo, GPU tensors are copied through the CPU',
                finding="software.no-nccl",
                where=software.torch_path,
                fix="install a CUDA build of torch",
            )
        )
    if gpus and not software.gpu_count_torch and _shows_gpus(snapshot):
        built = f"built for CUDA {software.cuda}" if software.cuda else "a CPU-only build"
        driver = snapshot.gpus.driver if snapshot.gpus else ""
        checks.append(
            Check(
                "software.gpus",
                "fail",
                f"the driver shows {count_text(len(gpus), 'GPU')}, torch sees none",
                f"torch {software.torch} is {built}; the driver is {driver}",
                finding="software.torch-sees-no-gpu",
                where=software.torch_path,
                fix="install a torch whose CUDA version this driver supports"
                if software.cuda
                else "install a CUDA build of torch",
            )
        )
    return checks


def _shows_gpus(snapshot: Snapshot) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES leaves any GPU. If it hides all, torch is not at fault."""
    return bool(snapshot.gpus and visible_devices(snapshot.gpus)[0])


def _fine(software: SoftwareSection) -> Check:
    parts = [f"torch {software.torch}"]
    parts += [f"CUDA {software.cuda}"] if software.cuda else ["CPU only"]
    parts += [f"NCCL {software.nccl}"] if software.nccl else []
    parts += [f"cuDNN {software.cudnn}"] if software.cudnn else []
    return Check(
        "software.torch",
        "ok",
        ", ".join(parts),
        f"backends {', '.join(software.backends)}; {software.python}, Python {software.python_version}",
        finding="software.torch-fine",
        where=software.torch_path,
    )
