"""Fixes from what a live job shows: its stacks, its condition, the workers of its loaders."""

import socket
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import CaseFacts, FixContext
from ddpwizard.app.fixes.types import Fix
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import Child, JobReport, Observation, ProcessSamples, Sample, Verdict
from helpers.built_in_knowledge import built_in_knowledge
from helpers.synthetic_job import report_of, stack
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()

EARLY_STOP = """\
import torch
import torch.distributed as dist

def fit(model, rank):
    dist.init_process_group("{backend}")
    for epoch in range(9):
        loss = model(epoch)
        if {test}:
            break
    dist.barrier()
"""
RING = """\
import torch.distributed as dist

def rotate(block, incoming, rank, world):
    dist.recv(incoming, src=(rank - 1) % world)
    dist.send(block, dst=(rank + 1) % world)
    return incoming
"""
HISTORY = """\
import threading

class History:
    def __init__(self):
        self._lock = threading.Lock()

    def add(self, row):
        with self._lock:
            self.flush()

    def flush(self):
        with self._lock:
            print("rows")
"""
DATA = """\
from torch.utils.data import DataLoader

class Folder:
    def __getitem__(self, index):
        return self.files[index].read_bytes()

def main(folder):
    for batch in DataLoader(folder, num_workers=2):
        print(batch)
"""
WORKER = "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py"


def report(
    path: Path,
    text: str,
    cause: str,
    stack: list[tuple[str, int]],
    *,
    branch: int = 0,
    children: list[Child] | None = None,
) -> JobReport:
    """A job whose rank 0 is at ``stack`` (function and line, innermost first) of a file with this text."""
    path.write_text(text)
    frames = [StackFrame(function, str(path), line) for function, line in stack]
    process = Process(
        pid=41, rank=0, local_rank=0, command=["python", str(path)], cwd=str(path.parent), python="python", environ={}
    )
    job = Job(
        launcher="torchrun",
        launcher_pid=40,
        launcher_command=["/venv/bin/python", "/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"],
        world_size=2,
        master="127.0.0.1:29511",
        host="here",
        processes=[process],
    )
    sample = Sample(at=0.0, process_state="S", cpu_s=0.0, switches=0, stack=frames)
    seen = ProcessSamples(process=process, host="here", samples=[sample], children=children or [])
    verdict = Verdict(
        state="hung",
        cause=cause,
        culprits=[0],
        collective=None,
        where=f"{path}:{stack[0][1]}",
        branch=f"{path}:{branch}" if branch else None,
        why="",
        confidence=0.9,
        findings=[],
    )
    observed = Observation(job=job, seen=[seen], sources={str(path): text})
    return JobReport(launcher="torchrun", world_size=2, nodes=["here"], ranks=[], verdict=verdict, observed=observed)


def first(found: JobReport) -> Fix:
    """The first fix of the cause that was found."""
    assert found.verdict.cause
    return build_fixes(KNOWLEDGE.causes[found.verdict.cause], FixContext(report=found), KNOWLEDGE)[0]


def added(fix: Fix) -> list[str]:
    """The lines that the patch of a fix adds; what it makes is valid Python."""
    (patch,) = fix.patches
    compile(patch.after, "train.py", "exec")
    return [line[1:] for line in fix.diff().splitlines() if line.startswith("+") and not line.startswith("+++")]


class TestMoveOut:
    """A condition that can do without the rank."""

    def fix(self, tmp_path: Path, body: str, branch: int, line: int) -> Fix:
        text = f"import torch.distributed as dist\n\ndef main(rank, part):\n    for step in range(9):\n{body}"
        found = report(tmp_path / "train.py", text, "rank-conditional-collective", [("main", line)], branch=branch)
        found = replace(found, verdict=replace(found.verdict, collective="all_reduce"))
        fixes = build_fixes(KNOWLEDGE.causes["rank-conditional-collective"], FixContext(report=found), KNOWLEDGE)
        return next(fix for fix in fixes if fix.id == "move-out")

    def test_a_condition_in_the_statement_is_left_out(self, tmp_path: Path):
        fix = self.fix(tmp_path, "        _ = rank == 0 and dist.all_reduce(part)\n", 5, 5)
        assert "Call `all_reduce` of line 5" in fix.text
        assert "without the condition `rank == 0`" in fix.text
        assert fix.code == "dist.all_reduce(part)    # every rank"

    def test_one_term_of_a_condition_that_leads_past_the_line_is_taken_out(self, tmp_path: Path):
        body = "        if step % 3 or rank > 0:\n            continue\n        dist.all_reduce(part)\n"
        fix = self.fix(tmp_path, body, 5, 7)
        assert "Take `rank > 0` out of the condition of line 5" in fix.text
        assert fix.code.splitlines()[0] == "if step % 3:"


