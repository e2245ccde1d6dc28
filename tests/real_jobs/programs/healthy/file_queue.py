import torch
import torch.distributed as dist
from torch import nn

N_TASKS = 6
STOP = -1


def score(seed):
    """Train a small model with the given seed and return its final loss."""
    torch.manual_seed(seed)
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    for _ in range(20):
        opt.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        opt.step()
    return loss.detach()


def leader(workers):
    results = {}
    pending = list(range(N_TASKS))
    while pending:
        for worker in range(1, workers + 1):
            if not pending:
                break
            seed = pending.pop(0)
            dist.send(torch.tensor([seed]), dst=worker)
            result = torch.zeros(1)
            dist.recv(result, src=worker)
            results[seed] = result.item()
    for worker in range(1, workers + 1):
        dist.send(torch.tensor([STOP]), dst=worker)
    return results


def worker():
    done = 0
    while True:
        task = torch.zeros(1, dtype=torch.long)
        dist.recv(task, src=0)
        if task.item() == STOP:
            return done
        loss = score(int(task.item()))
        dist.send(loss.reshape(1), dst=0)
        done += 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        results = leader(dist.get_world_size() - 1)
        best = min(results, key=results.get)
        print("best seed", best, "loss", results[best], flush=True)
    else:
        print("rank", rank, "did", worker(), "tasks", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
