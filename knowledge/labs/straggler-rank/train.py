"""Train a sequence model on texts of very different length."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LENGTHS = sorted(int(8 * 1.15**number) for number in range(40))
REPEATS = 3


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    each = len(LENGTHS) // world_size
    own = LENGTHS[rank * each : (rank + 1) * each]

    model = DDP(nn.LSTM(32, 64, batch_first=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    busy, started = 0.0, time.perf_counter()
    for step, length in enumerate(own * REPEATS):
        began = time.perf_counter()
        texts = torch.randn(32, length, 32)
        out, _ = model(texts)
        loss = out.square().mean()
        busy += time.perf_counter() - began
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"rank {rank}: step {step}, {busy:.1f} of {time.perf_counter() - started:.1f} s in the forward pass")

    tokens = torch.tensor(float(sum(own)))
    shares = [torch.zeros(()) for _ in range(world_size)]
    dist.all_gather(shares, tokens)
    if rank == 0:
        print(f"the ranks have {sum(shares).item():.0f} of {sum(LENGTHS)} tokens")
        print(f"tokens of the ranks differ by a factor of {max(shares).item() / min(shares).item():.1f}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
