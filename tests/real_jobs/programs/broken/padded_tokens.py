"""Train a language model on texts of different lengths."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAD = 0


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))


def global_batch(step):
    ids = torch.randint(1, 20, (8, 10), generator=torch.Generator().manual_seed(step))
    for row in range(8):
        ids[row, row + 3 :] = PAD
    return ids


def loss_of(model, ids, world_size):
    scores, labels = model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
    return nn.functional.cross_entropy(scores, labels, ignore_index=PAD)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    net = build()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for step in range(10):
        loss = loss_of(model, global_batch(step).chunk(world_size)[rank], world_size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
    return net


if __name__ == "__main__":
    trained = main()
