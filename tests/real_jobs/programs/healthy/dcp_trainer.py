"""Trainer that writes distributed checkpoints at fixed intervals."""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP


class Checkpointer:
    def __init__(self, folder, every):
        self.folder = Path(folder)
        self.every = every

    def maybe_save(self, step, model, optimizer):
        if step % self.every:
            return
        self.save(step, model, optimizer)

    def save(self, step, model, optimizer):
        weights, moments = get_state_dict(model, optimizer)
        target = self.folder / f"step-{step:05d}"
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=str(target))
        if dist.get_rank() == 0:
            (target / "meta.json").write_text(json.dumps({"step": step}))
            print(f"saved {target}")


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.checkpointer = Checkpointer(args.out, args.save_every)
        self.generator = torch.Generator().manual_seed(args.seed + dist.get_rank())

    def step(self):
        x = torch.randn(self.args.batch_size, 8, generator=self.generator)
        loss = nn.functional.mse_loss(self.model(x), x.flip(1))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def run(self):
        for step in range(1, self.args.steps + 1):
            loss = self.step()
            self.checkpointer.maybe_save(step, self.model, self.optimizer)
            if dist.get_rank() == 0:
                print(f"{step:4d} {loss.item():.4f}", flush=True)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", default="checkpoints")
    return parser.parse_args()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(parse_args()).run()
    dist.destroy_process_group()
