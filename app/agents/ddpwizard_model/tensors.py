"""Tensors: those in a container, their bytes, their type."""


def flatten_tensors(tree):
    """The tensors in containers of any depth."""
    import torch
    from torch.utils._pytree import tree_flatten

    return [each for each in tree_flatten(tree)[0] if isinstance(each, torch.Tensor)]


def total_bytes(some):
    """The bytes of tensors' elements."""
    return sum(each.numel() * each.element_size() for each in some)


def autocast_dtype(request):
    """The 16-bit type it computes in."""
    import torch

    return torch.float16 if request["dtype"].startswith("fp16") else torch.bfloat16
