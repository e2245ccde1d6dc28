"""The state of a rank: the frames of the user's code, the collective, the reason of a wait."""

from typing import Any

import msgspec
import pytest
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.training_script.line_queries import ScriptFiles
from ddpwizard.app.triage.rank_activity.collectives_in_stack import collective_of
from ddpwizard.app.triage.rank_activity.frames import user_frames
from ddpwizard.app.triage.rank_activity.progress import IMPORTING
from ddpwizard.app.triage.rank_activity.rank_state import RankState, rank_states
from ddpwizard.app.triage.rank_activity.wait_reasons import kernel_wait_reason, wait_reason
from ddpwizard.app.triage.types import Child, Sample, ThreadStack
from ddpwizard.app.triage.verdict import judge_job
from helpers.synthetic_job import BACKWARD, C10D, SCRIPT, WRAPPER, job, observation, sample_at, stack, still

SITE = "/venv/lib/python3.11/site-packages"


def test_installed_code_and_the_standard_library_are_not_user_code() -> None:
    frames = [
        StackFrame("wait", "/usr/lib/python3.11/threading.py", 629),
        StackFrame("fit", f"{SITE}/lightning/trainer.py", 10),
        StackFrame("step", "/home/ana/run/lib/model.py", 7),
        StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1),
        StackFrame("main", SCRIPT, 3),
        StackFrame("_run_module_as_main", "<frozen runpy>", 198),
    ]
    assert [(frame.function, frame.line) for frame in user_frames(frames)] == [("main", 3), ("step", 7)]


@pytest.mark.parametrize("root", ["/home/ana/pytorch", SITE])
def test_torch_is_not_user_code_wherever_it_is_installed(root: str) -> None:
    frames = [
        StackFrame("all_reduce", f"{root}/torch/distributed/distributed_c10d.py", 1),
        StackFrame("main", SCRIPT, 3),
    ]
    assert [frame.path for frame in user_frames(frames)] == [SCRIPT]
    assert collective_of(frames) == ("all_reduce", "")


def test_an_installed_training_program_is_its_own_user_code() -> None:
    frames = [
        StackFrame("barrier", C10D, 1),
        StackFrame("train", f"{SITE}/recipes/full.py", 88),
        StackFrame("run", "<frozen runpy>", 2),
    ]
    assert [frame.line for frame in user_frames(frames)] == [88]
    assert collective_of(frames) == ("barrier", "")


@pytest.mark.parametrize(
    ("inner", "name", "via"),
    [
        (
            [StackFrame("broadcast", C10D, 1), WRAPPER, StackFrame("broadcast_object_list", C10D, 2), WRAPPER],
            "broadcast_object_list",
            "",
        ),
        (
            [StackFrame("_store_based_barrier", C10D, 1), StackFrame("init_process_group", C10D, 2)],
            "init_process_group",
            "",
        ),
        ([StackFrame("_helper", C10D, 1)], None, ""),
        (BACKWARD, "all_reduce", "gradient all-reduce (DDP)"),
        (
            [
                StackFrame("reduce_scatter_tensor", C10D, 1),
                StackFrame("hook", f"{SITE}/torch/distributed/fsdp/x.py", 2),
                *BACKWARD,
            ],
            "reduce_scatter_tensor",
            "",
        ),
        (
            [StackFrame("_sync_buffers", f"{SITE}/torch/nn/parallel/distributed.py", 1)],
            "broadcast",
            "DDP's buffer broadcast",
        ),
        (
            [StackFrame("barrier", C10D, 1), StackFrame("wait_for_everyone", f"{SITE}/accelerate/state.py", 2)],
            "barrier",
            "",
        ),
        ([], None, ""),
    ],
)
def test_collective_has_the_name_of_the_users_call(inner: list[StackFrame], name: str | None, via: str) -> None:
    assert collective_of([*inner, StackFrame("main", SCRIPT, 3)]) == (name, via)


