import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def global_mean(values, mesh):
    sharded = distribute_tensor(values, mesh, [Shard(0)])
    return sharded.mean().to_local()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return global_mean(torch.arange(8.0), mesh).item()


mean = main()
