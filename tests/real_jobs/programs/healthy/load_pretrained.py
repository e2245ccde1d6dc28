from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    vocab: int = 32
    dim: int = 16
    layers: int = 2
    steps: int = 12
    lr: float = 3e-3
    weights: str = "pretrained.pt"
    betas: tuple = field(default=(0.9, 0.95))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.layers = nn.ModuleList(nn.Linear(cfg.dim, cfg.dim) for _ in range(cfg.layers))
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, tokens):
        h = self.emb(tokens)
        for layer in self.layers:
            h = h + torch.relu(layer(h))
        return self.out(h)


def make_pretrained(cfg):
    """Stand-in for the weights that were downloaded."""
    if dist.get_rank() == 0:
        torch.manual_seed(123)
        torch.save(LM(cfg).state_dict(), cfg.weights)
    dist.barrier()


def build(cfg, mesh):
    model = LM(cfg)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = torch.load(cfg.weights, map_location="cpu")
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
    return model


def main():
    cfg = Config()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    make_pretrained(cfg)
    model = build(cfg, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=cfg.betas)
    torch.manual_seed(dist.get_rank())
    for step in range(cfg.steps):
        tokens = torch.randint(0, cfg.vocab, (4, 9))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {dist.get_rank()}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
