"""Tensors in containers, their bytes, their type."""


def flatten_tensors(tree):
    """Yield the tensors in containers of any depth."""
    import torch
    from torch.utils._pytree import tree_flatten

    return [each for each in tree_flatten(tree)[0] if isinstance(each, torch.Tensor)]


def total_bytes(some):
    """Return the bytes of the tensors' elements."""
    return sum(each.numel() * each.element_size() for each in some)


def autocast_dtype(request):
    """Return the 16-bit compute type of a request."""
    import torch

    return torch.float16 if request["dtype"].startswith("fp16") else torch.bfloat16
