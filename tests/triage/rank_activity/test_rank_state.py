"""The user's frames and the collective among the frames of a stack."""

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
from helpers.synthetic_job import BACKWARD, C10D, SCRIPT, WRAPPER, job, look, observation, stack, still

SITE = "/venv/lib/python3.11/site-packages"


def test_installed_code_and_the_standard_library_are_not_the_users() -> None:
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
def test_torch_is_not_the_users_wherever_it_lies(root: str) -> None:
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
            "DDP's broadcast of buffers",
        ),
        (
            [StackFrame("barrier", C10D, 1), StackFrame("wait_for_everyone", f"{SITE}/accelerate/state.py", 2)],
            "barrier",
            "",
        ),
        ([], None, ""),
    ],
)
def test_the_collective_is_named_as_the_caller_knows_it(inner: list[StackFrame], name: str | None, via: str) -> None:
    assert collective_of([*inner, StackFrame("main", SCRIPT, 3)]) == (name, via)


def test_a_collective_below_a_users_callback_does_not_count() -> None:
    assert collective_of([StackFrame("hook", SCRIPT, 9), *stack("backward", ("main", 3))]) == (None, "")


class TestUserFrames:
    def test_console_script_is_only_the_door_to_an_installed_program(self) -> None:
        frames = [
            StackFrame("barrier", C10D, 1),
            StackFrame("fit", f"{SITE}/lightning/trainer.py", 40),
            StackFrame("train", f"{SITE}/recipes/full.py", 88),
            StackFrame("<module>", "/venv/bin/recipe", 8),
        ]
        assert [(frame.path, frame.line) for frame in user_frames(frames)] == [(f"{SITE}/recipes/full.py", 88)]

    def test_line_that_spawns_a_process_is_nobodys(self) -> None:
        frames = [
            StackFrame("worker", SCRIPT, 5),
            StackFrame("spawn_main", "/usr/lib/python3.11/multiprocessing/spawn.py", 122),
            StackFrame("<module>", "<string>", 1),
        ]
        assert [frame.line for frame in user_frames(frames)] == [5]
        assert user_frames(frames[1:]) == []

    @pytest.mark.parametrize("path", ["<string>", "<stdin>", "<ipython-input-3-ab>", "/tmp/ipykernel_7/12.py"])
    def test_text_typed_in_is_the_users(self, path: str) -> None:
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
            "the gathering of a sharded tensor",
        ),
        (
            [
                StackFrame("all_gather", C10D, 4287),
                StackFrame("gather_object", C10D, 3631),
                StackFrame("_DistWrapper.gather_object", f"{SITE}/torch/distributed/checkpoint/utils.py", 135),
                StackFrame("save", f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py", 196),
            ],
            "gather_object",
            "the saving of a distributed checkpoint",
        ),
        (
            [
                StackFrame("all_gather", C10D, 4287),
                StackFrame("_full_pre_state_dict_hook", f"{SITE}/torch/distributed/fsdp/_state_dict_utils.py", 295),
            ],
            "all_gather",
            "FSDP's gathering of the state dict",
        ),
        (
            [StackFrame("DistributedDataParallel._sync_buffers", f"{SITE}/torch/nn/parallel/distributed.py", 1)],
            "broadcast",
            "DDP's broadcast of buffers",
        ),
    ],
)
def test_what_a_feature_of_torch_calls_on_the_users_behalf(inner: list[StackFrame], name: str, via: str) -> None:
    assert collective_of([*inner, StackFrame("main", SCRIPT, 3)]) == (name, via)


class TestDoing:
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
    def test_is_read_from_the_line_of_a_call_into_c(self, line: str, kind: str | None) -> None:
        found = wait_reason([StackFrame("main", SCRIPT, 3)], line)
        assert (found.kind if found else None) == kind

    def test_says_the_most_telling_of_several(self) -> None:
        wait = StackFrame("wait", "/usr/lib/python3.11/threading.py", 320)
        tracker = StackFrame("_wait_for_result", f"{SITE}/wandb/sdk/mailbox.py", 12)
        found = wait_reason([wait, tracker, StackFrame("main", SCRIPT, 3)], "run.log(x)")
        assert found and found.kind == "service"

    def test_data_set_of_the_user_in_a_loader_without_workers(self) -> None:
        fetch = StackFrame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 54)
        frames = [StackFrame("Images.__getitem__", SCRIPT, 9), fetch, StackFrame("main", SCRIPT, 3)]
        found = wait_reason(frames, "time.sleep(600)")
        assert found and found.kind == "loader"

    @pytest.mark.parametrize(
        ("waits_in", "kind"),
        [("rpc_wait_bit_killable", "service"), ("anon_pipe_read", "lock"), ("n_tty_read", "person"), ("0", None)],
    )
    def test_by_what_the_kernel_says(self, waits_in: str, kind: str | None) -> None:
        found = kernel_wait_reason(waits_in)
        assert (found.kind if found else None) == kind

    @pytest.mark.parametrize(
        ("waits_in", "what"),
        [
            ("futex_do_wait", "for a lock or another thread of its own"),
            ("anon_pipe_write", "for the other end of a pipe"),
            ("do_wait", "for a process of its own"),
        ],
    )
    def test_words_for_what_the_kernel_says(self, waits_in: str, what: str) -> None:
        found = kernel_wait_reason(waits_in)
        assert found and found.what == what


