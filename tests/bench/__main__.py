"""``make bench``: measure every limit of time and bytes, each against a peer measured in the same run, interleaved.

    python tests/bench            all bars
    python tests/bench NAME…      some of them

Exit code 1 if one is over its limit, 2 for an unknown name. Run it alone: other load on the machine distorts it.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import big_log
import exact_memory
import flight_recorder
import learn_keystrokes
import planner_keystrokes
import review_speed
import run_overhead
import triage_time
from helpers.pseudo_terminal import Terminal
from make_log import make_log
from measurement import Bar, forget_plans

RUNS = 10
WIZARD = [sys.executable, "-m", "ddpwizard"]
INSTALLED = Path(sys.executable).with_name("ddpwizard")
EMPTY_APP = [sys.executable, str(Path(__file__).with_name("empty_app.py"))]
HOME = "What is wrong?"
LOOKING = "inspecting this machine"
LOG_BYTES = 1_000_000
SHORT_BYTES = 5_000
PLANNED = (("llama-3.1-8b", 8), ("llama-3.1-70b", 64), ("deepseek-v3", 256))


def first_paint() -> list[Bar]:
    """From the start of the process to its first frame, against an empty Textual app."""
    ours, empty = interleaved(lambda: painted_s(WIZARD, HOME), lambda: painted_s(EMPTY_APP, "hello"))
    peer = f"{ours * 1000:.0f} ms, an empty Textual app {empty * 1000:.0f} ms"
    return [Bar("first-paint", ours / empty, 1.5, "x", peer)]


def version() -> list[Bar]:
    """``--version``, against an interpreter that does nothing."""
    ours, bare = interleaved(
        lambda: took_s([str(INSTALLED), "--version"]), lambda: took_s([sys.executable, "-c", "pass"])
    )
    peer = f"{ours / bare:.1f} x python -c pass ({bare * 1000:.0f} ms)"
    return [Bar("version", ours * 1000, 150, "ms", peer)]


def diagnose() -> list[Bar]:
    """``diagnose`` on 1 MB of log, the whole process, against ``--version`` of the same."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        log.write_text(make_log(LOG_BYTES))
        command = [str(INSTALLED), "diagnose", "--no-probe", "--json", str(log)]
        ours, bare = interleaved(lambda: took_s(command, expect=1), lambda: took_s([str(INSTALLED), "--version"]))
    return [Bar("diagnose-1MB", ours, 0.5, "s", f"{ours / bare:.1f} x ddpwizard --version")]


def diagnose_short() -> list[Bar]:
    """``diagnose`` on 5 KB of text, the whole process; networkx, torch and textual stay unloaded."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        log.write_text(make_log(SHORT_BYTES))
        command = [str(INSTALLED), "diagnose", "--no-probe", "--json", str(log)]
        ours, bare = interleaved(lambda: took_s(command, expect=1), lambda: took_s([str(INSTALLED), "--version"]))
    return [Bar("diagnose-5KB", ours, 0.3, "s", f"{ours / bare:.1f} x ddpwizard --version")]


def diagnose_big() -> list[Bar]:
    """1 GB of log of 64 ranks: time relative to a plain search for the same literals, and memory."""
    return list(big_log.rows())


def bytes_written() -> list[Bar]:
    """Bytes sent to the terminal at 80 x 24: the first frame, an arrow key, idle, a running probe."""
    with Terminal(EMPTY_APP) as terminal:
        terminal.wait_for("hello")
        terminal.wait_quiet()
        empty = terminal.count_bytes
    with Terminal([*WIZARD, "--allow", "allocates"]) as terminal:
        terminal.wait_for(HOME)
        terminal.wait_quiet()
        frame = terminal.count_bytes
        wait_inspected(terminal)
        keys: list[int] = []
        for key in ("down", "down", "down", "up", "up", "up"):
            before, shown = terminal.count_bytes, terminal.text
            terminal.send(key)
            terminal.wait_until(lambda shown=shown: terminal.text != shown, f"answer to {key}")
            terminal.wait_quiet(0.2)
            keys.append(terminal.count_bytes - before)
        idle = terminal.bytes_during(2.0) / 2.0
        start_probe(terminal)
        running = terminal.bytes_during(3.0) / 3.0
    return [
        Bar("first-frame-bytes", frame, 12_000, "B", f"an empty Textual app {empty} B"),
        Bar("arrow-key-bytes", statistics.median(keys), 1_500, "B"),
        Bar("idle-bytes", idle, 0, "B/s"),
        Bar("running-bytes", running, 600, "B/s"),
    ]


def cancel() -> list[Bar]:
    """Time from ctrl+c during a probe until the screen confirms it."""
    taken: list[float] = []
    for _ in range(3):
        with Terminal([*WIZARD, "--allow", "allocates"]) as terminal:
            terminal.wait_for(HOME)
            wait_inspected(terminal)
            start_probe(terminal)
            began = time.monotonic()
            terminal.send("ctrl+c")
            terminal.wait_for("Cancelled")
            taken.append(time.monotonic() - began)
    return [Bar("cancel", max(taken), 0.5, "s", f"worst of {len(taken)}")]


def demo() -> list[Bar]:
    """From the start of ``triage`` to the named line, on the demo's real job."""
    from ddpwizard.app.watchdog.demo_job import DemoJob

    async def measured() -> float:
        async with DemoJob(sys.executable) as job:
            command = [str(INSTALLED), "triage", "--json", "--pid", str(job.pid)]
            return await asyncio.to_thread(took_s, command, 1, b'"where"')

    return [Bar("triage-to-line", asyncio.run(measured()), 5.0, "s", "the whole process")]


