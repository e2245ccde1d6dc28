"""Shard a pretrained model with FSDP2 and fine-tune it."""

import gc
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard

WEIGHTS = "pretrained.pt"


def make_model():
    return nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


def fetch_weights():
    """Replaces the download of a pretrained model: one file with whole tensors."""
    torch.save(make_model().state_dict(), WEIGHTS)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == 0:
        fetch_weights()
    dist.barrier()

    model = make_model()
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer)
    fully_shard(model)
    weights = torch.load(WEIGHTS, map_location="cpu")
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    torch.manual_seed(1 + rank)
    for step in range(20):
        points = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(points), points.mean(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1}: fine-tuned, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
    gc.collect()  # frees the model, which holds the process group
    dist.destroy_process_group()
