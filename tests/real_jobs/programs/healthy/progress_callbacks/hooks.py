"""Hooks of the trainer."""

import torch.distributed as dist


class ProgressHook:
    def __init__(self, every):
        self.every = every

    def after_step(self, trainer):
        if trainer.step % self.every:
            return
        mean = trainer.mean_loss.compute()
        if dist.get_rank() == 0:
            print(f"step {trainer.step} loss {mean:.4f}", flush=True)
        trainer.mean_loss.reset()


class SaveHook:
    def __init__(self, path):
        self.path = path

    def after_step(self, trainer):
        if trainer.step == trainer.steps and dist.get_rank() == 0:
            trainer.save(self.path)
