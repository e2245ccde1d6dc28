import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

STEPS = 15
SERVER = 0


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))


def server(workers, lr=0.05):
    model = build_model()
    weights = parameters_to_vector(model.parameters()).detach()
    for step in range(STEPS):
        total = torch.zeros_like(weights)
        for worker in workers:
            gradient = torch.empty_like(weights)
            dist.recv(gradient, src=worker, tag=step)
            total += gradient
        weights -= lr * total / len(workers)
        for worker in workers:
            dist.send(weights, dst=worker, tag=step)
    vector_to_parameters(weights, model.parameters())
    return model


def worker(rank):
    model = build_model()
    g = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        x = torch.randn(32, 5, generator=g)
        loss = F.mse_loss(model(x), x[:, :1].exp())
        model.zero_grad()
        loss.backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.send(gradient, dst=SERVER, tag=step)
        weights = torch.empty_like(gradient)
        dist.recv(weights, src=SERVER, tag=step)
        vector_to_parameters(weights, model.parameters())
        if step % 5 == 0:
            print(f"worker {rank} step {step} loss {loss.item():.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == SERVER:
        model = server(range(1, world_size))
        torch.save(model.state_dict(), "server.pt")
    else:
        worker(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
