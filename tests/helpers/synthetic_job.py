"""Recorded-like data for verdicts: ranks that stand at given places of a script, as py-spy shows them."""

from collections.abc import Mapping

from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import JobReport, Observation, ProcessSamples, Sample, Verdict
from ddpwizard.app.triage.verdict import judge_job

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
WRAPPER = StackFrame("wrapper", "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83)
BACKWARD = [
    StackFrame("_engine_run_backward", "/venv/lib/python3.11/site-packages/torch/autograd/graph.py", 865),
    StackFrame("backward", "/venv/lib/python3.11/site-packages/torch/autograd/__init__.py", 353),
    StackFrame("backward", "/venv/lib/python3.11/site-packages/torch/_tensor.py", 648),
]
SCRIPT = "/home/ana/run/train.py"


def lines_with(text: str, *needles: str) -> list[int]:
    """The number of the only line that holds each needle."""
    found: list[int] = []
    for needle in needles:
        numbers = [n for n, line in enumerate(text.splitlines(), 1) if needle in line]
        assert len(numbers) == 1, f"{needle!r} is on {len(numbers)} lines"
        found += numbers
    return found


def stack(collective: str | None, *user: tuple[str, int], path: str = SCRIPT) -> list[StackFrame]:
    """Innermost first: the collective's frames, then the user's, which are given outermost first."""
    frames = [StackFrame(function, path, line) for function, line in reversed(user)]
    if collective == "backward":
        return [*BACKWARD, *frames]
    return ([StackFrame(collective, C10D, 3000), WRAPPER] if collective else []) + frames


def sample_at(
    frames: list[StackFrame], at: float, *, state: str = "S", cpu_s: float = 1.0, switches: int = 5, problem: str = ""
) -> Sample:
    """One sample."""
    return Sample(at=at, process_state=state, cpu_s=cpu_s, switches=switches, stack=frames, problem=problem)


def still(frames: list[StackFrame], state: str = "S") -> list[Sample]:
    """Two samples between which nothing moved."""
    return [sample_at(frames, at, state=state) for at in (1000.0, 1001.0)]


def job(world_size: int, present: list[int] | None = None, **environ: str) -> Job:
    """A job of one host; rank ``r`` has the pid ``100 + r``."""
    ranks = range(world_size) if present is None else present
    processes = [
        Process(
            pid=100 + rank,
            rank=rank,
            local_rank=rank,
            command=["python", "-u", SCRIPT],
            cwd="/home/ana/run",
            python="/venv/bin/python",
            environ=environ,
            started_at=900.0,
        )
        for rank in ranks
    ]
    return Job(
        launcher="torchrun",
        launcher_pid=99,
        launcher_command=[],
        world_size=world_size,
        master="localhost:29500",
        host="box",
        processes=processes,
    )


def verdict_of(text: str, *places: list[StackFrame]) -> Verdict:
    """Return the verdict if rank ``r`` waits at ``places[r]`` of a script with that text."""
    return report_of(text, *places).verdict


def report_of(text: str, *places: list[StackFrame]) -> JobReport:
    """Return the report if rank ``r`` waits at ``places[r]`` of a script with that text."""
    samples = {100 + rank: still(frames) for rank, frames in enumerate(places)}
    return judge_job(observation(job(len(places)), samples, {SCRIPT: text}))


def observation(of: Job, samples: Mapping[int, list[Sample]], sources: Mapping[str, str]) -> Observation:
    """The job, its processes' samples (by pid) and the text of its files."""
    seen = [
        ProcessSamples(process=process, host=of.host, samples=samples.get(process.pid, [])) for process in of.processes
    ]
    return Observation(job=of, seen=seen, sources=dict(sources))
