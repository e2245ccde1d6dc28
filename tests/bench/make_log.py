"""A log as a job of eight ranks under torchrun leaves it: steps, NCCL's chatter, warnings, and one error at the end."""

import random

ERROR = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/home/me/train.py", line 214, in main\n'
    "[rank{rank}]:     loss = model(batch)\n"
    "[rank{rank}]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
    "This error indicates that your module has parameters that were not used in producing loss.\n"
)
CHATTER = (
    "node-07:{pid}:{pid} [{rank}] NCCL INFO Channel {n:02d}/24 : {rank}[{rank}] -> {peer}[{peer}] via P2P/CUMEM",
    "node-07:{pid}:{pid} [{rank}] NCCL INFO Trees [0] {peer}/-1/-1->{rank}->-1 [1] {peer}/-1/-1->{rank}->-1",
    "[rank{rank}]: /opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py:617: UserWarning: slow",
    "[rank{rank}]: gradient norm {loss:.4f}, learning rate {rate:.2e}, tokens per second {n}512",
)


def make_log(size_bytes: int, seed: int = 7) -> str:
    """About ``size_bytes`` of ASCII; the same for the same seed."""
    random_ = random.Random(seed)
    lines = ["W1120 10:00:00.000000 4711 torch/distributed/run.py:774] Setting OMP_NUM_THREADS to 1"]
    length, step = 0, 0
    while length < size_bytes:
        rank = random_.randrange(8)
        step += rank == 0
        fields = {"rank": rank, "peer": (rank + 1) % 8, "pid": 4712 + rank, "n": random_.randrange(24)}
        fields |= {"loss": random_.random() * 4, "rate": 3e-4 * random_.random()}
        if random_.random() < 0.3:
            line = random_.choice(CHATTER).format(**fields)
        else:
            clock = f"10:{step // 60 % 60:02d}:{step % 60:02d}"
            line = f"[rank{rank}]: 2026-11-20 {clock} step {step} loss {fields['loss']:.4f}"
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines) + "\n" + "".join(ERROR.format(rank=rank) for rank in range(8))
