"""Find the collective that a stack is in."""

from collections.abc import Sequence

from ...training_script.collectives import WAITING_CALLS
from ...training_script.frame import StackFrame
from ..types import Sample
from .frames import function_name, inner_frames

C10D = "/torch/distributed/distributed_c10d.py"


FUNCTIONAL = "/torch/distributed/_functional_collectives.py"


GRADIENTS = "gradient all-reduce (DDP)"


# Collectives that torch issues on the user's behalf: file, function -> name in torch.distributed, descriptive name.
IMPLIED = {
    ("/torch/autograd/graph.py", "_engine_run_backward"): ("all_reduce", GRADIENTS),
    ("/torch/autograd/__init__.py", "backward"): ("all_reduce", GRADIENTS),
    ("/torch/nn/parallel/distributed.py", "_sync_buffers"): ("broadcast", "DDP's buffer broadcast"),
    ("/torch/distributed/utils.py", "_sync_module_states"): ("broadcast", "DDP's broadcast of the model"),
    ("/torch/distributed/utils.py", "_verify_param_shape_across_processes"): (
        "all_gather",
        "DDP's comparison of parameter shapes",
    ),
    ("/torch/distributed/tensor/_redistribute.py", "redistribute_local_tensor"): ("all_gather_into_tensor", ""),
}


GRADIENT_REDUCTION, PARAMETER_GATHER = SHARDED_STEPS = ("FSDP's gradient reduction", "FSDP's parameter all-gather")
# The same for features: a part of the path, the function ("": any) -> descriptive name. The outermost match counts.
FEATURES = (
    ("/torch/distributed/checkpoint/state_dict", "get_model_state_dict", "the state dict gathering"),
    ("/torch/distributed/checkpoint/state_dict", "get_optimizer_state_dict", "the state dict gathering"),
    ("/torch/distributed/checkpoint/state_dict", "get_state_dict", "the state dict gathering"),
    ("/torch/distributed/checkpoint/", "save", "the distributed checkpoint save"),
    ("/torch/distributed/checkpoint/", "load", "the distributed checkpoint load"),
    ("/torch/distributed/fsdp/_state_dict_utils.py", "", "FSDP's state dict gathering"),
    ("/torch/distributed/tensor/_api.py", "full_tensor", "the all-gather of a sharded tensor"),
    ("/torch/nn/utils/clip_grad.py", "", "the norm of sharded gradients"),
    ("/torch/distributed/fsdp/", "post_backward", GRADIENT_REDUCTION),
    ("/torch/distributed/fsdp/", "pre_forward", PARAMETER_GATHER),
    ("/torch/distributed/fsdp/", "unshard", PARAMETER_GATHER),
    ("/torch/distributed/algorithms/join.py", "", "the Join context manager for uneven inputs"),
    ("/torch/distributed/optim/", "consolidate_state_dict", "the optimizer state gathering"),
)


def collective_of(stack: Sequence[StackFrame]) -> tuple[str | None, str]:
    """Return the collective that the innermost frames are in, by its torch.distributed name, and its descriptive name.

    If one collective calls another (``broadcast_object_list`` calls ``broadcast``), return the one the user called.
    ``stack`` is innermost first.
    """
    inner = inner_frames(stack)
    for frame in reversed(inner):
        if frame.path.endswith(C10D) and not frame.function.startswith("_") and "." not in frame.function:
            return frame.function, _feature(inner)
    if functional := next((frame for frame in reversed(inner) if frame.path.endswith(FUNCTIONAL)), None):
        public = functional.function.lstrip("_")
        name = {"all_gather_tensor": "all_gather_into_tensor"}.get(public, public)
        return (name if name in WAITING_CALLS else _redistribution_collective(inner)), _feature(inner)
    for frame in reversed(inner):
        for (path, function), (name, via) in IMPLIED.items():
            if function_name(frame) == function and frame.path.endswith(path):
                return name, via or _feature(inner)
    return None, ""


def waits_in_collective(sample: Sample) -> bool:
    """Return whether a sample shows the main thread in a collective; a backward pass may compute as well as wait."""
    name, via = collective_of(sample.stack)
    return name is not None and (via != GRADIENTS or not _runs(sample))


def _runs(sample: Sample) -> bool:
    """Return whether the main thread used a CPU; ``process_state`` is read up to some 100 ms before the stack."""
    return sample.process_state == "R" if sample.runs is None else sample.runs


def _feature(inner: Sequence[StackFrame]) -> str:
    for frame in reversed(inner):
        for path, function, feature in FEATURES:
            if path in frame.path and function in ("", function_name(frame)):
                return feature
    return ""


def _redistribution_collective(inner: Sequence[StackFrame]) -> str:
    """Return the collective of a sharded tensor's layout change: a gather for a state dict, a reduction for a norm."""
    return "all_reduce" if any("_reduce" in frame.function for frame in inner) else "all_gather_into_tensor"
