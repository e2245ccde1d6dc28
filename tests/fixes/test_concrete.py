"""Fixes name what was seen in the case: the user's lines, variables and command line, ranks, ports and parameters."""

from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import CaseFacts, FixContext
from ddpwizard.app.fixes.fix_text import fix_lines
from ddpwizard.app.fixes.types import Fix
from ddpwizard.app.fixes.user_code import rename_variables
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.snapshot import PortSection
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.types import Child, JobReport, Observation, ProcessSamples, Sample, Verdict
from ddpwizard.knowledge.templates import fill_template
from helpers.built_in_knowledge import built_in_knowledge
from helpers.machines import snapshot
from msgspec.structs import replace

KNOWLEDGE = built_in_knowledge()

NESTED = """\
import torch.distributed as dist

def world_mean(value):
    dist.all_reduce(value)
    return value

def log_metrics(step, loss):
    print(step, world_mean(loss))

def main(rank, loss):
    for step in range(10):
        if step % 5 == 4 and rank == 0:
            log_metrics(step, loss)
        dist.barrier()
"""
TRAIN = """\
import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head_a = nn.Linear(8, 1, bias=False)
        self.head_b = nn.Linear(8, 1)


def main(dataset):
    dist.init_process_group("gloo")
    net = DDP(Net())
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = DataLoader(dataset, batch_size=4, num_workers=2)
    net.load_state_dict(torch.load("last.pt"))
    for epoch in range(3):
        for x in batches:
            out = net(x).mean()
            out.backward()
            opt.step()
        torch.save(net.state_dict(), "last.pt")
"""


EARLY_RETURN = """\
import os
import torch
import torch.distributed as dist

def save(model):
    if os.environ["RANK"] != "0":
        return
    torch.save(model.module.state_dict(), "last.pt")
    dist.barrier()

def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    save(model)

main()
"""


def fixes(cause: str, context: FixContext) -> dict[str, Fix]:
    """The fixes of a cause by their id, in the order in which they are offered."""
    return {fix.id: fix for fix in build_fixes(KNOWLEDGE.causes[cause], context, KNOWLEDGE)}


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return str(path)


def changed(fix: Fix) -> list[str]:
    """The lines that the patch of a fix adds; what it makes is valid Python."""
    (patch,) = fix.patches
    compile(patch.after, "train.py", "exec")
    return [line[1:].strip() for line in fix.diff().splitlines() if line.startswith("+") and not line.startswith("+++")]


SCORE = "            score = loss * 2\n"


def nested_report(tmp_path: Path, text: str = NESTED, called_at: int = 13) -> JobReport:
    path = str(tmp_path / "train.py")
    stack = [("world_mean", 4), ("log_metrics", 8), ("main", called_at)]  # innermost first
    sample = Sample(
        at=0.0, process_state="S", cpu_s=0.0, switches=0, stack=[StackFrame(name, path, line) for name, line in stack]
    )
    process = Process(
        pid=41, rank=0, local_rank=0, command=["python", path], cwd=str(tmp_path), python="python", environ={}
    )
    job = Job(
        launcher="torchrun",
        launcher_pid=40,
        launcher_command=["/venv/bin/python", "/venv/bin/torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1"],
        world_size=2,
        master="127.0.0.1:29511",
        host="here",
        processes=[process],
    )
    verdict = Verdict(
        state="hung",
        cause="rank-conditional-collective",
        culprits=[0],
        collective="all_reduce",
        where=f"{path}:4",
        branch=f"{path}:12",
        why="",
        confidence=0.9,
        findings=["job.culprit-line-under-rank-test"],
    )
    return JobReport(
        launcher="torchrun",
        world_size=2,
        nodes=["here"],
        ranks=[],
        verdict=verdict,
        observed=Observation(
            job=job, seen=[ProcessSamples(process=process, host="here", samples=[sample])], sources={path: text}
        ),
    )


