import time

import torch
import torch.distributed as dist


class Callback:
    def on_epoch_start(self, trainer, epoch):
        pass

    def on_epoch_end(self, trainer, epoch, loss):
        pass


class ProgressPrinter(Callback):
    def on_epoch_end(self, trainer, epoch, loss):
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)


class ThroughputMeter(Callback):
    def on_epoch_start(self, trainer, epoch):
        self.start = time.perf_counter()

    def on_epoch_end(self, trainer, epoch, loss):
        seconds = torch.tensor([time.perf_counter() - self.start])
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        self.seconds = seconds.item()


class Checkpoint(Callback):
    def __init__(self, path, every):
        self.path, self.every = path, every

    def on_epoch_end(self, trainer, epoch, loss):
        if (epoch + 1) % self.every:
            return
        if dist.get_rank() == 0:
            torch.save({"model": trainer.model.module.state_dict(), "epoch": epoch}, self.path)
        # nobody goes on before the file is complete
        dist.barrier()
