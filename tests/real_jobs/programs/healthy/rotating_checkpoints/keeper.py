"""Checkpoints of the last steps."""

from pathlib import Path

import torch
import torch.distributed as dist


class CheckpointKeeper:
    """Write a checkpoint when asked and keep only the newest."""

    def __init__(self, folder, keep=2):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.keep = keep
        self.saved = []

    def save(self, step, model):
        path = self.folder / f"step{step:06d}.pt"
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)
        self.saved.append(path)
        self.prune()
        dist.barrier()
        return path

    def prune(self):
        while len(self.saved) > self.keep:
            oldest = self.saved.pop(0)
            if dist.get_rank() == 0:
                oldest.unlink()
