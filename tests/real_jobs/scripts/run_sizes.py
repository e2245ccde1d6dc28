"""Rank 0 broadcasts more than rank 1 expects: gloo ends rank 1 with abort(), and the message is printed by C++."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
count = 1000 if dist.get_rank() == 0 else 8
dist.broadcast(torch.ones(count), 0)
dist.barrier()
