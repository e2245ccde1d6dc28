"""One learner and several actors: actors send episodes, the learner fits a value function to them."""

import torch
import torch.distributed as dist
from torch import nn

LENGTH, MAX_EPISODES, FEATURES = 8, 6, 4


def episode(generator):
    states = torch.randn(LENGTH, FEATURES, generator=generator)
    return torch.cat([states, states.sum(1, keepdim=True)], dim=1)


class Actor:
    """Play until the mean return is good enough, or until the episodes are used up."""

    def __init__(self, rank, target=0.6):
        self.generator = torch.Generator().manual_seed(rank)
        self.target = target

    def run(self):
        played = 0
        while played < MAX_EPISODES:
            data = episode(self.generator)
            dist.send(torch.tensor([1]), dst=0)
            dist.send(data, dst=0)
            played += 1
            if data[:, -1].mean() > self.target:
                break
        print(f"actor has played {played} episodes", flush=True)


class Learner:
    def __init__(self):
        torch.manual_seed(0)
        self.value = nn.Linear(FEATURES, 1)
        self.optimizer = torch.optim.SGD(self.value.parameters(), lr=0.05)

    def learn(self, data):
        loss = nn.functional.mse_loss(self.value(data[:, :-1]), data[:, -1:])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def serve(self, actor):
        more, losses = torch.ones(1, dtype=torch.long), []
        for _ in range(MAX_EPISODES):
            dist.recv(more, src=actor)
            data = torch.empty(LENGTH, FEATURES + 1)
            dist.recv(data, src=actor)
            losses.append(self.learn(data))
        return losses


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        learner = Learner()
        for actor in range(1, world_size):
            losses = learner.serve(actor)
            print(f"{len(losses)} episodes from actor {actor}, last loss {losses[-1]:.4f}", flush=True)
    else:
        Actor(rank).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
