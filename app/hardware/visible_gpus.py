"""GPUs that CUDA_VISIBLE_DEVICES leaves to a process."""

import msgspec

from ..snapshot import Gpu, GpuSection


class VisibleDevice(msgspec.Struct, frozen=True):
    """A device of a CUDA process: a GPU, or with ``slice`` one MIG slice of it."""

    gpu: Gpu
    slice: str = ""


def visible_devices(section: GpuSection) -> tuple[list[VisibleDevice], str]:
    """Return the devices that CUDA shows, in its order, and a problem of CUDA_VISIBLE_DEVICES, or an empty string.

    CUDA's rules (CUDA C++ Programming Guide, "CUDA environment variables"; torch.cuda._parse_visible_devices): a list
    of indices or UUID prefixes. It ends at the first entry without a device; a device listed twice hides them all.
    """
    if section.visible is None:
        return [VisibleDevice(gpu) for gpu in section.gpus], ""
    entries = [entry.strip() for entry in section.visible.split(",")]
    if entries in ([""], ["-1"]):
        return [], f"is {section.visible!r}: it hides all GPUs"
    find = _by_uuid if entries[0].startswith(("GPU-", "MIG-")) else _by_index
    found: list[VisibleDevice] = []
    for entry in entries:
        device = find(section.gpus, entry)
        if device is None:
            rest = "no GPU is visible" if not found else f"only the {len(found)} before it are visible"
            return found, f"names {entry or 'nothing'!r}, which is not there: {rest}"
        if device in found:
            return [], f"names {entry!r} twice: CUDA then shows no GPU at all"
        found.append(device)
    return found, ""


def _by_index(gpus: list[Gpu], entry: str) -> VisibleDevice | None:
    digits = entry[: next((i for i, c in enumerate(entry) if c not in "0123456789"), len(entry))]
    index = int(digits) if digits else -1  # CUDA reads like strtoul: "1x" is 1
    return next((VisibleDevice(gpu) for gpu in gpus if gpu.index == index), None)


def _by_uuid(gpus: list[Gpu], entry: str) -> VisibleDevice | None:
    """A UUID may be shortened to a unique prefix."""
    if entry.startswith("GPU-"):
        matches = [VisibleDevice(gpu) for gpu in gpus if gpu.uuid.startswith(entry)]
    elif entry.startswith("MIG-GPU-"):  # drivers before 470: MIG-GPU-<uuid>/<instance>/<instance>
        matches = [VisibleDevice(gpu, entry) for gpu in gpus if entry.split("/")[0] == f"MIG-{gpu.uuid}"]
    elif entry.startswith("MIG-"):
        matches = [VisibleDevice(gpu, uuid) for gpu in gpus for uuid in gpu.mig_uuids if uuid.startswith(entry)]
    else:
        matches = []
    return matches[0] if len(matches) == 1 else None