class TestStands:
    def stand(self, text: str, looks: list[Sample], **seen: Any) -> RankState:
        of = job(2, [1])
        whole = observation(of, {101: looks}, {SCRIPT: text})
        each = msgspec.structs.replace(whole.seen[0], **seen)
        whole = msgspec.structs.replace(whole, seen=[each])
        return next(stand for stand in rank_states(whole, ScriptFiles(whole.sources)) if stand.rank == 1)

    def test_handle_that_is_waited_for_is_its_collective(self) -> None:
        text = "def main():\n    work = dist.all_reduce(x, async_op=True)\n    y = f()\n    work.wait()\n"
        found = self.stand(text, still(stack(None, ("main", 4))))
        assert (found.collective, found.waits) == ("all_reduce", True)

    def test_thread_that_is_joined_stands_for_its_rank(self) -> None:
        joins = [StackFrame("Thread.join", "/usr/lib/python3.11/threading.py", 1112), *stack(None, ("main", 9))]
        thread = ThreadStack("saver", stack("barrier", ("save", 4)))
        looks = [msgspec.structs.replace(sample, others=[thread]) for sample in still(joins)]
        found = self.stand("", looks)
        assert (found.collective, found.row.function) == ("barrier", "save")
        assert [frame.line for frame in found.frames] == [9, 4], "what the main thread does says why"

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
    def test_pause_before_the_next_attempt_waits_for_whom_it_asks(self, text: str) -> None:
        found = self.stand(text, still(stack(None, ("main", 6)))).doing
        assert found and found.kind == "service"

    def test_pause_of_a_loop_without_attempts_is_a_pause(self) -> None:
        text = "def main():\n    for n in range(9):\n        connect(x)\n        time.sleep(60)\n"
        found = self.stand(text, still(stack(None, ("main", 4)))).doing
        assert found and found.kind == "sleep"

    def test_queue_that_is_joined_at_exit_has_no_script_below_it(self) -> None:
        lib = "/usr/lib/python3.11"
        joins = [
            StackFrame("Condition.wait", f"{lib}/threading.py", 327),
            StackFrame("Queue.join", f"{lib}/queue.py", 90),
        ]
        assert self.stand("", still(joins)).leaves
        assert not self.stand("", still([*joins, StackFrame("<module>", SCRIPT, 3)])).leaves

    def test_loop_that_asks_again_and_again_does_not_move(self) -> None:
        text = "def main():\n    while not path.exists():\n        time.sleep(1)\n"
        looks = [look(stack(None, ("main", 3)), at, switches=int(at)) for at in (1000.0, 1001.0)]
        found = self.stand(text, looks)
        assert found.doing is not None
        assert (found.moved, found.doing.kind) == (False, "service")

    def test_loop_with_a_collective_in_it_moves(self) -> None:
        text = "def main():\n    while True:\n        time.sleep(1)\n        dist.barrier()\n"
        looks = [look(stack(None, ("main", 3)), at, switches=int(at)) for at in (1000.0, 1001.0)]
        assert self.stand(text, looks).moved

    @pytest.mark.parametrize(("moved", "is_stuck"), [(True, False), (False, True)])
    def test_command_that_is_still_at_work_is_no_standstill(self, moved: bool, is_stuck: bool) -> None:
        runs = [StackFrame("run", "/usr/lib/python3.11/subprocess.py", 550), *stack(None, ("main", 2))]
        child = Child(pid=7, command=["tar", "xf"], kind="other", process_state="S", moved=moved)
        found = self.stand("", still(runs), children=[child])
        assert found.moved is not is_stuck

    def test_busy_thread_beside_a_main_thread_in_a_collective_is_no_sign_of_life(self) -> None:
        busy = ThreadStack("stats", stack(None, ("count", 4)))
        looks = [
            msgspec.structs.replace(look(stack("barrier", ("main", 2)), at, cpu_s=at), others=[busy])
            for at in (1000.0, 1001.0)
        ]
        assert self.stand("", looks).waits

    def test_work_of_a_module_while_it_is_imported_is_start_up(self) -> None:
        importing = [StackFrame("f", "/home/ana/run/tables.py", 4), StackFrame("_call", IMPORTING, 241)]
        frames = [*importing, *stack(None, ("<module>", 2))]
        looks = [look(frames, 1000.0), look(frames, 1001.0, cpu_s=2.0)]
        assert self.stand("", looks).row.state == "starting"


def test_program_given_as_text_is_read_too() -> None:
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


def test_process_that_outlived_its_rank_is_not_taken_for_it() -> None:
    bootstrap = StackFrame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
    helper = still([StackFrame("watch", SCRIPT, 2), bootstrap, *stack(None, ("main", 5))])
    wait = still(stack("barrier", ("main", 6)))
    report = judge_job(observation(job(3), {100: wait, 101: helper, 102: wait}, {}))
    assert (report.verdict.cause, report.verdict.culprits) == ("rank-died-survivors-wait", [1])
    assert (report.ranks[1].state, report.ranks[1].where) == ("dead", None)
