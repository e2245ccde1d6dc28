"""Ranks that no environment gives: from stack frames, arguments, connections and control groups."""

import pytest
from ddpwizard.app.jobs import ranks_from_locals
from ddpwizard.app.jobs.ranks_from_locals import rank_hints
from ddpwizard.app.system import containers
from ddpwizard.app.system.pyspy import SpyFrame, SpyLocal

TORCH = "/venv/lib/python3.11/site-packages/torch"
STDLIB = "/usr/lib/python3.11/multiprocessing"
RUN = SpyFrame("BaseProcess.run", f"{STDLIB}/process.py", locals=[])


def frame(name: str, path: str = "/home/ana/train.py", **arguments: str) -> SpyFrame:
    return SpyFrame(name, path, locals=[SpyLocal(name, value, True) for name, value in arguments.items()])


def wrap(index: int) -> SpyFrame:
    return frame("_wrap", f"{TORCH}/multiprocessing/spawn.py", fn="<function>", i=str(index), args="(4,)")


def barrier() -> SpyFrame:
    return frame("barrier", f"{TORCH}/distributed/distributed_c10d.py", group="None", rank="9")


class TestWords:
    def test_rank_of_mp_spawn(self) -> None:
        hints = rank_hints([barrier(), frame("work", gpu="1", world_size="4"), wrap(1), RUN])
        assert (hints.rank, hints.index, hints.world_size, hints.distributed) == (None, 1, 4, True)
        assert hints.entry == "/home/ana/train.py:work"

    def test_arguments_of_the_outermost_function_count_first(self) -> None:
        inner = SpyFrame(
            "step", "/home/ana/train.py", locals=[SpyLocal("rank", "0", False), SpyLocal("rank", "7", True)]
        )
        assert rank_hints([barrier(), inner, frame("work", rank="2"), RUN]).rank == 2

    def test_rank_waiting_in_init_process_group(self) -> None:
        meeting = frame("init_process_group", f"{TORCH}/distributed/distributed_c10d.py", rank="3", world_size="4")
        hints = rank_hints([meeting, frame("work", rank="0"), RUN])
        assert (hints.rank, hints.world_size) == (3, 4)

    def test_world_size_by_its_short_name(self) -> None:
        assert rank_hints([barrier(), frame("entry", rank="0", world="2", port="29500"), RUN]).world_size == 2

    def test_frames_above_a_fork_are_ignored(self) -> None:
        hints = rank_hints([barrier(), frame("work", index="1"), RUN, frame("main", rank="0", world_size="2")])
        assert (hints.rank, hints.world_size, hints.entry) == (None, None, "/home/ana/train.py:work")

    def test_helper_process_forked_by_a_rank_is_no_rank(self) -> None:
        hints = rank_hints([frame("compress"), RUN, barrier(), frame("work", rank="1"), wrap(1), RUN])
        assert (hints.rank, hints.index, hints.distributed, hints.entry) == (
            None,
            None,
            False,
            "/home/ana/train.py:compress",
        )

    def test_child_that_a_rank_forks_is_no_rank_before_it_runs(self) -> None:
        rank = [frame("work", rank="1", world_size="2"), wrap(1), RUN]
        fork = [frame("Popen._launch", f"{STDLIB}/popen_fork.py"), frame("BaseProcess.start", RUN.filename)]
        starts = frame("BaseProcess._bootstrap", RUN.filename)
        for child in ([*fork, *rank], [starts, *fork, *rank]):
            assert rank_hints(child) == ranks_from_locals.RankHints()
        assert rank_hints([fork[1], *rank]).rank == 1

    def test_process_that_imports_torch_is_no_rank_yet(self) -> None:
        imported = [SpyFrame("<module>", f"{TORCH}/{name}") for name in ("distributed/__init__.py", "__init__.py")]
        decorator = frame("_exception_logger", f"{TORCH}/distributed/c10d_logger.py")
        assert not rank_hints([decorator, *imported, frame("_main", f"{STDLIB}/spawn.py")]).distributed

    def test_data_loader_worker_is_no_rank(self) -> None:
        loop = frame("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", worker_id="0")
        assert rank_hints([loop, RUN, barrier()]).loader
        assert not rank_hints([loop, RUN, barrier()]).distributed

    def test_parent_reports_the_number_of_spawned_ranks(self) -> None:
        start = frame("start_processes", f"{TORCH}/multiprocessing/spawn.py", nprocs="8")
        assert rank_hints([start, frame("main")]).spawns == 8

    @pytest.mark.parametrize("value", ["-1", "None", "<object>", "1e3", "99999999999999999999", "\u0663", ""])
    def test_invalid_values_are_no_rank(self, value: str) -> None:
        assert rank_hints([frame("work", rank=value), RUN]).rank is None

    def test_empty_stack_gives_no_hints(self) -> None:
        assert rank_hints([]) == ranks_from_locals.RankHints()


class TestContainers:
    ID = "0123456789abcdef" * 4

    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("0::/system.slice/docker-{}.scope", "0123456789ab"),
            ("12:memory:/docker/{}\n0::/", "0123456789ab"),
            ("0::/kubepods.slice/kubepods-pod7.slice/cri-containerd-{}.scope", "0123456789ab"),
            ("4:memory:/kubepods/burstable/pod7/{}", "0123456789ab"),
            ("0::/machine.slice/libpod-{}.scope/container", "0123456789ab"),
            ("0::/lxc.payload.box7/init.scope", "box7"),
            ("0::/machine.slice/machine-box8.scope", "box8"),
            ("0::/user.slice/user-1000.slice/session-2.scope", ""),
            ("0::/", ""),
            ("", ""),
        ],
    )
    def test_container_name_from_a_control_group(self, path: str, name: str) -> None:
        assert containers.container_of(path.format(self.ID)) == name