def test_collective_called_by_a_user_callback_does_not_count() -> None:
    assert collective_of([StackFrame("hook", SCRIPT, 9), *stack("backward", ("main", 3))]) == (None, "")


class TestUserFrames:
    def test_console_script_is_not_user_code(self) -> None:
        frames = [
            StackFrame("barrier", C10D, 1),
            StackFrame("fit", f"{SITE}/lightning/trainer.py", 40),
            StackFrame("train", f"{SITE}/recipes/full.py", 88),
            StackFrame("<module>", "/venv/bin/recipe", 8),
        ]
        assert [(frame.path, frame.line) for frame in user_frames(frames)] == [(f"{SITE}/recipes/full.py", 88)]

    def test_line_that_spawns_a_process_is_not_user_code(self) -> None:
        frames = [
            StackFrame("worker", SCRIPT, 5),
            StackFrame("spawn_main", "/usr/lib/python3.11/multiprocessing/spawn.py", 122),
            StackFrame("<module>", "<string>", 1),
        ]
        assert [frame.line for frame in user_frames(frames)] == [5]
        assert user_frames(frames[1:]) == []

    @pytest.mark.parametrize("path", ["<string>", "<stdin>", "<ipython-input-3-ab>", "/tmp/ipykernel_7/12.py"])
    def test_interactive_code_is_user_code(self, path: str) -> None:
        assert user_frames([StackFrame("<module>", path, 3)]) != []


@pytest.mark.parametrize(
    ("inner", "name", "via"),
    [
        (
            [
                StackFrame("wait_tensor", f"{SITE}/torch/distributed/_functional_collectives.py", 142),
                StackFrame("redistribute_local_tensor", f"{SITE}/torch/distributed/tensor/_redistribute.py", 1766),
                StackFrame("DTensor.full_tensor", f"{SITE}/torch/distributed/tensor/_api.py", 774),
            ],
            "all_gather_into_tensor",
            "the all-gather of a sharded tensor",
        ),
        (
            [
                StackFrame("all_gather", C10D, 4287),
                StackFrame("gather_object", C10D, 3631),
                StackFrame("_DistWrapper.gather_object", f"{SITE}/torch/distributed/checkpoint/utils.py", 135),
                StackFrame("save", f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py", 196),
            ],
            "gather_object",
            "the distributed checkpoint save",
        ),
        (
            [
                StackFrame("all_gather", C10D, 4287),
                StackFrame("_full_pre_state_dict_hook", f"{SITE}/torch/distributed/fsdp/_state_dict_utils.py", 295),
            ],
            "all_gather",
            "FSDP's state dict gathering",
        ),
        (
            [StackFrame("DistributedDataParallel._sync_buffers", f"{SITE}/torch/nn/parallel/distributed.py", 1)],
            "broadcast",
            "DDP's buffer broadcast",
        ),
    ],
)
def test_collective_issued_by_a_feature_of_torch(inner: list[StackFrame], name: str, via: str) -> None:
    assert collective_of([*inner, StackFrame("main", SCRIPT, 3)]) == (name, via)


class TestWaitReason:
    @pytest.mark.parametrize(
        ("line", "kind"),
        [
            ("lock.acquire()", "lock"),
            ("with self._lock:", "lock"),
            ("with Guard.mutex, open(path) as f:", "lock"),
            ("item = queue.get()", "lock"),
            ("fcntl.flock(handle, fcntl.LOCK_EX)", "lock"),
            ("os.waitpid(pid, 0)", "lock"),
            ("answer = input('go on? ')", "person"),
            ("sys.stdin.readline()", "person"),
            ("data = sock.recv(4096)", "service"),
            ("peer, _ = listener.accept()", "service"),
            ("time.sleep(600)", "sleep"),
            ("value = store.get('ready')", "store"),
            ("x = model(batch)", None),
            ("config = options.get('name')", None),
        ],
    )
    def test_wait_reason_from_the_line_of_a_c_call(self, line: str, kind: str | None) -> None:
        found = wait_reason([StackFrame("main", SCRIPT, 3)], line)
        assert (found.kind if found else None) == kind

    def test_wait_reason_with_the_highest_priority(self) -> None:
        wait = StackFrame("wait", "/usr/lib/python3.11/threading.py", 320)
        tracker = StackFrame("_wait_for_result", f"{SITE}/wandb/sdk/mailbox.py", 12)
        found = wait_reason([wait, tracker, StackFrame("main", SCRIPT, 3)], "run.log(x)")
        assert found and found.kind == "service"

    def test_wait_reason_of_a_user_dataset_in_a_loader_without_workers(self) -> None:
        fetch = StackFrame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 54)
        frames = [StackFrame("Images.__getitem__", SCRIPT, 9), fetch, StackFrame("main", SCRIPT, 3)]
        found = wait_reason(frames, "time.sleep(600)")
        assert found and found.kind == "loader"

    @pytest.mark.parametrize(
        ("waits_in", "kind"),
        [("rpc_wait_bit_killable", "service"), ("anon_pipe_read", "lock"), ("n_tty_read", "person"), ("0", None)],
    )
    def test_wait_kind_from_the_kernel_function(self, waits_in: str, kind: str | None) -> None:
        found = kernel_wait_reason(waits_in)
        assert (found.kind if found else None) == kind

    @pytest.mark.parametrize(
        ("waits_in", "what"),
        [
            ("futex_do_wait", "for a lock or another of its own threads"),
            ("anon_pipe_write", "for the other end of a pipe"),
            ("do_wait", "for one of its own processes"),
        ],
    )
    def test_wait_text_from_the_kernel_function(self, waits_in: str, what: str) -> None:
        found = kernel_wait_reason(waits_in)
        assert found and found.what == what


