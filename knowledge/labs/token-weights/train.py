"""Measure how much one token counts in the gradient, if the ranks have different numbers of tokens."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TOKENS = [30, 10]  # in the batch of each rank


class Scores(nn.Module):
    """One parameter for the tokens of each rank, so that its gradient is the weight of these tokens."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(len(TOKENS)))

    def forward(self, texts):
        return self.scores[texts]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(Scores())
    texts = torch.full((TOKENS[rank],), rank)

    loss = model(texts).mean()  # the usual loss: the mean over the tokens of this rank
    loss.backward()

    weights = [grad / count for grad, count in zip(model.module.scores.grad.tolist(), TOKENS)]
    if rank == 0:
        for each, count in enumerate(TOKENS):
            print(f"a token of rank {each} ({count} tokens) has the weight {weights[each]:.4f}")
        print(f"a token of rank 1 counts {weights[1] / weights[0]:.0f} times as much as one of rank 0")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
