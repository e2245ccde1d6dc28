"""Callbacks of the training loop."""

import torch.distributed as dist


class Callback:
    def on_epoch_start(self, trainer):
        pass

    def on_epoch_end(self, trainer):
        pass


class ShuffleCallback(Callback):
    """Give the sampler the number of the epoch."""

    def on_epoch_start(self, trainer):
        trainer.loader.sampler.set_epoch(trainer.epoch)


class LogCallback(Callback):
    def on_epoch_start(self, trainer):
        self.seen = []
        trainer.seen = self.seen

    def on_epoch_end(self, trainer):
        order = " ".join(str(i) for i in self.seen)
        print(f"rank {dist.get_rank()} epoch {trainer.epoch} loss {trainer.last_loss:.4f} order {order}")
