"""Find the collective that a stack is in."""

from collections.abc import Sequence

from ...training_script.collectives import WAITING_CALLS
from ...training_script.frame import StackFrame
from .frames import function_name, inner_frames

C10D = "/torch/distributed/distributed_c10d.py"


FUNCTIONAL = "/torch/distributed/_functional_collectives.py"


GRADIENTS = "gradient all-reduce (DDP)"


# What torch calls on the user's behalf: file, function -> torch.distributed's name of it, and how people know it.
IMPLIED = {
    ("/torch/autograd/graph.py", "_engine_run_backward"): ("all_reduce", GRADIENTS),
    ("/torch/autograd/__init__.py", "backward"): ("all_reduce", GRADIENTS),
    ("/torch/nn/parallel/distributed.py", "_sync_buffers"): ("broadcast", "DDP's broadcast of buffers"),
    ("/torch/distributed/utils.py", "_sync_module_states"): ("broadcast", "DDP's broadcast of the model"),
    ("/torch/distributed/utils.py", "_verify_param_shape_across_processes"): (
        "all_gather",
        "DDP's comparison of the models",
    ),
    ("/torch/distributed/tensor/_redistribute.py", "redistribute_local_tensor"): ("all_gather_into_tensor", ""),
}


# The same for whole features: a part of the path, the function (or any) -> how people know it; the outermost counts.
FEATURES = (
    ("/torch/distributed/checkpoint/state_dict", "get_model_state_dict", "the gathering of the state dict"),
    ("/torch/distributed/checkpoint/state_dict", "get_optimizer_state_dict", "the gathering of the state dict"),
    ("/torch/distributed/checkpoint/state_dict", "get_state_dict", "the gathering of the state dict"),
    ("/torch/distributed/checkpoint/", "save", "the saving of a distributed checkpoint"),
    ("/torch/distributed/checkpoint/", "load", "the loading of a distributed checkpoint"),
    ("/torch/distributed/fsdp/_state_dict_utils.py", "", "FSDP's gathering of the state dict"),
    ("/torch/distributed/tensor/_api.py", "full_tensor", "the gathering of a sharded tensor"),
    ("/torch/nn/utils/clip_grad.py", "", "the norm of sharded gradients"),
    ("/torch/distributed/fsdp/", "post_backward", "FSDP's reduction of gradients"),
    ("/torch/distributed/fsdp/", "pre_forward", "FSDP's gathering of parameters"),
    ("/torch/distributed/fsdp/", "unshard", "FSDP's gathering of parameters"),
    ("/torch/distributed/algorithms/join.py", "", "the Join of uneven inputs"),
    ("/torch/distributed/optim/", "consolidate_state_dict", "the gathering of the optimizer's state"),
)


def collective_of(stack: Sequence[StackFrame]) -> tuple[str | None, str]:
    """The collective the innermost frames are in, by torch.distributed's public name, and how it came about.

    Of several (``broadcast_object_list`` calls ``broadcast``) the one the caller wrote. ``stack`` is innermost first.
    """
    inner = inner_frames(stack)
    for frame in reversed(inner):
        if frame.path.endswith(C10D) and not frame.function.startswith("_") and "." not in frame.function:
            return frame.function, _feature(inner)
    if functional := next((frame for frame in reversed(inner) if frame.path.endswith(FUNCTIONAL)), None):
        public = functional.function.lstrip("_")
        name = {"all_gather_tensor": "all_gather_into_tensor"}.get(public, public)
        return (name if name in WAITING_CALLS else _redistributed(inner)), _feature(inner)
    for frame in reversed(inner):
        for (path, function), (name, via) in IMPLIED.items():
            if function_name(frame) == function and frame.path.endswith(path):
                return name, via or _feature(inner)
    return None, ""


def _feature(inner: Sequence[StackFrame]) -> str:
    for frame in reversed(inner):
        for path, function, known_as in FEATURES:
            if path in frame.path and function in ("", function_name(frame)):
                return known_as
    return ""


def _redistributed(inner: Sequence[StackFrame]) -> str:
    """What a sharded tensor's change of layout calls: gathered for the state dict, reduced for a norm."""
    return "all_reduce" if any("_reduce" in frame.function for frame in inner) else "all_gather_into_tensor"
