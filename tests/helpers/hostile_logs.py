"""Texts that nobody wants: put together from pieces of real logs, cut, mixed and repeated."""

import random

MOST_S_PER_MB = 4.0

MARKS = (
    b"[rank3]: ",
    b"[rank12]:",
    b"[default0]:",
    b"[default1]:[rank9]: ",
    b"[rank99999999]: ",
    b"3: ",
    b" 12: ",
    b"worker-1: ",
    b"[pod/job-0/main] ",
    b"web-1  | ",
    b"node-1:4711:4712 [0] NCCL INFO ",
    b"[1,3]<stderr>:",
    b"(RayTrainWorker pid=1, ip=10.0.0.1) ",
    b"[E1120 10:00:00.123456789 ProcessGroupNCCL.cpp:616] ",
    b"[PG ID 0 PG GUID 0(default_pg) Rank 3] ",
    b"2026-11-20 10:00:00,123 ",
    b"9999-99-99 99:99:99 ",
    b"[2026-11-20 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] ",
)
LINES = (
    b"Traceback (most recent call last):\n",
    b"Original Traceback (most recent call last):\n",
    b"During handling of the above exception, another exception occurred:\n",
    b'  File "/home/me/train.py", line 30, in main\n    step()\n',
    b'  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 9, in barrier\n',
    b"ValueError: bad\n",
    b"RuntimeError: Connection closed by peer [10.0.0.1]:1234\n",
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1..2 GiB\n",
    b"Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1)\n",
    b"Root Cause (first observed failure):\n[0]:\n  time      : x\n  host      : n\n  rank      : 1 (local_rank: 1)\n",
    b"  exitcode  : -9 (pid: 1)\n",
    b"[default] Worker group FAILED. 3/3 attempts left; will restart worker group\n",
    b"restart_count=7\n",
    b"restart_count=99999999999999999999\n",
    b"Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n",
    b"comm 0x1 rank 3 nranks 8 cudaDev 3\n",
    b"NCCL version 2.21.5+cuda12.4\n",
    b"srun: error: n1: task 3: Killed\n",
    b"epoch 1 step 99999999999\n",
    b" 50%|####      | 1/2 [00:01<00:01, 1.0it/s]\r",
    b"Setting OMP_NUM_THREADS environment variable for each process\n",
)
NOISE = (
    *(b"\n", b"\r", b"\r\n", b"\x1b[31m", b"\x1b[", b"\x1b]0;t\x07"),
    *(b"\0", b"\xff\xfe", b" ", b"\t", b"x", "é│".encode()),
)
ALL_PIECES = (*MARKS, *LINES, *NOISE)
EXTREMES = (
    *(b"a", b"[rank1]: ", b"\x1b[", b"\r", b"(", b"1", b"\xc3", b": ", b"0: a\n"),
    b"Traceback (most recent call last)",
)


def put_together(random_: random.Random, most_bytes: int) -> bytes:
    """A text of at most ``most_bytes``."""
    if random_.random() < 0.15:
        piece = random_.choice(EXTREMES)
        return (piece * (most_bytes // len(piece) + 1))[:most_bytes]
    few = random_.sample(ALL_PIECES, random_.randint(1, len(ALL_PIECES)))
    text = b"".join(random_.choice(few) for _ in range(random_.randint(1, 200)))
    if random_.random() < 0.5:
        lines = [random_.choice(MARKS) + line for line in text.split(b"\n")]
        random_.shuffle(lines)
        text = b"\n".join(lines)
    for _ in range(random_.randint(0, 4)):
        at = random_.randrange(len(text) + 1)
        text = text[:at] + random_.choice((b"", b"\n", bytes([random_.randrange(256)]))) + text[at + 1 :]
    text = text or b"x"
    return (text * (most_bytes // len(text) + 1))[:most_bytes] if random_.random() < 0.5 else text[:most_bytes]
