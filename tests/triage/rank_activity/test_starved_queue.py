"""A rank that waits on a queue whose producer threads have ended."""

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import ThreadStack
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still

LIB = "/usr/lib/python3.11"
GET = [StackFrame("wait", f"{LIB}/threading.py", 327), StackFrame("get", f"{LIB}/queue.py", 171)]
METHOD = """
class Reader:
    def __init__(self):
        self.inbox = queue.Queue()
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self):
        while True:
            self.inbox.put(self.read())

    def __next__(self):
        return self.inbox.get()

def main():
    for item in Reader():
        dist.all_reduce(item)
"""
DERIVED = """
class Reader(threading.Thread):
    def run(self):
        for item in source:
            self.offer(item)

    def offer(self, item):
        inbox.put_nowait(item)

def main():
    Reader().start()
    while True:
        item = inbox.get()
        dist.all_reduce(item)
"""
SUBMITTED = """
def pump(box):
    for item in source:
        box.put(item)

def main():
    executor.submit(pump, inbox)
    while True:
        item = inbox.get()
        dist.all_reduce(item)
"""
PROCESS = """
def pump(box):
    for item in source:
        box.put(item)

def main():
    multiprocessing.Process(target=pump, args=(inbox,)).start()
    while True:
        item = inbox.get()
        dist.all_reduce(item)
"""


def queue_verdict(text: str, threads: list[ThreadStack], output: list[str]) -> tuple[str | None, str, str | None]:
    """Return the cause, text and line of the verdict if rank 1 waits for an item."""
    (gets,) = lines_with(text, "inbox.get()")
    (reduces,) = lines_with(text, "dist.all_reduce")
    inner = [("__next__", gets)] if "__next__" in text else []
    places = ("main", lines_with(text, "for item in Reader()")[0]) if inner else ("main", gets)
    waits = [msgspec.structs.replace(sample, others=threads) for sample in still([*GET, *stack(None, places, *inner)])]
    peers = still(stack("all_reduce", ("main", reduces)))
    seen = observation(job(2), {100: peers, 101: waits}, {SCRIPT: text})
    processes = [msgspec.structs.replace(s, output=output if s.process.rank == 1 else []) for s in seen.seen]
    verdict = judge_job(msgspec.structs.replace(seen, seen=processes)).verdict
    return verdict.cause, verdict.why, verdict.where


@pytest.mark.parametrize(
    ("text", "name"), [(METHOD, "fill"), (DERIVED, "run"), (SUBMITTED, "pump")], ids=["method", "derived", "submitted"]
)
def test_ended_producer_thread_is_named(text: str, name: str) -> None:
    cause, why, where = queue_verdict(text, [], [])
    (begins,) = lines_with(text, f"def {name}(")
    (gets,) = lines_with(text, "inbox.get()")
    assert cause == "python-lock"
    assert f"no running thread fills: {name} (train.py:{begins}), which puts into it, has ended" in why
    assert where == f"{SCRIPT}:{gets}"


@pytest.mark.parametrize(
    ("text", "name", "cause"), [(METHOD, "fill", "dataloader-stall"), (SUBMITTED, "pump", "python-lock")]
)
def test_living_producer_thread_is_no_starved_queue(text: str, name: str, cause: str) -> None:
    cause_found, why, _ = queue_verdict(text, [ThreadStack("reader", [StackFrame(f"Reader.{name}", SCRIPT, 8)])], [])
    assert cause_found == cause
    assert "no running thread" not in why


def test_error_of_the_ended_producer_is_reported() -> None:
    printed = ["step 3", "Exception in thread reader:", "Traceback (most recent call last):", '  File "x", line 1']
    _, why, _ = queue_verdict(METHOD, [], [*printed, "OSError: stale file handle", "step 4"])
    assert "has ended (OSError: stale file handle)" in why


def test_function_run_by_a_process_is_no_producer_thread() -> None:
    assert "no running thread" not in queue_verdict(PROCESS, [], [])[1]