class TestRecipes:
    """A fix for the user's own lines."""

    def test_nested_collective_names_the_line_to_move(self, tmp_path: Path):
        (tmp_path / "train.py").write_text(NESTED)
        fix = next(iter(fixes("rank-conditional-collective", FixContext(report=nested_report(tmp_path))).values()))
        assert fix.id == "move-out"
        assert "line 13 `log_metrics(step, loss)` out of `if step % 5 == 4 and rank == 0` of line 12" in fix.text
        assert "train.py:4" in fix.text
        assert [(place.line, place.text) for place in fix.places[:2]] == [
            (12, "if step % 5 == 4 and rank == 0:"),
            (13, "log_metrics(step, loss)"),
        ]
        assert fix.code.splitlines()[:3] == [
            "if step % 5 == 4:",
            "    log_metrics(step, loss)    # every rank",
            "    if rank == 0:",
        ]
        assert fix.again == "torchrun --nproc-per-node 2 train.py --lr 1"

    @pytest.mark.parametrize(
        ("answer", "code", "command"),
        [
            ("", "", "torchrun --standalone --nproc-per-node=auto train.py"),
            ("how-many-nodes=one", "", "torchrun --standalone --nproc-per-node=auto train.py"),
            ("how-many-nodes=several", "", ""),
            ("how-launched=scheduler", "", ""),
            ("how-launched=accelerate", "", "accelerate launch train.py"),
            ("", "import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)\n", "python train.py"),
        ],
    )
    def test_a_script_alone_is_started_as_the_answers_say(
        self, answer: str, code: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text(code)
        evidence = [Evidence(f"answer:{answer}", "answer", "your answer")] if answer else []
        assert CaseFacts(FixContext(script=str(tmp_path / "train.py"), evidence=evidence)).command == command

    def test_a_rank_that_leaves_early_is_patched_by_the_rule_for_it(self, tmp_path: Path) -> None:
        path = tmp_path / "train.py"
        path.write_text(EARLY_RETURN)
        report = nested_report(tmp_path, EARLY_RETURN)
        (seen,) = report.observed.seen
        stack = [StackFrame("save", str(path), 9), StackFrame("main", str(path), 14)]
        seen = replace(seen, samples=[replace(seen.samples[0], stack=stack)])
        verdict = replace(report.verdict, culprits=[1], collective="barrier", where=f"{path}:9", branch=f"{path}:6")
        report = replace(report, verdict=verdict, observed=replace(report.observed, seen=[seen]))
        found = fixes("rank-conditional-collective", FixContext(report=report))
        assert next(iter(found)) == "dw404"
        assert changed(found["dw404"]) == [
            'if os.environ["RANK"] == "0":',
            'torch.save(model.module.state_dict(), "last.pt")',
        ]
        assert "only rank 0 does" in found["move-out"].text

    def move_out(self, tmp_path: Path, text: str, called_at: int = 13) -> str:
        (tmp_path / "train.py").write_text(text)
        context = FixContext(report=nested_report(tmp_path, text, called_at))
        return next(iter(fixes("rank-conditional-collective", context).values())).text

    def test_the_line_to_move_takes_what_it_uses_with_it(self, tmp_path: Path):
        assert "It uses" not in self.move_out(tmp_path, NESTED)
        text = NESTED.replace("            log_metrics(step, loss)\n", SCORE + "            log_metrics(step, score)\n")
        assert "It uses `score` (set in line 13): move what sets it as well." in self.move_out(tmp_path, text, 14)

    def test_a_function_that_also_writes_is_not_moved_as_a_whole(self, tmp_path: Path):
        text = NESTED.replace("    print(step, world_mean(loss))", "    torch.save(world_mean(loss), 'last.pt')")
        found = self.move_out(tmp_path, text)
        assert "But `log_metrics` also writes (line 8), and would on every rank" in found

    def test_unused_parameters_are_named_and_the_wrap_is_patched(self, script: str):
        listed = Evidence("log:unused-parameters/4", "log", "indices", values={"parameters": "2 4"})
        fix = fixes("unused-parameters", FixContext(script=script, evidence=[listed]))["find-unused-parameters"]
        assert changed(fix) == ["net = DDP(Net(), find_unused_parameters=True)"]
        assert "head_a.weight, head_b.bias" in fix.text
        assert [place.line for place in fix.places] == [12, 13, 18]

    def test_names_of_an_unknown_module_are_left_to_a_line_of_code(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(TRAIN.replace("nn.ReLU()", "Unknown()"))
        listed = Evidence("log:unused-parameters/4", "log", "indices", values={"parameters": "4 5"})
        fix = fixes("unused-parameters", FixContext(script=str(path), evidence=[listed]))["find-unused-parameters"]
        assert "net.named_parameters()" in fix.code
        assert "(4, 5)" in fix.code
        assert fix.patches

    def test_join_goes_around_the_loop_over_the_batches(self, script: str):
        assert changed(fixes("uneven-inputs", FixContext(script=script))["join-the-loop"]) == [
            "with net.join():",
            "for x in batches:",
            "out = net(x).mean()",
            "out.backward()",
            "opt.step()",
        ]

    def test_join_is_left_to_a_person_if_the_loop_communicates(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(TRAIN.replace("            opt.step()", "            dist.all_reduce(out)"))
        fix = fixes("uneven-inputs", FixContext(script=str(path)))["join-the-loop"]
        assert not fix.patches
        assert "all_reduce" in fix.text
        assert "`with net.join():`" in fix.text

    def test_prefixes_are_removed_while_loading(self, script: str):
        assert changed(fixes("module-prefix-state-dict", FixContext(script=script))["strip-while-loading"]) == [
            'state = torch.load("last.pt")',
            'torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "_orig_mod.")',
            'torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")',
            "net.load_state_dict(state)",
        ]
        saved = fixes("module-prefix-state-dict", FixContext(script=script))["save-the-module"]
        assert changed(saved) == ['torch.save(net.module.state_dict(), "last.pt")']


class TestArguments:
    """Arguments that a patch gives to a call."""

    @pytest.mark.parametrize(
        ("cause", "fix", "line"),
        [
            ("one-rank-oom", "set-map-location", 'net.load_state_dict(torch.load("last.pt", map_location="cpu"))'),
            ("dataloader-stall", "loader-timeout", "num_workers=2, timeout=120)"),
            ("inplace-buffer-modified", "set-no-buffer-sync", "net = DDP(Net(), broadcast_buffers=False)"),
            ("backend-mismatch", "set-both-backends", 'dist.init_process_group("cpu:gloo,cuda:nccl")'),
        ],
    )
    def test_argument_is_set(self, script: str, cause: str, fix: str, line: str):
        assert any(line in each for each in changed(fixes(cause, FixContext(script=script))[fix]))

    def test_value_seen_is_used_and_its_module_imported(self, script: str):
        ran_out = Evidence("log.same-collective-timeout", "log", "", values={"timeout_ms": "600000"})
        fix = fixes("timeout-masks-cause", FixContext(script=script, evidence=[ran_out]))["longer-timeout"]
        assert changed(fix) == [
            "import datetime",
            'dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=40))',
        ]
        assert "10 min" in fix.text

    def test_import_of_the_name_itself_is_used(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text("from datetime import timedelta as span\n" + TRAIN)
        fix = fixes("timeout-masks-cause", FixContext(script=str(path)))["longer-timeout"]
        assert changed(fix) == ['dist.init_process_group("gloo", timeout=span(minutes=60))']

    def test_call_that_has_the_argument_is_left_alone(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(TRAIN.replace('torch.load("last.pt")', 'torch.load("last.pt", map_location=None)'))
        assert not fixes("one-rank-oom", FixContext(script=str(path)))["set-map-location"].patches


class TestOrder:
    """A fix that does not fit what was seen is not offered first."""

    def first(self, cause: str, context: FixContext) -> str:
        return next(iter(fixes(cause, context)))

    def test_loader_without_workers_gets_no_loader_timeout(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(TRAIN.replace(", num_workers=2", ""))
        ordered = list(fixes("dataloader-stall", FixContext(script=str(path))))
        assert ordered[0] == "limit-the-read"
        after = ordered[ordered.index("fewer-and-lighter") :]
        assert {"loader-timeout", "safe-workers", "find-the-worker"} < set(after)
        refused = fixes("dataloader-stall", FixContext(script=str(path)))["loader-timeout"]
        assert not refused.patches
        assert refused.safety == "display"
        assert refused.note == "It does not fit what was seen: no data loader of the script has workers."

    def test_loader_with_workers_gets_one_as_a_patch(self, script: str):
        assert self.first("dataloader-stall", FixContext(script=script)) == "loader-timeout"

    def test_a_worker_that_waits_at_a_known_line_comes_first(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(TRAIN)
        report = nested_report(tmp_path)
        loop = StackFrame("_worker_loop", "/lib/torch/utils/data/_utils/worker.py", 9)
        worker = Child(
            pid=4711, command=["python"], kind="loader", process_state="S", moved=False,
            stack=[StackFrame("__getitem__", str(path), 5), loop],
        )  # fmt: skip
        seen = [msgspec.structs.replace(each, children=[worker]) for each in report.observed.seen]
        verdict = msgspec.structs.replace(report.verdict, cause="dataloader-stall", branch=None)
        observed = msgspec.structs.replace(report.observed, seen=seen)
        report = msgspec.structs.replace(report, observed=observed, verdict=verdict)
        found = fixes("dataloader-stall", FixContext(script=str(path), report=report))
        first = next(iter(found.values()))
        assert first.id == "read-of-the-worker"
        assert not found["set-workers"].patches, "more workers do not free the one that waits"

    def test_roomy_shm_is_not_enlarged(self):
        case = FixContext(evidence=[Evidence("limits.shm-roomy", "probe", "23 GiB free")])
        assert self.first("shm-too-small", FixContext()) == "give-more"
        assert list(fixes("shm-too-small", case))[-2:] == ["give-more", "enlarge-now"]

    def test_parser_that_wants_local_rank_reads_it_from_the_environment(self):
        message = "train.py: error: the following arguments are required: --local_rank"
        case = FixContext(evidence=[Evidence("log:env-contract-broken/6", "log", message)])
        assert self.first("env-contract-broken", case) == "local-rank-of-the-environment"
        assert self.first("env-contract-broken", FixContext()) != "local-rank-of-the-environment"

    def test_the_process_that_holds_the_memory_comes_first(self):
        holder = {"holder_pid": "48112", "holder_size": "6.40 GiB"}
        foreign = FixContext(evidence=[Evidence("log.oom-foreign-process", "log", "", values=holder)])
        fix = next(iter(fixes("oom-at-step", foreign).values()))
        assert "48112 holds 6.40 GiB" in fix.text
        assert "kill 48112" in fix.code
        unknown = FixContext(evidence=[Evidence("log:x/0", "log", "Process 48112 has 6.40 GiB memory in use.")])
        assert self.first("oom-at-step", unknown) != fix.id, "the process may be a rank"

    def test_log_of_a_machine_that_was_not_seen_leads_to_something_to_run(self):
        log = FixContext(evidence=[Evidence("log:x/0", "log", "", where="/data/out.log:3", rank=1)])
        for cause in KNOWLEDGE.causes:
            fix = next(iter(fixes(cause, log).values()))
            assert not fix.text.startswith("This fix needs"), (cause, fix.id)

    def test_another_port_than_the_busy_one(self):
        ports = PortSection(port=29500, from_variable=False, free=True, holder_pid=None, holder="", free_alternative=0)
        busy = Evidence("log:port-in-use/0", "log", "", values={"port": "29500"})
        case = FixContext(snapshot=snapshot(ports=ports), evidence=[busy], script="train.py")
        fix = next(iter(fixes("port-in-use", case).values()))
        assert not [line for line in fix.commands if "--master-port=29500" in line]
        assert any("--master-port=" in line for line in fix.commands)

    def test_the_port_of_the_command_line_is_the_busy_one(self):
        busy = Evidence("log:port-in-use/0", "log", "OSError: [Errno 98] Address already in use")
        for start in (
            ["torchrun", "--nproc-per-node=2", "--master-port=29641", "train.py"],
            ["torchrun", "--master_port", "29641", "train.py"],
            ["accelerate", "launch", "--main_process_port", "29641", "train.py"],
        ):
            fix = next(iter(fixes("port-in-use", FixContext(evidence=[busy], launch=start)).values()))
            assert fix.commands[0] == "ss -ltnp 'sport = :29641'"

    def test_commands_count_from_the_directory_of_the_job(self, tmp_path: Path):
        case = FixContext(script=str(tmp_path / "sub" / "train.py"), directory=str(tmp_path))
        fix = fixes("bare-python-launch", case)["use-torchrun"]
        assert fix.start.endswith(" sub/train.py") and fix.directory == str(tmp_path)
        lines = fix_lines(fix)
        assert lines.index(f"In {tmp_path}:") + 1 == lines.index(f"  $ {fix.start}")
        here = fixes("bare-python-launch", FixContext(script="train.py"))["use-torchrun"]
        assert here.start.endswith(" train.py") and not here.directory

    def test_the_line_that_ddpwizard_run_started_is_named_where_no_rank_came_up(self):
        busy = Evidence("log:port-in-use/0", "log", "", values={"port": "29512"})
        start = ["/opt/bin/torchrun", "--nproc-per-node=2", "--master-port=29512", "my train.py", "--lr=1"]
        fix = next(iter(fixes("port-in-use", FixContext(evidence=[busy], launch=start)).values()))
        assert fix.commands[1:] == ["torchrun --standalone --nproc-per-node=2 'my train.py' --lr=1"]
        nodes = FixContext(evidence=[busy], launch=[*start[:1], "--nnodes=2", *start[1:]])
        assert not any("--standalone" in line for line in next(iter(fixes("port-in-use", nodes).values())).commands)


LOG = """\
[rank0]: step 1
[rank1]: step 1
[rank2]: step 1
[rank2]: Traceback (most recent call last):
[rank2]:   File "/data/run/train.py", line 12, in step
[rank2]:     image = row["image_path"]
[rank2]: KeyError: 'image_path'
[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:5012
[rank1]: RuntimeError: Connection closed by peer [10.0.0.1]:5012
"""


def test_line_of_a_device_side_assert_is_not_named_as_the_one_to_fix():
    case = Case(KNOWLEDGE)
    text = LOG.replace("KeyError: 'image_path'", "RuntimeError: CUDA error: device-side assert triggered")
    found = add_to_case(case, [source_of_text(text, "/data/run/out.log")])
    context = FixContext(evidence=case.evidence, timeline=found.timeline)
    fix = next(iter(fixes("device-side-assert", context).values()))
    assert case.diagnosis().causes[0].id == "device-side-assert"
    assert "Rank 2 failed first" in fix.text and "Fix this line" not in fix.text
    assert "CUDA_LAUNCH_BLOCKING=1" in fix.text


def test_line_of_an_index_error_on_the_cpu_is_the_one_to_fix():
    case = Case(KNOWLEDGE)
    text = LOG.replace("KeyError: 'image_path'", "IndexError: Target 10 is out of bounds.")
    found = add_to_case(case, [source_of_text(text, "/data/run/out.log")])
    context = FixContext(evidence=case.evidence, timeline=found.timeline)
    fix = next(iter(fixes("device-side-assert", context).values()))
    assert fix.id == "print-the-value"
    assert "Fix this line" in fix.text and "CUDA_LAUNCH_BLOCKING" not in fix.text + fix.code


def test_first_failure_of_a_log_is_named():
    case = Case(KNOWLEDGE)
    found = add_to_case(case, [source_of_text(LOG, "/data/run/out.log")])
    context = FixContext(evidence=case.evidence, timeline=found.timeline)
    fix = next(iter(fixes("rank-died-survivors-wait", context).values()))
    assert fix.id == "fix-the-error-seen"
    assert "Rank 2 failed first at /data/run/train.py:12: KeyError: 'image_path'" in fix.text
    assert [(place.path, place.line) for place in fix.places] == [("/data/run/train.py", 12)]


def test_the_script_of_a_traceback_is_started_again_not_the_module_that_raised():
    log = LOG.replace(
        '[rank2]:   File "/data/run/train.py", line 12, in step',
        '[rank2]:   File "/data/run/train.py", line 40, in <module>\n[rank2]:     main()\n'
        '[rank2]:   File "/data/run/data.py", line 12, in step',
    )
    facts = CaseFacts(FixContext(timeline=add_to_case(Case(KNOWLEDGE), [source_of_text(log, "out.log")]).timeline))
    assert facts.error_place and facts.error_place.path == "/data/run/data.py"
    assert facts.target == ["/data/run/train.py"]


def test_the_line_of_an_error_is_quoted_as_it_was_when_it_was_raised(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text("import data\n\n" * 5 + "image = row['image']  # corrected\n" * 5)
    found = add_to_case(Case(KNOWLEDGE), [source_of_text(LOG.replace("/data/run/train.py", str(script)), "out.log")])
    place = CaseFacts(FixContext(timeline=found.timeline)).error_place
    assert place and (place.line, place.text) == (12, 'image = row["image_path"]')


@pytest.mark.parametrize(
    "named",
    [
        "torchrun FAILED table\n========\nsrc/train.py FAILED\n--------\n",
        "[INFO] [launch.py:319] ['/usr/bin/python', '-u', 'src/train.py', '--lr=1'] exits with return code = -6",
        "subprocess.CalledProcessError: Command '['python', 'src/train.py', '--lr', '1']' died with SIGABRT.",
    ],
)
def test_a_log_without_a_line_of_code_points_at_the_calls_of_the_script_that_its_launcher_names(
    named: str, tmp_path: Path
):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    text = f"what(): op.preamble.length <= op.nbytes. 16 vs 12\n{named}\n"
    case = Case(KNOWLEDGE)
    found = add_to_case(case, [source_of_text(text, str(tmp_path / "out.log"))])
    context = FixContext(evidence=case.evidence, timeline=found.timeline)
    assert CaseFacts(context).target == [str(tmp_path / "src" / "train.py")]
    fix = next(iter(fixes("collective-desync", context).values()))
    assert [(place.path, place.line) for place in fix.places]


def test_claims_of_a_process_do_not_enter_commands(tmp_path: Path):
    report = nested_report(tmp_path)
    job = msgspec.structs.replace(report.job, master="$(touch x):29500; rm -rf /", host="a;b")
    hostile = msgspec.structs.replace(report, observed=msgspec.structs.replace(report.observed, job=job))
    values = CaseFacts(FixContext(report=hostile)).values
    assert not {"master_addr", "port", "host"} & set(values)
    process = msgspec.structs.replace(job.processes[0], command=["python", "x; touch y.py"])
    hostile = msgspec.structs.replace(
        report, observed=msgspec.structs.replace(report.observed, job=msgspec.structs.replace(job, processes=[process]))
    )
    assert CaseFacts(FixContext(report=hostile)).values["script"] == "'x; touch y.py'"


def test_code_gets_the_names_of_the_users_variables(script: str):
    fix = fixes("accumulate-without-no-sync", FixContext(script=script))["no-sync"]
    assert "for i, (x, y) in enumerate(batches):" in fix.code
    assert "net.no_sync()" in fix.code
    assert "opt.step()" in fix.code
    assert 25 in [place.line for place in fix.places]


def test_the_places_of_a_fix_by_hand_are_those_of_the_findings(tmp_path: Path):
    path = tmp_path / "train.py"
    path.write_text(
        "import os\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() == 0:\n    os.makedirs('out')\n    torch.save(torch.ones(2), 'out/first.pt')\n"
        "torch.save(torch.ones(3), 'out/last.pt')\n"
    )
    findings = review_file(path, KNOWLEDGE)
    fix = fixes("checkpoint-race", FixContext(script=str(path), findings=findings))["one-writer-and-rename"]
    assert [(place.line, place.label) for place in fix.places] == [(8, "DW501")]
    fix = fixes("checkpoint-race", FixContext(script=str(path)))["one-writer-and-rename"]
    assert [place.line for place in fix.places] == [6, 7, 8]


@pytest.mark.parametrize(
    ("code", "renamed"),
    [
        ("DataLoader(x, sampler=sampler)", "DataLoader(x, sampler=own)"),
        ("model.sampler = sampler", "model.sampler = own"),
        ("torchrun --sampler sampler", "torchrun --sampler sampler"),  # no Python
    ],
)
def test_only_variables_are_renamed(code: str, renamed: str):
    assert rename_variables(code, {"sampler": "own"}) == renamed


def test_templates_fall_back():
    assert fill_template("{port|29500} {f'{x}'} {a: b}", {}) == "29500 {f'{x}'} {a: b}"
    assert fill_template("{port|29500}", {"port": "4711"}) == "4711"


def test_entry_with_an_undeclared_condition_is_refused(tmp_path: Path):
    from ddpwizard.knowledge.loader import KnowledgeError, read_knowledge
    from ddpwizard.knowledge.schema import BUILT_IN

    text = (BUILT_IN / "causes" / "launch" / "port-in-use.yaml").read_text()
    entry = tmp_path / "port-in-use.yaml"
    entry.write_text(text.replace("    kind: command\n", "    kind: command\n    when: [case.no-such]\n", 1))
    with pytest.raises(KnowledgeError, match=r"case\.no-such"):
        read_knowledge(tmp_path)
    entry.write_text(text.replace("    kind: command\n", "    kind: command\n    when: [line.no-such]\n", 1))
    with pytest.raises(KnowledgeError, match=r"line\.no-such"):
        read_knowledge(tmp_path)
    entry.write_text(text.replace("    text: |\n", "    text: |\n      {no_such|x}\n", 1))
    with pytest.raises(KnowledgeError, match="no_such"):
        read_knowledge(tmp_path)


TIME_LIMIT = "slurmstepd: error: *** JOB 123456 ON node03 CANCELLED AT 2026-11-20T12:00:00 DUE TO TIME LIMIT ***\n"
STEPS = "".join(f"step {number} loss 1.9 grad_norm 0.8\n" for number in range(100, 900, 100))


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        ("ValueError: Attempting to unscale FP16 gradients.", "gradient-scaler-amp", "fp32-weights"),
        ("RuntimeError: unscale_() has already been called on this optimizer", "gradient-scaler-amp", "right-order"),
        (
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
            "gradient-scaler-amp",
            "deepspeed-scale",
        ),
        (
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
            "gradient-scaler-amp",
            "deepspeed-scale",
        ),
        (
            "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "gradient_acc_step * world_size 64 != 8 * 4 * 4",
            "ds-config-ignored",
            "set-two-of-three",
        ),
        (
            "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:",
            "ds-config-ignored",
            "auto-with-trainer",
        ),
        (
            "ValueError: When using `deepspeed_config_file`, the following accelerate config variables will be "
            "ignored: ['zero_stage']",
            "ds-config-ignored",
            "through-accelerate",
        ),
        (
            "srun: error: Unable to create step for job 4711: More processors requested than permitted",
            "scheduler-launch-mismatch",
            "step-within-allocation",
        ),
        (
            "RuntimeError: You set `--ntasks=8` in your SLURM bash script, but this variable is not supported.",
            "scheduler-launch-mismatch",
            "one-launcher-per-node",
        ),
        (STEPS + TIME_LIMIT, "node-preempted", "within-the-limit"),
        (STEPS + TIME_LIMIT.replace("TIME LIMIT", "PREEMPTION"), "node-preempted", "survive-it"),
    ],
)
def test_the_line_that_was_seen_chooses_the_fix(text: str, cause: str, fix: str):
    case = Case(KNOWLEDGE)
    add_to_case(case, [source_of_text(text, "train.log")])
    assert case.diagnosis().named(1)[0].id == cause
    assert build_fixes(KNOWLEDGE.causes[cause], FixContext(evidence=case.evidence), KNOWLEDGE)[0].id == fix


@pytest.mark.parametrize(
    "before",
    [
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity "
        "of 39.39 GiB of which 1.00 GiB is free.\n",
        "[rank0]: ValueError: Attempting to unscale FP16 gradients.\n",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: ALLREDUCE, but "
        "Rank 1 is running collective: ALLGATHER.\n",
    ],
)
def test_a_time_limit_after_an_error_is_not_the_first_cause(before: str):
    case = Case(KNOWLEDGE)
    add_to_case(case, [source_of_text(STEPS + before + TIME_LIMIT, "train.log")])
    assert case.diagnosis().named(1)[0].id != "node-preempted"


def test_a_healthy_end_is_no_time_limit():
    case = Case(KNOWLEDGE)
    add_to_case(case, [source_of_text(STEPS + "training finished within the time limit of 24 h\n", "train.log")])
    assert not any(item.id.startswith("log:node-preempted/") for item in case.evidence)


OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of "
    "39.39 GiB of which 1.00 GiB is free. Process 4711 has 38.00 GiB memory in use. Of the allocated memory 37.00 GiB "
    "is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
)


def test_out_of_memory_gives_the_line_of_the_planner():
    case = Case(KNOWLEDGE)
    text = "".join(f"[rank{rank}]: step 1\n" for rank in range(4)) + OOM
    found = add_to_case(case, [source_of_text(text, "/data/run/out.log")])
    context = FixContext(evidence=case.evidence, timeline=found.timeline, script="pretrain.py")
    fix = fixes("model-does-not-fit", context)["plan-it"]
    assert fix.code == "ddpwizard plan --script pretrain.py --gpus 4 --gpu-memory 39.4GiB"
    generic = fixes("model-does-not-fit", FixContext())["plan-it"]
    assert generic.code == "ddpwizard plan --model MODEL --gpus 8 --gpu-memory 80GB"


@pytest.mark.parametrize("kind", ["script", "log", "job"])
def test_no_cause_ends_in_generic_text(kind: str, tmp_path: Path):
    path = tmp_path / "run_it.py"
    path.write_text(TRAIN)
    if kind == "log":
        case = Case(KNOWLEDGE)
        found = add_to_case(case, [source_of_text(LOG.replace("/data/run/train.py", str(path)), "/data/run/out.log")])
        context = FixContext(evidence=case.evidence, timeline=found.timeline, snapshot=snapshot())
    elif kind == "job":
        context = FixContext(report=nested_report(tmp_path), snapshot=snapshot())
    else:
        context = FixContext(script=str(path), snapshot=snapshot())
    generic = []
    for id_ in KNOWLEDGE.causes:
        first = next(iter(fixes(id_, context).values()))
        if first == fixes(id_, FixContext()).get(first.id):
            generic.append(id_)
    assert not generic
