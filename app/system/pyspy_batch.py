"""Run py-spy on many processes, several at a time, from one child process.

Run as a script by ``app/triage/stacks.py`` (standard library only)::

    python -IS pyspy_batch.py AT_ONCE LIMIT_S PROGRAM OPTION… -- PID…

Each answer goes to DDPWIZARD_ANSWER_FD as soon as it is complete, as one JSON line: {pid, out, error, timed_out}.
"""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

TRIES = 3  # a running process changes while it is read: some reads are inconsistent
REFUSED = (b"ermission denied", b"not permitted")


def dump_process(command: "list[str]", pid: str, limit_s: float) -> "dict[str, object]":
    """Return py-spy's output for one process; repeat if the read was inconsistent."""
    until = time.monotonic() + limit_s
    out = error = b""
    for _ in range(TRIES):
        try:
            done = subprocess.run(
                [*command, "--pid", pid],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=max(until - time.monotonic(), 0.1),
            )
        except subprocess.TimeoutExpired:
            return {"pid": int(pid), "out": "", "error": "", "timed_out": True}
        except OSError as failure:
            return {"pid": int(pid), "out": "", "error": f"Error: {failure}", "timed_out": False}
        out, error = done.stdout, done.stderr
        if done.returncode == 0 or any(word in error for word in REFUSED):
            break
    text = [part.decode(errors="replace") for part in (out, error)]
    return {"pid": int(pid), "out": text[0], "error": text[1], "timed_out": False}


def main() -> None:
    at_once, limit_s = int(sys.argv[1]), float(sys.argv[2])
    end = sys.argv.index("--", 3)
    command, left = sys.argv[3:end], sys.argv[:end:-1]
    lock = threading.Lock()
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "w") as answer:

        def work() -> None:
            with suppress(IndexError):
                while True:
                    line = json.dumps(dump_process(command, left.pop(), limit_s)) + "\n"
                    with lock:
                        answer.write(line)
                        answer.flush()

        workers = [threading.Thread(target=work) for _ in range(min(at_once, len(left)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
