"""``plan --exact`` of a Llama of 7 B parameters for 8 GPUs: the whole command, and the memory of what tracks."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measurement import Bar

HELPERS = Path(__file__).parents[1] / "helpers"


def rows() -> Iterator[Bar]:
    """The time of the command, and the most memory of a child of it."""
    command = [sys.executable, "-m", "ddpwizard", "plan", "--model", "llama:seven_billion", "--exact", "--json"]
    command += ["--gpus", "8", "--gpu", "H100", "--seq-len", "4096", "--python", sys.executable]
    began = time.monotonic()
    done = subprocess.run(command, cwd=HELPERS, stdout=subprocess.PIPE, check=True)
    took_s = time.monotonic() - began
    tracked = json.loads(done.stdout)["exact"]
    if any(each["problem"] for each in tracked):
        raise SystemExit(f"not tracked: {[each['problem'] for each in tracked]}")
    seconds = ", ".join(f"{each['strategy']} {each['tracker_seconds']:.0f} s" for each in tracked)
    yield Bar("exact-7B", took_s, 90, "s", f"the whole process: {seconds}")
    yield Bar("exact-7B-memory", max(each["tracker_memory_bytes"] for each in tracked) / 1e9, 8, "GB")
