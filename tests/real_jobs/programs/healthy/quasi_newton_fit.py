"""Fit a small regression with L-BFGS; each rank has its part of the samples."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model, world_size):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world_size


class Objective:
    """The closure: the loss over the samples of this rank, with the gradients of all."""

    def __init__(self, model, optimizer, x, y):
        self.model, self.optimizer, self.x, self.y = model, optimizer, x, y

    def evaluate(self):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(self.x), self.y)
        loss.backward()
        average_gradients(self.model, dist.get_world_size())
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total / dist.get_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.rand(96, 3) * 3
    y = torch.sin(x.sum(1, keepdim=True)) + x[:, :1].pow(3)
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=15, line_search_fn="strong_wolfe")
    order = x[:, 0].argsort()
    mine = order.chunk(world_size)[rank]
    objective = Objective(model, optimizer, x[mine], y[mine])
    for _ in range(args.rounds):
        loss = optimizer.step(objective.evaluate)
    print(f"rank {rank}: loss {float(loss):.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