class TestAgreeOnExit:
    @pytest.mark.parametrize(
        ("backend", "test", "value"),
        [
            ("gloo", "loss < 0.1", "float(loss < 0.1)"),
            ("nccl", "bad(loss)", 'float(bool(bad(loss))), device="cuda"'),
            (
                'nccl" if torch.cuda.is_available() else "gloo',
                "loss < 0.1",
                'float(loss < 0.1), device="cuda" if dist.get_backend() == "nccl" else "cpu"',
            ),
        ],
        ids=["gloo", "nccl", "either"],
    )
    def test_the_ranks_decide_together(self, tmp_path: Path, backend: str, test: str, value: str):
        text = EARLY_STOP.format(backend=backend, test=test)
        fix = first(report(tmp_path / "train.py", text, "uneven-inputs", [("fit", 10)], branch=8))
        assert added(fix) == [
            f"        stop = torch.tensor({value})",
            "        dist.all_reduce(stop, op=dist.ReduceOp.MAX)",
            "        if stop.item():",
        ]

    def test_the_condition_at_which_the_ranks_diverged_is_patched_whatever_else_review_finds(self, tmp_path: Path):
        loader = "torch.utils.data.DataLoader(rows, sampler=torch.utils.data.DistributedSampler(rows))"
        other = f"    for x in {loader}:\n        dist.barrier()\n        if x.item() > 2:\n            break\n"
        text = EARLY_STOP.format(backend="gloo", test="bad(loss)") + other
        fix = first(report(tmp_path / "train.py", text, "uneven-inputs", [("fit", 10)], branch=8))
        assert added(fix)[0] == "        stop = torch.tensor(float(bool(bad(loss))))"

    def test_a_condition_that_only_some_rounds_reach_is_not_patched(self, tmp_path: Path):
        inner = "        if epoch % 2:\n            if loss < 0.1:\n                break\n"
        text = EARLY_STOP.format(backend="gloo", test="x").replace("        if x:\n            break\n", inner)
        assert (
            first(report(tmp_path / "train.py", text, "uneven-inputs", [("fit", 11)], branch=9)).id != "stop-together"
        )

    @pytest.mark.parametrize("cause", ["uneven-inputs", "per-rank-decision"])
    def test_ranks_do_not_wait_for_each_other_under_a_lock(self, tmp_path: Path, cause: str):
        locked = "        with file_lock:\n            if loss < 0.1:\n                break\n"
        text = EARLY_STOP.format(backend="gloo", test="x").replace("        if x:\n            break\n", locked)
        found = report(tmp_path / "train.py", text, cause, [("fit", 11)], branch=9)
        fixes = build_fixes(KNOWLEDGE.causes[cause], FixContext(report=found), KNOWLEDGE)
        assert all("all_reduce" not in fix.diff() for fix in fixes)


class TestPairExchange:
    def test_both_calls_become_one_exchange(self, tmp_path: Path):
        fix = first(report(tmp_path / "train.py", RING, "p2p-deadlock", [("rotate", 4)]))
        receive = "dist.P2POp(dist.irecv, incoming, (rank - 1) % world)"
        send = "dist.P2POp(dist.isend, block, (rank + 1) % world)"
        assert added(fix) == [
            f"    for request in dist.batch_isend_irecv([{receive}, {send}]):",
            "        request.wait()",
        ]

    def test_a_transfer_in_a_group_of_its_own_is_left_alone(self, tmp_path: Path):
        text = RING.replace("% world)\n", "% world, group=pairs)\n")
        assert not first(report(tmp_path / "train.py", text, "p2p-deadlock", [("rotate", 4)])).patches


class TestSameLock:
    STACK = (("flush", 12), ("add", 9))

    def test_a_lock_that_its_holder_waits_for_can_be_taken_again(self, tmp_path: Path):
        fix = first(report(tmp_path / "train.py", HISTORY, "python-lock", [*self.STACK]))
        assert added(fix) == ["        self._lock = threading.RLock()"]

    def test_a_lock_of_another_thread_stays_as_it_is(self, tmp_path: Path):
        fix = first(report(tmp_path / "train.py", HISTORY, "python-lock", [("flush", 12)]))
        assert not fix.patches
        assert fix.id == "no-fork-after-threads"


class TestLimitWait:
    @pytest.mark.parametrize(
        ("line", "limited"),
        [
            ("with urlopen(address) as reply:\n        reply.read()", "with urlopen(address, timeout=10) as reply:"),
            ("answer = requests.get(address).json()", "answer = requests.get(address, timeout=10).json()"),
            ("line = self.link.recv(80)", "self.link.settimeout(10)"),
        ],
    )
    def test_the_call_gets_a_limit(self, tmp_path: Path, line: str, limited: str):
        text = f"def ask(self, address):\n    {line}\n"
        found = report(tmp_path / "train.py", text, "external-service-block", [("ask", 2)])
        found.verdict.findings.append("job.rank-waits-for-service")
        fix = first(found)
        assert fix.id == "limit-the-call"
        assert fix.code.splitlines()[:2] == ["try:", f"    {limited}"]
        compile(fix.code, "train.py", "exec")

    def test_a_call_with_a_limit_is_only_named(self, tmp_path: Path):
        text = "def ask(address):\n    return urlopen(address, timeout=3600)\n"
        found = report(tmp_path / "train.py", text, "external-service-block", [("ask", 2)])
        found.verdict.findings.append("job.rank-waits-for-service")
        assert not first(found).code
        assert [place.line for place in first(found).places] == [2]


