"""Checks texts with a pattern, and counts the time in a thread."""

import re
import sys
import threading
import time

import torch
import torch.distributed as dist

WORDS = re.compile(r"(\w+\s?)+$")


def clock():
    while True:
        time.sleep(0.2)


def check(text):
    return WORDS.match(text) is not None  # HANG


def main():
    dist.init_process_group("gloo")
    if "clock" in sys.argv:
        threading.Thread(target=clock, name="clock", daemon=True).start()
    print("checking", flush=True)
    good = check("a fine text") if dist.get_rank() != 1 else check("a" * 60 + "!")
    total = torch.tensor([float(good)])
    dist.all_reduce(total)  # PEERS


main()
