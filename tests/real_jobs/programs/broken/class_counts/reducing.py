import torch
import torch.distributed as dist


def reduce_dict(values):
    reduced = {}
    for name in values:
        tensor = torch.tensor(float(values[name]))
        dist.all_reduce(tensor)
        reduced[name] = tensor.item() / dist.get_world_size()
    return reduced
