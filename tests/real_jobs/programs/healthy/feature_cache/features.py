import os

import torch
import torch.distributed as dist


def load_features(folder, rank):
    path = os.path.join(folder, "features.pt")
    if rank == 0 and not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        torch.save(torch.randn(64, 4), path + ".part")
        os.replace(path + ".part", path)
    dist.barrier()
    return torch.load(path)