def planned() -> list[Bar]:
    """A plan of all strategies, in the process, nothing looked up: the slowest of three questions. Without torch."""
    from ddpwizard.app.plan import spec
    from ddpwizard.app.plan.model import catalog
    from ddpwizard.app.plan.timing.communication import Links
    from ddpwizard.app.plan.types import TrainingOptions, TrainingSetup
    from helpers.planned import plan_candidates

    def median_ms(name: str, gpus: int) -> float:
        train, nodes = TrainingOptions(seq_len=8192), spec.nodes_for(gpus)
        asked = TrainingSetup(
            model=catalog.MODELS[name], train=train, gpus=gpus, nodes=nodes, gpu="H100", gpu_memory_gib=79.1
        )
        whole, taken = spec.fill_defaults(asked)[0], list[float]()
        for _ in range(RUNS):
            forget_plans()
            began = time.perf_counter()
            plan_candidates(whole, Links(370, 90))
            taken.append(1000 * (time.perf_counter() - began))
        return statistics.median(taken)

    found = {f"{name} on {gpus} GPUs": median_ms(name, gpus) for name, gpus in PLANNED}
    torch = "without torch" if "torch" not in sys.modules else "WITH torch"
    peer = ", ".join(f"{name} {taken:.1f}" for name, taken in found.items())
    return [Bar("plan", max(found.values()), 50, "ms", f"{peer}; {torch}")]


BARS: dict[str, Callable[[], list[Bar]]] = {
    "first-paint": first_paint,
    "version": version,
    "bytes": bytes_written,
    "diagnose": diagnose,
    "diagnose-short": diagnose_short,
    "diagnose-big": diagnose_big,
    "demo": demo,
    "cancel": cancel,
    "plan": planned,
    "plan-keys": lambda: list(planner_keystrokes.rows(WIZARD)),
    "learn-keys": lambda: list(learn_keystrokes.rows(WIZARD)),
    "exact": lambda: list(exact_memory.rows()),
    "triage": lambda: list(triage_time.rows()),
    "recorder": lambda: list(flight_recorder.rows()),
    "review": lambda: list(review_speed.rows()),
    "run": lambda: list(run_overhead.rows()),
}


def interleaved(ours: Callable[[], float], peer: Callable[[], float]) -> tuple[float, float]:
    """Medians of both, measured turn by turn after one turn that does not count (caches)."""
    for warm in (ours, peer):
        warm()
    pairs = [(ours(), peer()) for _ in range(RUNS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def painted_s(command: list[str], text: str) -> float:
    """Seconds from the start of a program to the text on its screen."""
    with Terminal(command) as terminal:
        return terminal.wait_for(text)


def took_s(command: list[str], expect: int = 0, says: bytes = b"") -> float:
    """Return the seconds a command takes; it must end with ``expect`` and print ``says``."""
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    taken = time.monotonic() - began
    if done.returncode != expect or says not in done.stdout:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}, not {expect}:\n{done.stdout.decode()[:500]}"
        )
    return taken


def wait_inspected(terminal: Terminal) -> None:
    """Wait until the start screen has inspected the machine."""
    terminal.wait_until(lambda: LOOKING.encode() in terminal.output, "the inspection of the machine")
    terminal.wait_until(lambda: LOOKING not in terminal.text, "the end of the inspection", 90)
    terminal.wait_quiet()


def start_probe(terminal: Terminal) -> None:
    """Open the questions; the all-reduce test runs at the same time."""
    terminal.send("6")
    terminal.wait_for("all-reduce")
    terminal.wait_quiet(0.2)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BARS]
    if unknown:
        print(f"no bar {', '.join(unknown)}; there are {', '.join(BARS)}", file=sys.stderr)
        return 2
    over = 0
    with tempfile.TemporaryDirectory() as state:
        os.environ |= {
            "XDG_STATE_HOME": f"{state}/state",
            "XDG_CONFIG_HOME": f"{state}/config",
            "XDG_CACHE_HOME": f"{state}/cache",
        }
        for name in names or BARS:
            for bar in BARS[name]():
                print(bar, flush=True)
                over += bar.over
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
