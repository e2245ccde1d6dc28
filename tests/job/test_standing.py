"""The user's frames and the collective among the frames of a stack."""

from typing import Any

import msgspec
import pytest
from ddpwizard.app.job.code.source import Sources
from ddpwizard.app.job.doing import doing, in_kernel
from ddpwizard.app.job.frame import Frame
from ddpwizard.app.job.liveness import IMPORTING
from ddpwizard.app.job.standing import Stand, collective_of, stands, user_frames
from ddpwizard.app.job.types import Child, Sample, ThreadStack
from ddpwizard.app.job.verdict import judge
from helpers.ranks_at import BACKWARD, C10D, SCRIPT, WRAPPER, job, look, observation, stack, still

SITE = "/venv/lib/python3.11/site-packages"


def test_installed_code_and_the_standard_library_are_not_the_users() -> None:
    frames = [
        Frame("wait", "/usr/lib/python3.11/threading.py", 629),
        Frame("fit", f"{SITE}/lightning/trainer.py", 10),
        Frame("step", "/home/ana/run/lib/model.py", 7),
        Frame("_find_and_load", "<frozen importlib._bootstrap>", 1),
        Frame("main", SCRIPT, 3),
        Frame("_run_module_as_main", "<frozen runpy>", 198),
    ]
    assert [(frame.function, frame.line) for frame in user_frames(frames)] == [("main", 3), ("step", 7)]


@pytest.mark.parametrize("root", ["/home/ana/pytorch", SITE])
def test_torch_is_not_the_users_wherever_it_lies(root: str) -> None:
    frames = [Frame("all_reduce", f"{root}/torch/distributed/distributed_c10d.py", 1), Frame("main", SCRIPT, 3)]
    assert [frame.path for frame in user_frames(frames)] == [SCRIPT]
    assert collective_of(frames) == ("all_reduce", "")


def test_an_installed_training_program_is_its_own_user_code() -> None:
    frames = [
        Frame("barrier", C10D, 1),
        Frame("train", f"{SITE}/recipes/full.py", 88),
        Frame("run", "<frozen runpy>", 2),
    ]
    assert [frame.line for frame in user_frames(frames)] == [88]
    assert collective_of(frames) == ("barrier", "")


@pytest.mark.parametrize(
    ("inner", "name", "via"),
    [
        (
            [Frame("broadcast", C10D, 1), WRAPPER, Frame("broadcast_object_list", C10D, 2), WRAPPER],
            "broadcast_object_list",
            "",
        ),
        ([Frame("_store_based_barrier", C10D, 1), Frame("init_process_group", C10D, 2)], "init_process_group", ""),
        ([Frame("_helper", C10D, 1)], None, ""),
        (BACKWARD, "all_reduce", "gradient all-reduce (DDP)"),
        (
            [
                Frame("reduce_scatter_tensor", C10D, 1),
                Frame("hook", f"{SITE}/torch/distributed/fsdp/x.py", 2),
                *BACKWARD,
            ],
            "reduce_scatter_tensor",
            "",
        ),
        (
            [Frame("_sync_buffers", f"{SITE}/torch/nn/parallel/distributed.py", 1)],
            "broadcast",
            "DDP's broadcast of buffers",
        ),
        ([Frame("barrier", C10D, 1), Frame("wait_for_everyone", f"{SITE}/accelerate/state.py", 2)], "barrier", ""),
        ([], None, ""),
    ],
)
def test_the_collective_is_named_as_the_caller_knows_it(inner: list[Frame], name: str | None, via: str) -> None:
    assert collective_of([*inner, Frame("main", SCRIPT, 3)]) == (name, via)


def test_a_collective_below_a_users_callback_does_not_count() -> None:
    assert collective_of([Frame("hook", SCRIPT, 9), *stack("backward", ("main", 3))]) == (None, "")


class TestUserFrames:
    def test_console_script_is_only_the_door_to_an_installed_program(self) -> None:
        frames = [
            Frame("barrier", C10D, 1),
            Frame("fit", f"{SITE}/lightning/trainer.py", 40),
            Frame("train", f"{SITE}/recipes/full.py", 88),
            Frame("<module>", "/venv/bin/recipe", 8),
        ]
        assert [(frame.path, frame.line) for frame in user_frames(frames)] == [(f"{SITE}/recipes/full.py", 88)]

    def test_line_that_spawns_a_process_is_nobodys(self) -> None:
        frames = [
            Frame("worker", SCRIPT, 5),
            Frame("spawn_main", "/usr/lib/python3.11/multiprocessing/spawn.py", 122),
            Frame("<module>", "<string>", 1),
        ]
        assert [frame.line for frame in user_frames(frames)] == [5]
        assert user_frames(frames[1:]) == []

    @pytest.mark.parametrize("path", ["<string>", "<stdin>", "<ipython-input-3-ab>", "/tmp/ipykernel_7/12.py"])
    def test_text_typed_in_is_the_users(self, path: str) -> None:
        assert user_frames([Frame("<module>", path, 3)]) != []


