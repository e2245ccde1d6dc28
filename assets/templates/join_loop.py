"""A training loop for ranks with unequal numbers of batches. Made by ddpwizard. Run it unchanged first:

    torchrun --standalone --nproc-per-node=2 join_loop.py

With Join, a finished rank takes part in the gradient reductions of the others until all are finished. It does not
take part in your own collectives inside the loop (a barrier, an all_reduce of the loss): put them after the loop.
"""

import gc
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


def train_epoch(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> int:
    """Train one epoch, which may end earlier on some ranks. Return the number of steps of this rank."""
    steps = 0
    with Join([model]):
        for features, target in batches:
            loss = torch.nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    return steps


def train(device: torch.device) -> None:
    """Train the example, in which each rank has one batch more than the one before."""
    device_ids = [device.index] if device.type == "cuda" else None
    model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device), device_ids=device_ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    mine = [(torch.randn(4, 8, device=device), torch.randn(4, 1, device=device)) for _ in range(3 + dist.get_rank())]
    steps = torch.tensor([train_epoch(model, optimizer, mine)], device=device)
    dist.all_reduce(steps)  # after Join: every rank gets here
    if dist.get_rank() == 0:
        print(f"{steps.item()} steps in total", flush=True)


@record
def main() -> None:
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    train(device)
    gc.collect()  # frees the model, which holds the process group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
