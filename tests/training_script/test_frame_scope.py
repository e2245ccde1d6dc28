"""Conditions in the scope of a stack frame, in every form that scripts use."""

import time

import pytest
from ddpwizard.app.training_script.frame_scope import RankContext
from ddpwizard.app.training_script.line_queries import LineQueries
from helpers.synthetic_job import lines_with

RANKS = (0, 1, 2, 3)


def condition(text: str) -> list[bool | None]:
    """Return the value of the only ``if`` that ends with ``# HERE``, for each of four ranks."""
    (line,) = lines_with(text, "# HERE")
    source = LineQueries(text)
    (guard,) = [g for g in source.guards(line + 1, source.scope(line + 1, "main")) if g.line == line]
    return [guard.scope.condition(guard.test, RankContext(rank, rank % 2, 4)) for rank in RANKS]


class TestConditions:
    @pytest.mark.parametrize(
        ("setting", "test", "who"),
        [
            ("me = dist.get_rank()", "me == 2", [2]),
            ("me, size = dist.get_rank(), dist.get_world_size()", "me == size - 1", [3]),
            ("env = os.environ", "int(env['RANK']) == 1", [1]),
            ("role = 'eval' if rank == 3 else 'train'", "role == 'eval'", [3]),
            ("chosen = [0, 2]", "rank in chosen", [0, 2]),
            ("chosen = {1: 'log'}", "chosen.get(rank) == 'log'", [1]),
            ("pass", "rank in range(2)", [0, 1]),
            ("pass", "0 < rank < 3", [1, 2]),
            ("pass", "local_rank == 1", [1, 3]),
            ("pass", "trainer.is_global_zero", [0]),
            ("pass", "accelerator.is_main_process", [0]),
            ("pass", "accelerator.is_last_process", [3]),
            ("pass", "self.args.is_world_process_zero", [0]),
            ("pass", "xm.is_master_ordinal()", [0, 2]),  # local=True is its default
            ("pass", "xm.is_master_ordinal(False)", [0]),
            ("pass", "rank % 2", [1, 3]),
            ("pass", "rank & 1", [1, 3]),
            ("pass", "not bool(rank)", [0]),
            ("pass", "min(rank, 1) == 0", [0]),
            ("pass", "(first := rank == 0)", [0]),
            ("quiet = True\n    if rank == 2:\n        quiet = False", "not quiet", [2]),
        ],
    )
    def test_names_and_containers(self, setting: str, test: str, who: list[int]) -> None:
        text = f"def main():\n    {setting}\n    if {test}:  # HERE\n        dist.barrier()\n"
        assert condition(text) == [rank in who for rank in RANKS]

    @pytest.mark.parametrize(
        "helper",
        [
            "def talks():\n    if not dist.is_initialized():\n        return True\n    return dist.get_rank() == 0\n",
            "def talks():\n    rank = dist.get_rank()\n    return rank == 0\n",
            "def talks(rank=dist.get_rank()):\n    return rank == 0\n",
            "talks = lambda: dist.get_rank() == 0\n",
        ],
    )
    def test_helper_functions(self, helper: str) -> None:
        text = f"{helper}\ndef main():\n    if talks():  # HERE\n        dist.barrier()\n"
        assert condition(text) == [True, False, False, False]

    @pytest.mark.parametrize(
        "body",
        [
            "    def __init__(self):\n        self.lead = dist.get_rank() == 0\n",
            "    def __init__(self, rank):\n        self._rank = rank\n    @property\n    def lead(self):\n"
            "        return self._rank == 0\n",
        ],
    )
    def test_attributes_and_properties(self, body: str) -> None:
        text = f"class T:\n{body}    def main(self):\n        if self.lead:  # HERE\n            dist.barrier()\n"
        assert condition(text) == [True, False, False, False]

    @pytest.mark.parametrize("start", ["mp.spawn(main, args=(4,), nprocs=4)", "torch.multiprocessing.spawn(main)"])
    def test_index_that_spawn_passes(self, start: str) -> None:
        text = f"def main(index, size=4):\n    if index == 0:  # HERE\n        dist.barrier()\n{start}\n"
        assert condition(text) == [True, False, False, False]

    def test_index_of_a_loop_over_processes(self) -> None:
        text = (
            "def main(size, index):\n    if index == 3:  # HERE\n        dist.barrier()\n"
            "for number in range(4):\n    mp.Process(target=main, args=(4, number)).start()\n"
        )
        assert condition(text) == [False, False, False, True]

    @pytest.mark.parametrize("test", ["step == 0", "loss < 1", "rank == offset", "check(rank)", "1 << (1 << 99)"])
    def test_unknown_values_are_not_guessed(self, test: str) -> None:
        text = f"def main(offset, step, loss):\n    if {test}:  # HERE\n        dist.barrier()\n"
        assert condition(text) == [None] * 4

    def test_function_of_a_value_computed_by_rank_does_not_depend_on_the_rank(self) -> None:
        source = LineQueries("def main(rank):\n    score = f() if rank else g()\n    if stop(score):\n        pass\n")
        scope = source.scope(4, "main")
        (guard,) = source.guards(4, scope)
        assert not scope.depends_on_rank(guard.test)


def test_functions_that_call_each_other_are_followed_in_bounded_time() -> None:
    calls = ["(" + " + ".join(f"f{j}(a)" for j in range(8) if j != i) + ")" for i in range(8)]
    text = "".join(f"def f{i}(a):\n    b = {calls[i]}\n    return b + {calls[i]}\n" for i in range(8))
    source = LineQueries(f"{text}def main(x):\n    y = f0(x)\n    if y > 0:\n        pass\n")
    line = len(source.source.text.splitlines())
    began = time.process_time()
    scope = source.scope(line, "main")
    (guard,) = source.guards(line, scope)
    assert not scope.depends_on_rank(guard.test)
    assert time.process_time() - began < 5
