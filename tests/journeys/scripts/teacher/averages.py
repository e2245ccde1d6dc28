"""The mean of each weight, as every rank sees it."""

import torch.distributed as dist


def of_all_ranks(module):
    own = {name: weight.mean().item() for name, weight in module.named_parameters()}
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)  # HANG
    return found
