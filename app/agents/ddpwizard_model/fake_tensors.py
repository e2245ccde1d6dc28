"""Corrections for fake tensors that claim to be on "cpu": they follow the rules of a GPU."""

from typing import Any

# Operations that autocast computes in fp32 on CUDA but not on CPU (torch 2.13, autocast_mode.cpp), as far as large
# models use them.
WIDE = {"layer_norm", "group_norm", "softmax", "log_softmax", "exp", "pow", "rsqrt", "norm", "sum", "cumsum", "prod"}
DROPOUT_AT = 10  # index of dropout_p among the arguments of multi_head_attention_forward


def apply_to_fakes(module, fn, recurse=True, done=None):
    """Replace ``Module._apply`` for fake tensors, which cannot be swapped in place (torch 2.13).

    A conversion creates new parameters; shared parameters stay shared.
    """
    import torch

    done = {} if done is None else done
    for child in module.children() if recurse else ():
        apply_to_fakes(child, fn, True, done)
    for name, param in module._parameters.items():
        if param is not None:
            new = done.setdefault(id(param), (param, torch.nn.Parameter(fn(param.detach()), param.requires_grad)))[1]
            module._parameters[name] = new
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def skip_init(tensor, *_given, **_named):
    """Replace functions that draw initial values: fake tensors have none."""
    return tensor


def gpu_rules(autocast):
    """Return a mode in which functions save on "cpu" what they save on a GPU.

    It covers autocast's longer list of fp32 operations, dropout masks of one byte, attention that stays fused with
    dropout, and devices that the model's code names.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] in ("cuda", "meta")
        return torch.device("cpu") if named else value

    def wide(value):
        is_low = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
        return value.float() if is_low else value

    def dropped(input, p=0.5, training=True, inplace=False, train=True):
        return torch.native_dropout(input, p, True)[0] if p and training and train else input

    class Rules(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", "").strip("_")
            args, kwargs = tuple(map(here, args)), {key: here(value) for key, value in (kwargs or {}).items()}
            if name == "cuda" and args:
                return args[0]
            if name == "grouped_mm" and args[0].dtype == torch.float32 and "offs" in kwargs:
                # Torch has no sizes of it outside of bf16 (2.13): transformers' own operation saves as much.
                fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
                if fallback is not None and kwargs.get("bias") is None:
                    return fallback(*args[:2], kwargs["offs"])
            if name == "scaled_dot_product_attention":
                args = args[:4] + (0.0,) * (len(args) > 4) + args[5:]
                kwargs.pop("dropout_p", None)
            elif name == "multi_head_attention_forward":  # calls it directly, without asking the mode
                args = (*args[:DROPOUT_AT], 0.0, *args[DROPOUT_AT + 1 :])
            elif name == "dropout":
                return dropped(*args, **kwargs)
            elif autocast and name in WIDE and torch.is_autocast_enabled("cpu"):
                args, kwargs = tuple(map(wide, args)), {key: wide(value) for key, value in kwargs.items()}
            return func(*args, **kwargs)

    return Rules()
