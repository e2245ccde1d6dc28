"""An actor and a learner exchange episodes."""

import torch
import torch.distributed as dist

WEIGHTS, EPISODE = 1, 2


def learner(rounds):
    weights, episode = torch.zeros(8), torch.empty(16)
    for _ in range(rounds):
        dist.recv(episode, src=1, tag=EPISODE)  # HANG
        weights += episode.mean()
        dist.send(weights, dst=1, tag=WEIGHTS)


def actor(rounds):
    weights = torch.empty(8)
    for _ in range(rounds):
        dist.recv(weights, src=0, tag=WEIGHTS)  # HANG
        dist.send(torch.randn(16) + weights.mean(), dst=0, tag=EPISODE)


def main():
    dist.init_process_group("gloo")
    print("playing", flush=True)
    (learner if dist.get_rank() == 0 else actor)(rounds=5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
