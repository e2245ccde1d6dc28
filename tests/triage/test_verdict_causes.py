"""Each cause that a verdict can name, from plain data; the diagnosis must rank it first."""

from collections.abc import Callable

import msgspec
import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.launchers.arguments import LaunchRequest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.triage import evidence_of_report
from ddpwizard.app.triage.types import Child, JobReport, ProcessDeath, Sample, ThreadStack
from ddpwizard.app.triage.verdict import judge_job
from helpers.built_in_knowledge import built_in_knowledge
from helpers.synthetic_job import SCRIPT, job, observation, report_of, sample_at, stack, still

SITE = "/venv/lib/python3.11/site-packages"
STDLIB = "/usr/lib/python3.11"
QUEUE = [StackFrame("wait", f"{STDLIB}/threading.py", 327), StackFrame("get", f"{STDLIB}/queue.py", 171)]
LOADER = [
    *QUEUE,
    StackFrame("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1275),
    StackFrame("__next__", f"{SITE}/torch/utils/data/dataloader.py", 741),
]
SOCKET = [
    StackFrame("readinto", f"{STDLIB}/socket.py", 706),
    StackFrame("getresponse", f"{STDLIB}/http/client.py", 1378),
]
PDB = [StackFrame("cmdloop", f"{STDLIB}/cmd.py", 126), StackFrame("interaction", f"{STDLIB}/pdb.py", 363)]


def at(line: int, *inner: StackFrame) -> list[StackFrame]:
    """Return the stack of a rank at a line of ``main``, with the frames it has called."""
    return [*inner, *stack(None, ("<module>", 99), ("main", line))]


def barrier(line: int) -> list[StackFrame]:
    return stack("barrier", ("<module>", 99), ("main", line))


def script(*lines: str) -> str:
    return "def main():\n" + "".join(f"    {line}\n" for line in lines)


def one_outside(line: str, *inner: StackFrame) -> JobReport:
    """Rank 1 of three is blocked at that line, the others wait in a barrier after it."""
    return report_of(script(line, "dist.barrier()"), barrier(3), at(2, *inner), barrier(3))


def conditional() -> JobReport:
    text = script("if rank == 1:", "    dist.all_reduce(x)", "dist.barrier()")
    entered = stack("all_reduce", ("<module>", 99), ("main", 3))
    return report_of(text, barrier(4), entered, barrier(4))


def uneven() -> JobReport:
    text = script("for batch in loader:", "    loss(batch).backward()", "dist.barrier()")
    inside = stack("backward", ("<module>", 99), ("main", 3))
    return report_of(text, inside, barrier(4), inside)


def in_another_order() -> JobReport:
    text = script(
        "if rank == 1:",
        "    dist.barrier()",
        "    dist.all_reduce(x)",
        "else:",
        "    dist.all_reduce(x)",
        "    dist.barrier()",
    )
    reduce = stack("all_reduce", ("<module>", 99), ("main", 6))
    return report_of(text, reduce, barrier(3), reduce)


def desync() -> JobReport:
    text = script("dist.all_reduce(x)", "dist.barrier()")
    return report_of(text, barrier(3), stack("all_reduce", ("<module>", 99), ("main", 2)), barrier(3))


def error_caught() -> JobReport:
    text = script(
        "for batch in loader:",
        "    try:",
        "        dist.all_reduce(x)",
        "    except ValueError:",
        "        pass",
        "    dist.barrier()",
    )
    reduce = stack("all_reduce", ("<module>", 99), ("main", 4))
    return report_of(text, reduce, barrier(7), reduce)


def groups_in_another_order() -> JobReport:
    text = script(
        "a, b, c = dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([2, 0])",
        "first, second = [(a, c), (b, a), (c, b)][rank]",
        "mine = [a, b, c]",
        "dist.all_reduce(x, group=mine[rank])",
    )
    return report_of(text, *[stack("all_reduce", ("<module>", 99), ("main", 5))] * 3)


def receives_in_a_ring() -> JobReport:
    text = script("dist.recv(x, src=(rank - 1) % world_size)", "dist.send(x, dst=(rank + 1) % world_size)")
    return report_of(text, *[stack("recv", ("<module>", 99), ("main", 2))] * 3)


def stopped() -> JobReport:
    samples = {100: still(barrier(3)), 101: still(at(2), "T")}
    return judge_job(observation(job(2), samples, {SCRIPT: script("step()", "dist.barrier()")}))


def died(*deaths: ProcessDeath) -> JobReport:
    ended = [sample_at(barrier(3), 1000.0), Sample(at=1001.0, process_state="", cpu_s=0, switches=0)]
    seen = observation(job(2), {100: still(barrier(3)), 101: ended}, {SCRIPT: script("step()", "dist.barrier()")})
    return judge_job(msgspec.structs.replace(seen, deaths=list(deaths)))


def own_pipeline() -> JobReport:
    text = "def read():\n    while True:\n        yield inbox.get()\n" + script(
        "for batch in read():", "    loss(batch)", "    dist.all_reduce(x)"
    )
    reading = [*QUEUE, *stack(None, ("<module>", 99), ("main", 5), ("read", 3))]
    reduce = stack("all_reduce", ("<module>", 99), ("main", 7))
    return report_of(text, reduce, reading, reduce)


def without_data(launcher: str = "torchrun") -> JobReport:
    text = script("mine = shards(rank)", "if not mine:", "    sys.exit(0)", "dist.new_group()")
    wait = still(stack("new_group", ("<module>", 99), ("main", 5)))
    left = msgspec.structs.replace(job(3, [0, 2]), launcher=launcher)
    return judge_job(observation(left, {100: wait, 102: wait}, {SCRIPT: text}))


def killed_for_memory() -> JobReport:
    return died(ProcessDeath(pid=101, rank=1, how="oom_killer", what="Killed process 101 (python)", where="kernel log"))


def missing_at_init() -> JobReport:
    wait = stack("init_process_group", ("<module>", 99), ("main", 2))
    return judge_job(observation(job(3, [0, 1]), {100: still(wait), 101: still(wait)}, {}))


def rendezvous() -> JobReport:
    asked = LaunchRequest(least_nodes=2, most_nodes=2)
    launcher = msgspec.structs.replace(job(2, []), asked=asked)
    return judge_job(observation(launcher, {}, {}))


def hangs_at_exit() -> JobReport:
    shutdown = [StackFrame("_shutdown", f"{STDLIB}/threading.py", 1590)]
    thread = ThreadStack("pump", [*QUEUE, *stack(None, ("pump", 2))])
    samples = [msgspec.structs.replace(sample, others=[thread]) for sample in still(shutdown)]
    return judge_job(observation(job(2, [1]), {101: samples}, {SCRIPT: script("inbox.get()")}))


def rank0_at_work() -> JobReport:
    text = script("if rank == 0:", "    tokenize()", "dist.barrier()")
    working = [sample_at(at(3), 1000.0), sample_at(at(3), 1001.0, cpu_s=2.0)]
    return judge_job(
        observation(job(3), {100: working, 101: still(barrier(4)), 102: still(barrier(4))}, {SCRIPT: text})
    )


def straggling() -> JobReport:
    text = script("while True:", "    step()", "    dist.all_reduce(x)")
    reduce = stack("all_reduce", ("<module>", 99), ("main", 4))
    waits = [sample_at(reduce, t, cpu_s=t / 1000, switches=int(t)) for t in (1000.0, 1001.0)]
    works = [sample_at(at(3), t, cpu_s=t / 1.1, switches=int(t)) for t in (1000.0, 1001.0)]
    return judge_job(observation(job(3), {100: waits, 101: waits, 102: works}, {SCRIPT: text}))


CASES: dict[str, tuple[Callable[[], JobReport], str, list[int]]] = {
    "condition": (conditional, "rank-conditional-collective", [1]),
    "uneven": (uneven, "uneven-inputs", [1]),
    "desync": (desync, "collective-desync", [1]),
    "another-order": (in_another_order, "collective-desync", [1]),
    "error-caught": (error_caught, "collective-desync", [1]),
    "groups": (groups_in_another_order, "group-order-cycle", [0, 1, 2]),
    "pairs": (receives_in_a_ring, "p2p-deadlock", [0, 1, 2]),
    "loader": (lambda: one_outside("for batch in loader:", *LOADER), "dataloader-stall", [1]),
    "debugger": (lambda: one_outside("breakpoint()", *PDB), "rank-paused", [1]),
    "input": (lambda: one_outside("name = input('run? ')"), "rank-paused", [1]),
    "stopped": (stopped, "rank-paused", [1]),
    "queue": (lambda: one_outside("item = inbox.get()", *QUEUE), "python-lock", [1]),
    "lock": (lambda: one_outside("with self._lock:"), "python-lock", [1]),
    "acquire": (lambda: one_outside("gate.acquire()"), "python-lock", [1]),
    "http": (lambda: one_outside("log(step)", *SOCKET), "external-service-block", [1]),
    "socket": (lambda: one_outside("answer = conn.recv(64)"), "external-service-block", [1]),
    "own-pipeline": (own_pipeline, "dataloader-stall", [1]),
    "without-data": (without_data, "uneven-inputs", [1]),
    "died": (died, "rank-died-survivors-wait", [1]),
    "oom-killer": (killed_for_memory, "rank-died-survivors-wait", [1]),
    "init": (missing_at_init, "ranks-missing-at-init", [2]),
    "rendezvous": (rendezvous, "ranks-missing-at-init", []),
    "exit": (hangs_at_exit, "exit-hang", [1]),
    "rank0": (rank0_at_work, "rank0-slow-work", [0]),
    "straggler": (straggling, "straggler-rank", [2]),
}


def first_cause(report: JobReport) -> str:
    case = Case(built_in_knowledge())
    case.add(evidence_of_report(report, case.knowledge.findings()))
    return case.diagnosis().causes[0].id


@pytest.mark.parametrize("name", CASES)
def test_cause_is_found_and_ranked_first(name: str) -> None:
    make, cause, culprits = CASES[name]
    report = make()
    verdict = report.verdict
    assert (verdict.cause, verdict.culprits) == (cause, culprits), verdict
    assert verdict.state == ("progressing" if name in ("rank0", "straggler") else "hung")
    assert first_cause(report) == cause


@pytest.mark.parametrize("name", CASES)
def test_every_finding_is_declared(name: str) -> None:
    assert set(CASES[name][0]().verdict.findings) <= set(built_in_knowledge().findings())


@pytest.mark.parametrize("name", ["pairs", "groups"])
def test_confidence_of_a_tie_is_below_one_half(name: str) -> None:
    assert CASES[name][0]().verdict.confidence < 0.5


def test_line_and_condition_of_a_rank_outside_the_collective() -> None:
    text = script("if rank == 1:", "    lock.acquire()", "dist.barrier()")
    verdict = report_of(text, barrier(4), at(3), barrier(4)).verdict
    assert (verdict.cause, verdict.where, verdict.branch) == ("python-lock", f"{SCRIPT}:3", f"{SCRIPT}:2")


def test_one_process_in_a_collective_waits_for_ranks_that_were_not_found() -> None:
    verdict = report_of(script("dist.new_group()"), stack("new_group", ("<module>", 99), ("main", 2))).verdict
    assert (verdict.state, verdict.cause, verdict.findings) == ("hung", None, [])
    assert verdict.confidence < 0.5


def test_download_by_a_command_is_a_wait_for_another_machine() -> None:
    run = [StackFrame("communicate", f"{STDLIB}/subprocess.py", 1209)]
    text = script("fetch()", "dist.barrier()")
    seen = observation(job(2), {100: still(barrier(3)), 101: still(at(2, *run))}, {SCRIPT: text})
    child = Child(pid=9, command=["/usr/bin/curl", "https://example.org"], kind="other", process_state="S", moved=False)
    with_child = [msgspec.structs.replace(s, children=[child] if s.process.rank == 1 else []) for s in seen.seen]
    verdict = judge_job(msgspec.structs.replace(seen, seen=with_child)).verdict
    assert (verdict.cause, verdict.culprits) == ("external-service-block", [1])


def test_rank_that_left_under_a_rank_condition_is_named_with_it() -> None:
    text = script("if rank == 1:", "    return", "dist.new_group()")
    wait = stack("new_group", ("<module>", 99), ("main", 4))
    ended = [sample_at(wait, 1000.0), Sample(at=1001.0, process_state="", cpu_s=0, switches=0)]
    report = judge_job(observation(job(3), {100: still(wait), 101: ended, 102: still(wait)}, {SCRIPT: text}))
    assert (report.verdict.cause, report.verdict.branch) == ("rank-conditional-collective", f"{SCRIPT}:2")
    crash = text.replace("return", "raise ValueError")
    report = judge_job(observation(job(3), {100: still(wait), 101: ended, 102: still(wait)}, {SCRIPT: crash}))
    assert (report.verdict.cause, report.verdict.branch) == ("rank-died-survivors-wait", f"{SCRIPT}:2")


def test_confidence_of_a_dead_rank_is_high_only_if_its_death_is_known() -> None:
    killed = ProcessDeath(pid=101, rank=1, how="signal", what="SIGKILL", where="/proc/101/stat")
    assert died().verdict.confidence == 0.75
    assert died(killed).verdict.confidence == 0.95


def test_place_of_survivors_outside_collectives_is_reported() -> None:
    text = script("store.wait(keys)")
    ended = [sample_at(at(2), 1000.0), Sample(at=1001.0, process_state="", cpu_s=0, switches=0)]
    seen = observation(job(2), {100: still(at(2)), 101: ended}, {SCRIPT: text})
    killed = ProcessDeath(pid=101, rank=1, how="signal", what="SIGKILL", where="/proc/101/stat")
    found = judge_job(msgspec.structs.replace(seen, deaths=[killed])).verdict
    assert (found.cause, found.culprits) == ("rank-died-survivors-wait", [1])
    assert found.why.endswith("Rank 0 is blocked at train.py:2, waiting for a key that another rank must set.")


def test_rank_that_ended_without_an_error_is_only_known_under_torchrun() -> None:
    assert without_data().verdict.branch == f"{SCRIPT}:3"
    by_hand = without_data("python").verdict
    assert (by_hand.cause, by_hand.confidence) == ("rank-died-survivors-wait", 0.75)


def test_rank_that_exits_after_an_error_counts_as_dead() -> None:
    shutdown = still([StackFrame("_shutdown", f"{STDLIB}/threading.py", 1590)])
    seen = observation(job(2), {100: still(barrier(3)), 101: shutdown}, {SCRIPT: script("step()", "dist.barrier()")})
    output = ["Traceback (most recent call last):", "ValueError: bad record"]
    failed = [msgspec.structs.replace(s, output=output if s.process.rank == 1 else []) for s in seen.seen]
    verdict = judge_job(msgspec.structs.replace(seen, seen=failed)).verdict
    assert (verdict.cause, verdict.culprits) == ("rank-died-survivors-wait", [1])
    assert verdict.why.startswith("Rank 1 is exiting after an error, but it waits for its other threads to end. Rank 0")


@pytest.mark.parametrize(
    ("loop", "cause"),
    [
        ("for step in range(20):", "rank-died-survivors-wait"),
        ("for batch in loader:", "uneven-inputs"),
        ("for step in range(len(data)):", "uneven-inputs"),
        ("for step in range(20 + rank):", "uneven-inputs"),
    ],
)
def test_rank_that_exits_out_of_a_loop_that_is_as_long_on_every_rank_has_failed(loop: str, cause: str) -> None:
    reduce = still(stack("all_reduce", ("<module>", 99), ("main", 3)))
    shutdown = still([StackFrame("_shutdown", f"{STDLIB}/threading.py", 1590)])
    text = script(loop, "    dist.all_reduce(x)")
    verdict = judge_job(observation(job(3), {100: reduce, 101: shutdown, 102: reduce}, {SCRIPT: text})).verdict
    assert (verdict.cause, verdict.culprits) == (cause, [1])


def test_each_finding_has_its_own_text() -> None:
    found = {item.id: item for item in evidence_of_report(in_another_order(), built_in_knowledge().findings())}
    assert found["job.collectives-in-another-order"].where == f"{SCRIPT}:2"
    assert found["job.ranks-in-different-collectives"].what != found["job.collectives-in-another-order"].what
    oom = {item.id: item.what for item in evidence_of_report(killed_for_memory(), built_in_knowledge().findings())}
    assert "memory" in oom["job.killed-for-memory"]


def test_a_job_that_has_no_gpu_open_is_not_one_of_a_gpu() -> None:
    agree = report_of(script("dist.barrier()"), barrier(2), barrier(2))
    answer = "answer:gpu-use=no-gpu"
    assert answer in {item.id for item in evidence_of_report(agree, built_in_knowledge().findings())}
    assert "GPU" not in agree.verdict.why
    seen = [
        msgspec.structs.replace(
            one, samples=[msgspec.structs.replace(sample, gpu=one.process.rank == 0) for sample in one.samples]
        )
        for one in agree.observed.seen
    ]
    on_gpu = judge_job(msgspec.structs.replace(agree.observed, seen=seen))
    assert answer not in {item.id for item in evidence_of_report(on_gpu, built_in_knowledge().findings())}
    assert "GPU" in on_gpu.verdict.why
