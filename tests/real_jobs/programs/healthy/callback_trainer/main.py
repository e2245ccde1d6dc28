import torch
import torch.distributed as dist
from torch import nn

from callbacks import Checkpoint, ProgressPrinter, ThroughputMeter
from trainer import Trainer


def make_callbacks(rank):
    callbacks = [ThroughputMeter()]
    callbacks.append(Checkpoint("weights.pt", every=2))
    if rank == 0:
        callbacks.append(ProgressPrinter())
    return callbacks


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    trainer = Trainer(model, lr=0.05, callbacks=make_callbacks(rank))
    trainer.fit(epochs=4, steps=6, seed=rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