class TestRankState:
    def state(self, text: str, samples: list[Sample], **seen: Any) -> RankState:
        of = job(2, [1])
        whole = observation(of, {101: samples}, {SCRIPT: text})
        each = msgspec.structs.replace(whole.seen[0], **seen)
        whole = msgspec.structs.replace(whole, seen=[each])
        return next(state for state in rank_states(whole, ScriptFiles(whole.sources)) if state.rank == 1)

    def test_waiting_for_a_work_handle_is_its_collective(self) -> None:
        text = "def main():\n    work = dist.all_reduce(x, async_op=True)\n    y = f()\n    work.wait()\n"
        found = self.state(text, still(stack(None, ("main", 4))))
        assert (found.collective, found.is_waiting) == ("all_reduce", True)

    def test_stack_of_a_joined_thread_is_that_of_its_rank(self) -> None:
        joins = [StackFrame("Thread.join", "/usr/lib/python3.11/threading.py", 1112), *stack(None, ("main", 9))]
        thread = ThreadStack("saver", stack("barrier", ("save", 4)))
        samples = [msgspec.structs.replace(sample, others=[thread]) for sample in still(joins)]
        found = self.state("", samples)
        assert (found.collective, found.row.function) == ("barrier", "save")
        assert [frame.line for frame in found.frames] == [9, 4], "the frame of the main thread explains the wait"

    @pytest.mark.parametrize(
        "text",
        [
            "def main():\n    while True:\n        try:\n            return connect(x)\n"
            "        except OSError:\n            time.sleep(60)\n",
            "def main():\n    while True:\n        try:\n            return connect(x).recv(9)\n"
            "        except OSError:\n            time.sleep(60)\n",
            "def main():\n    for n in range(9):\n        try:\n            return urlopen(x)\n"
            "        except OSError:\n            time.sleep(2**n)\n",
        ],
    )
    def test_sleep_of_a_polling_loop_waits_for_what_it_polls(self, text: str) -> None:
        found = self.state(text, still(stack(None, ("main", 6)))).wait_reason
        assert found and found.kind == "service"

    def test_sleep_of_a_loop_without_polling_is_a_sleep(self) -> None:
        text = "def main():\n    for n in range(9):\n        connect(x)\n        time.sleep(60)\n"
        found = self.state(text, still(stack(None, ("main", 4)))).wait_reason
        assert found and found.kind == "sleep"

    def test_queue_joined_at_exit_is_exiting(self) -> None:
        lib = "/usr/lib/python3.11"
        joins = [
            StackFrame("Condition.wait", f"{lib}/threading.py", 327),
            StackFrame("Queue.join", f"{lib}/queue.py", 90),
        ]
        assert self.state("", still(joins)).is_exiting
        assert not self.state("", still([*joins, StackFrame("<module>", SCRIPT, 3)])).is_exiting

    def test_polling_loop_makes_no_progress(self) -> None:
        text = "def main():\n    while not path.exists():\n        time.sleep(1)\n"
        samples = [sample_at(stack(None, ("main", 3)), at, switches=int(at)) for at in (1000.0, 1001.0)]
        found = self.state(text, samples)
        assert found.wait_reason is not None
        assert (found.has_progressed, found.wait_reason.kind) == (False, "service")

    def test_loop_with_a_collective_makes_progress(self) -> None:
        text = "def main():\n    while True:\n        time.sleep(1)\n        dist.barrier()\n"
        samples = [sample_at(stack(None, ("main", 3)), at, switches=int(at)) for at in (1000.0, 1001.0)]
        assert self.state(text, samples).has_progressed

    @pytest.mark.parametrize(("moved", "is_stuck"), [(True, False), (False, True)])
    def test_waiting_for_a_busy_command_is_progress(self, moved: bool, is_stuck: bool) -> None:
        runs = [StackFrame("run", "/usr/lib/python3.11/subprocess.py", 550), *stack(None, ("main", 2))]
        child = Child(pid=7, command=["tar", "xf"], kind="other", process_state="S", moved=moved)
        found = self.state("", still(runs), children=[child])
        assert found.has_progressed is not is_stuck

    def test_busy_thread_is_no_progress_of_a_main_thread_in_a_collective(self) -> None:
        busy = ThreadStack("stats", stack(None, ("count", 4)))
        samples = [
            msgspec.structs.replace(sample_at(stack("barrier", ("main", 2)), at, cpu_s=at), others=[busy])
            for at in (1000.0, 1001.0)
        ]
        assert self.state("", samples).is_waiting

    def test_code_of_a_module_during_import_is_start_up(self) -> None:
        importing = [StackFrame("f", "/home/ana/run/tables.py", 4), StackFrame("_call", IMPORTING, 241)]
        frames = [*importing, *stack(None, ("<module>", 2))]
        samples = [sample_at(frames, 1000.0), sample_at(frames, 1001.0, cpu_s=2.0)]
        assert self.state("", samples).row.state == "starting"