class TestPortInScript:
    SCRIPT = 'PORT = {port}\nADDRESS = "tcp://127.0.0.1:{port}"\nSTEPS = 1{port}\n'

    def fix(self, tmp_path: Path, port: int) -> Fix:
        script = tmp_path / "train.py"
        script.write_text(self.SCRIPT.format(port=port))
        seen = Evidence("log:port-in-use/0", "log", "address in use", values={"port": str(port)})
        context = FixContext(script=str(script), evidence=[seen])
        return build_fixes(KNOWLEDGE.causes["port-in-use"], context, KNOWLEDGE)[0]

    def test_a_port_that_is_held_is_replaced_where_the_script_names_it(self, tmp_path: Path):
        with socket.create_server(("127.0.0.1", 0)) as held:
            fix = self.fix(tmp_path, held.getsockname()[1])
        number, address = added(fix)
        port = number.removeprefix("PORT = ")
        assert port.isdigit()
        assert address == f'ADDRESS = "tcp://127.0.0.1:{port}"'
        assert [place.line for place in fix.places] == [1, 2]

    def test_a_port_that_is_free_again_is_left_alone(self, tmp_path: Path):
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        assert not self.fix(tmp_path, port).patches


class TestWorkerPlace:
    def child(self, path: Path, *inner: StackFrame) -> list[Child]:
        outside = [StackFrame("_worker_loop", WORKER, 300), StackFrame("main", str(path), 8)]
        stack = [*inner, *outside]
        return [Child(pid=77, command=["python"], kind="loader", process_state="S", moved=False, stack=stack)]

    def test_the_line_of_the_data_set_is_named(self, tmp_path: Path):
        path = tmp_path / "train.py"
        children = self.child(path, StackFrame("__getitem__", str(path), 5))
        fix = first(report(path, DATA, "dataloader-stall", [("main", 8)], children=children))
        assert fix.id == "read-of-the-worker"
        assert "`return self.files[index].read_bytes()`" in fix.text
        assert [(place.line, place.label) for place in fix.places] == [(5, "worker 77 of rank 0")]

    def test_a_worker_that_has_nothing_to_do_is_not_blamed(self, tmp_path: Path):
        path = tmp_path / "train.py"
        found = report(path, DATA, "dataloader-stall", [("main", 8)], children=self.child(path))
        assert first(found).id == "loader-timeout"

    def test_a_rank_that_fetches_the_samples_itself_has_no_workers(self, tmp_path: Path):
        path = tmp_path / "train.py"
        found = report(path, DATA.replace("2", "args.workers"), "dataloader-stall", [("__getitem__", 5), ("main", 8)])
        (seen,) = found.observed.seen
        (sample,) = seen.samples
        stack = [sample.stack[0], StackFrame("fetch", WORKER.replace("worker", "fetch"), 52), sample.stack[1]]
        samples = [msgspec.structs.replace(sample, stack=stack)]
        observed = msgspec.structs.replace(found.observed, seen=[msgspec.structs.replace(seen, samples=samples)])
        assert first(found).id == "loader-timeout"
        assert first(msgspec.structs.replace(found, observed=observed)).id == "limit-the-read"


def test_a_line_is_shown_as_the_ranks_run_it(tmp_path: Path):
    path = tmp_path / "train.py"
    found = report(path, RING, "p2p-deadlock", [("rotate", 4)])
    path.write_text("# new\n" + RING)
    assert CaseFacts(FixContext(report=found)).line_text(str(path), 4) == "dist.recv(incoming, src=(rank - 1) % world)"
    assert not first(found).patches


@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("rank == 0", "dist.all_reduce(x)    # every rank\ndist.broadcast(x, src=1)    # every rank"),
        ("x.sum() > 0", "flag = torch.tensor(float(bool(x.sum() > 0)), device=device)"),
    ],
)
def test_ranks_in_different_collectives_get_the_branch_of_their_script_first(test: str, code: str) -> None:
    text = "import torch.distributed as dist\ndef main(rank, x):\n"
    text += f"    if {test}:\n        dist.all_reduce(x)\n    else:\n        dist.broadcast(x, src=1)\n"
    found = report_of(text, stack("all_reduce", ("main", 4)), *[stack("broadcast", ("main", 6))] * 2)
    assert found.verdict.cause == "collective-desync"
    first, second, *_ = build_fixes(KNOWLEDGE.causes["collective-desync"], FixContext(report=found), KNOWLEDGE)
    assert f"`{test}`" in first.text and "leads rank 0 to `dist.all_reduce(x)`" in first.text
    assert "ranks 1, 2 to `dist.broadcast(x, src=1)`" in first.text
    assert [(place.line, place.label) for place in first.places] == [
        (3, "the condition"),
        (4, "rank 0"),
        (6, "ranks 1, 2"),
    ]
    assert first.code.startswith(code)
    assert second.title == "Let torch name the two calls"
