"""FSDP2 in small functions, made by ddpwizard. Try it as it is:

    torchrun --standalone --nproc-per-node=2 fsdp2_setup.py

Then take the functions into your script.
"""

import gc
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

PARAM_DTYPE = torch.bfloat16  # what the layers compute in; the sharded weights stay in float32


def set_up() -> torch.device:
    """Join the process group and give the device of this rank: by LOCAL_RANK, which counts within one node."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def shard(model: torch.nn.Module, block: type[torch.nn.Module], device: torch.device) -> torch.nn.Module:
    """Shard a model that stands on the CPU: each ``block`` for itself, then the rest. Build the optimizer after this.

    Blocks go to the GPU one by one, so the whole model is never there at once. FSDP2 does not copy rank 0's weights
    to the others by itself; here they are sent.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    precision = MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=torch.float32)
    weights = {name: value.clone() for name, value in model.state_dict().items()} if dist.get_rank() == 0 else {}
    for module in reversed(list(model.modules())):  # inner blocks before outer ones
        if isinstance(module, block):
            fully_shard(module, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return model


def save(model: torch.nn.Module, path: str) -> None:
    """Call it on every rank: all take part in gathering the shards, rank 0 writes, in one move."""
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(whole, path + ".part")
        os.replace(path + ".part", path)
    dist.barrier()


def finish() -> None:
    """At the normal end only (after an exception it could wait for ranks that are gone), when no name holds the model.

    A wrapped model holds the process group, in reference cycles; a group that is still held can abort the process at
    its end (seen with gloo, torch 2.13).
    """
    gc.collect()
    dist.destroy_process_group()


class Block(torch.nn.Module):
    """Stands for a transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU())
        self.out = torch.nn.Linear(4 * width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.out(self.layers(inputs))


def train(device: torch.device) -> None:
    """An example on made-up data."""
    model = shard(torch.nn.Sequential(Block(16), Block(16), torch.nn.Linear(16, 1)), Block, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())  # other data on each rank
    for step in range(4):
        features = torch.randn(8, 16, device=device)
        loss = torch.nn.functional.mse_loss(model(features).float(), features.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)  # on every rank; only the print is for one
        if dist.get_rank() == 0:
            print(f"step {step}: loss {total.item() / dist.get_world_size():.4f}", flush=True)
    save(model, "fsdp2_model.pt")


@record
def main() -> None:
    device = set_up()
    train(device)
    finish()


if __name__ == "__main__":
    main()