def test_source_of_python_c_is_read() -> None:
    text = "if rank == 1:\n    dist.all_reduce(x)\ndist.barrier()\n"
    whole = observation(
        job(3),
        {
            100 + rank: still(stack(call, ("<module>", line), path="<string>"))
            for rank, (call, line) in enumerate([("barrier", 3), ("all_reduce", 2), ("barrier", 3)])
        },
        {},
    )
    seen = [
        msgspec.structs.replace(s, process=msgspec.structs.replace(s.process, command=["python", "-c", text]))
        for s in whole.seen
    ]
    verdict = judge_job(msgspec.structs.replace(whole, seen=seen)).verdict
    assert (verdict.culprits, verdict.branch) == ([1], "<string>:1")


def test_child_that_outlived_its_rank_is_not_the_rank() -> None:
    bootstrap = StackFrame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
    helper = still([StackFrame("watch", SCRIPT, 2), bootstrap, *stack(None, ("main", 5))])
    wait = still(stack("barrier", ("main", 6)))
    report = judge_job(observation(job(3), {100: wait, 101: helper, 102: wait}, {}))
    assert (report.verdict.cause, report.verdict.culprits) == ("rank-died-survivors-wait", [1])
    assert (report.ranks[1].state, report.ranks[1].where) == ("dead", None)