@pytest.mark.parametrize(
    ("inner", "name", "via"),
    [
        (
            [
                Frame("wait_tensor", f"{SITE}/torch/distributed/_functional_collectives.py", 142),
                Frame("redistribute_local_tensor", f"{SITE}/torch/distributed/tensor/_redistribute.py", 1766),
                Frame("DTensor.full_tensor", f"{SITE}/torch/distributed/tensor/_api.py", 774),
            ],
            "all_gather_into_tensor",
            "the gathering of a sharded tensor",
        ),
        (
            [
                Frame("all_gather", C10D, 4287),
                Frame("gather_object", C10D, 3631),
                Frame("_DistWrapper.gather_object", f"{SITE}/torch/distributed/checkpoint/utils.py", 135),
                Frame("save", f"{SITE}/torch/distributed/checkpoint/state_dict_saver.py", 196),
            ],
            "gather_object",
            "the saving of a distributed checkpoint",
        ),
        (
            [
                Frame("all_gather", C10D, 4287),
                Frame("_full_pre_state_dict_hook", f"{SITE}/torch/distributed/fsdp/_state_dict_utils.py", 295),
            ],
            "all_gather",
            "FSDP's gathering of the state dict",
        ),
        (
            [Frame("DistributedDataParallel._sync_buffers", f"{SITE}/torch/nn/parallel/distributed.py", 1)],
            "broadcast",
            "DDP's broadcast of buffers",
        ),
    ],
)
def test_what_a_feature_of_torch_calls_on_the_users_behalf(inner: list[Frame], name: str, via: str) -> None:
    assert collective_of([*inner, Frame("main", SCRIPT, 3)]) == (name, via)


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
        found = doing([Frame("main", SCRIPT, 3)], line)
        assert (found.kind if found else None) == kind

    def test_says_the_most_telling_of_several(self) -> None:
        wait = Frame("wait", "/usr/lib/python3.11/threading.py", 320)
        tracker = Frame("_wait_for_result", f"{SITE}/wandb/sdk/mailbox.py", 12)
        found = doing([wait, tracker, Frame("main", SCRIPT, 3)], "run.log(x)")
        assert found and found.kind == "service"

    def test_data_set_of_the_user_in_a_loader_without_workers(self) -> None:
        fetch = Frame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 54)
        frames = [Frame("Images.__getitem__", SCRIPT, 9), fetch, Frame("main", SCRIPT, 3)]
        found = doing(frames, "time.sleep(600)")
        assert found and found.kind == "loader"

    @pytest.mark.parametrize(
        ("waits_in", "kind"),
        [("rpc_wait_bit_killable", "service"), ("anon_pipe_read", "lock"), ("n_tty_read", "person"), ("0", None)],
    )
    def test_by_what_the_kernel_says(self, waits_in: str, kind: str | None) -> None:
        found = in_kernel(waits_in)
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
        found = in_kernel(waits_in)
        assert found and found.what == what


class TestStands:
    def stand(self, text: str, looks: list[Sample], **seen: Any) -> Stand:
        of = job(2, [1])
        whole = observation(of, {101: looks}, {SCRIPT: text})
        each = msgspec.structs.replace(whole.seen[0], **seen)
        whole = msgspec.structs.replace(whole, seen=[each])
        return next(stand for stand in stands(whole, Sources(whole.sources)) if stand.rank == 1)

    def test_handle_that_is_waited_for_is_its_collective(self) -> None:
        text = "def main():\n    work = dist.all_reduce(x, async_op=True)\n    y = f()\n    work.wait()\n"
        found = self.stand(text, still(stack(None, ("main", 4))))
        assert (found.collective, found.waits) == ("all_reduce", True)

    def test_thread_that_is_joined_stands_for_its_rank(self) -> None:
        joins = [Frame("Thread.join", "/usr/lib/python3.11/threading.py", 1112), *stack(None, ("main", 9))]
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
        joins = [Frame("Condition.wait", f"{lib}/threading.py", 327), Frame("Queue.join", f"{lib}/queue.py", 90)]
        assert self.stand("", still(joins)).leaves
        assert not self.stand("", still([*joins, Frame("<module>", SCRIPT, 3)])).leaves

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
        runs = [Frame("run", "/usr/lib/python3.11/subprocess.py", 550), *stack(None, ("main", 2))]
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
        importing = [Frame("f", "/home/ana/run/tables.py", 4), Frame("_call", IMPORTING, 241)]
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
    verdict = judge(msgspec.structs.replace(whole, seen=seen)).verdict
    assert (verdict.culprits, verdict.branch) == ([1], "<string>:1")


def test_process_that_outlived_its_rank_is_not_taken_for_it() -> None:
    bootstrap = Frame("BaseProcess._bootstrap", "/usr/lib/python3.11/multiprocessing/process.py", 314)
    helper = still([Frame("watch", SCRIPT, 2), bootstrap, *stack(None, ("main", 5))])
    wait = still(stack("barrier", ("main", 6)))
    report = judge(observation(job(3), {100: wait, 101: helper, 102: wait}, {}))
    assert (report.verdict.cause, report.verdict.culprits) == ("rank-died-survivors-wait", [1])
    assert (report.ranks[1].state, report.ranks[1].where) == ("dead", None)
