"""DDP in small functions, made by ddpwizard. Try it as it is:

    torchrun --standalone --nproc-per-node=2 ddp_setup.py

Then take the functions into your script.
"""

import gc
import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

WORKERS = 0  # loader processes per rank


def set_up() -> torch.device:
    """Join the process group and give the device of this rank: by LOCAL_RANK, which counts within one node."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def wrap(model: torch.nn.Module, device: torch.device) -> DistributedDataParallel:
    """The model on its device first, then DDP around it. Rank 0's weights go to all ranks."""
    model = model.to(device)
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def load(dataset: Dataset, batch_size: int, device: torch.device) -> tuple[DataLoader, DistributedSampler]:
    """A loader of this rank's share. The sampler gives every rank the same number of batches."""
    sampler: DistributedSampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        num_workers=WORKERS,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    return loader, sampler


def save(model: DistributedDataParallel, path: str) -> None:
    """Call it on every rank: rank 0 writes, in one move, and the others wait for it."""
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), path + ".part")
        os.replace(path + ".part", path)
    dist.barrier()


def finish() -> None:
    """At the normal end only (after an exception it could wait for ranks that are gone), when no name holds the model.

    A wrapped model holds the process group, in reference cycles; a group that is still held can abort the process at
    its end (seen with gloo, torch 2.13).
    """
    gc.collect()
    dist.destroy_process_group()


def train(device: torch.device) -> None:
    """An example on made-up data."""
    model = wrap(torch.nn.Linear(16, 1), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
    loader, sampler = load(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4, device=device)
    for epoch in range(2):
        sampler.set_epoch(epoch)  # another order each epoch
        for features, target in loader:
            loss = torch.nn.functional.mse_loss(model(features.to(device)), target.to(device))
            optimizer.zero_grad()
            loss.backward()  # DDP averages the gradients here
            optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)  # on every rank; only the print is for one
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item() / dist.get_world_size():.4f}", flush=True)
    save(model, "ddp_model.pt")


@record
def main() -> None:
    device = set_up()
    train(device)
    finish()


if __name__ == "__main__":
    main()
