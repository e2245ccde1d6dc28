"""The rank condition or loop that separates ranks, in all forms a script can have."""

import pytest
from ddpwizard.app.training_script.line_queries import ParsedFile, ParsedFiles
from ddpwizard.app.training_script.rank_conditions import RankContext, depends_on_rank, evaluate_condition
from ddpwizard.app.triage.rank_activity.rank_state import RankState, rank_states
from ddpwizard.app.triage.rules.divergence import deciding_condition, exited_loop, skipping_condition
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still

RANKS = (0, 1, 2, 3)


def placed(text: str, *frames: list[tuple[str, int]]) -> tuple[list[RankState], ParsedFiles]:
    """Return ranks that wait in a barrier at these places of a script, outermost frame first."""
    samples = {100 + rank: still(stack("barrier", *places)) for rank, places in enumerate(frames)}
    seen = observation(job(len(frames)), samples, {SCRIPT: text})
    sources = ParsedFiles(seen.sources)
    return rank_states(seen, sources), sources


def condition(text: str) -> list[bool | None]:
    """Evaluate the only ``if`` of a script that ends with ``# HERE`` for each of four ranks."""
    (line,) = lines_with(text, "# HERE")
    source = ParsedFile(text)
    (guard,) = [g for g in source.guards(line + 1, source.scope(line + 1, "main")) if g.line == line]
    return [evaluate_condition(guard.test, RankContext(rank, rank % 2, 4), guard.scope) for rank in RANKS]


class TestTruth:
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
    def test_condition_with_names_and_containers(self, setting: str, test: str, who: list[int]) -> None:
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
    def test_condition_in_a_helper(self, helper: str) -> None:
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
    def test_condition_with_attributes_and_properties(self, body: str) -> None:
        text = f"class T:\n{body}    def main(self):\n        if self.lead:  # HERE\n            dist.barrier()\n"
        assert condition(text) == [True, False, False, False]

    @pytest.mark.parametrize("start", ["mp.spawn(main, args=(4,), nprocs=4)", "torch.multiprocessing.spawn(main)"])
    def test_condition_on_the_index_passed_by_spawn(self, start: str) -> None:
        text = f"def main(index, size=4):\n    if index == 0:  # HERE\n        dist.barrier()\n{start}\n"
        assert condition(text) == [True, False, False, False]

    def test_condition_on_the_index_of_a_loop_over_processes(self) -> None:
        text = (
            "def main(size, index):\n    if index == 3:  # HERE\n        dist.barrier()\n"
            "for number in range(4):\n    mp.Process(target=main, args=(4, number)).start()\n"
        )
        assert condition(text) == [False, False, False, True]

    @pytest.mark.parametrize("test", ["step == 0", "loss < 1", "rank == offset", "check(rank)", "1 << (1 << 99)"])
    def test_unknown_condition_is_not_guessed(self, test: str) -> None:
        text = f"def main(offset, step, loss):\n    if {test}:  # HERE\n        dist.barrier()\n"
        assert condition(text) == [None] * 4

    def test_condition_on_a_function_of_a_rank_dependent_value_is_no_rank_test(self) -> None:
        source = ParsedFile("def main(rank):\n    score = f() if rank else g()\n    if stop(score):\n        pass\n")
        scope = source.scope(4, "main")
        (guard,) = source.guards(4, scope)
        assert not depends_on_rank(guard.test, scope)


class TestBranch:
    def between(self, text: str, culprit: int) -> str | None:
        one, other, start = lines_with(text, "# ONE", "# OTHERS", "main()  # CALL")
        here: list[list[tuple[str, int]]] = [[("<module>", start), ("main", other)] for _ in RANKS]
        here[culprit] = [("<module>", start), ("main", one)]
        found, sources = placed(text, *here)
        mine = [state for state in found if state.rank == culprit]
        branch = deciding_condition(mine, [state for state in found if state.rank != culprit], 4, sources)
        assert branch is None or branch.sure
        return branch.where if branch else None

    @pytest.mark.parametrize(
        ("body", "culprit"),
        [
            ("match rank:  \n        case 0:  # BRANCH\n            x()  # ONE\n        case _:\n            pass", 0),
            (
                "match rank:\n        case 0 | 1:\n            y()\n        case 2:  # BRANCH\n            x()  # ONE",
                2,
            ),
            ("with main_process_first():  # BRANCH\n        x()  # ONE", 0),
        ],
    )
    def test_deciding_condition_in_other_forms(self, body: str, culprit: int) -> None:
        text = f"def main():\n    {body}\n    dist.barrier()  # OTHERS\nmain()  # CALL\n"
        (line,) = lines_with(text, "# BRANCH")
        assert self.between(text, culprit) == f"{SCRIPT}:{line}"

    @pytest.mark.parametrize(
        ("decorator", "culprit"),
        [
            ("@rank_zero_only", 0),
            ("@accelerator.on_main_process", 0),
            ("@accelerator.on_last_process", 3),
            ("@accelerator.on_process(process_index=2)", 2),
        ],
    )
    def test_decorators_of_libraries_are_rank_conditions(self, decorator: str, culprit: int) -> None:
        text = f"{decorator}\ndef save():\n    x()\ndef main():\n    save()\n    dist.barrier()\nmain()\n"
        inside = [("<module>", 7), ("main", 5), ("save", 3)]
        here: list[list[tuple[str, int]]] = [[("<module>", 7), ("main", 6)] for _ in RANKS]
        here[culprit] = inside
        found, sources = placed(text, *here)
        rest = [state for state in found if state.rank != culprit]
        branch = deciding_condition([found[culprit]], rest, 4, sources)
        assert branch is not None
        assert (branch.where, branch.taken_by, branch.sure) == (f"{SCRIPT}:1", [culprit], True)

    def test_exit_out_of_a_loop_in_a_function_that_one_rank_has_left(self) -> None:
        text = (
            "def train():\n    while True:\n        if rank == 2:  # BRANCH\n            return\n        x()\n"
            "def main():\n    train()\n    y()\nmain()\n"
        )
        here: list[list[tuple[str, int]]] = [[("<module>", 9), ("main", 7), ("train", 5)] for _ in RANKS]
        here[2] = [("<module>", 9), ("main", 8)]
        found, sources = placed(text, *here)
        branch = deciding_condition([found[2]], [s for s in found if s.rank != 2], 4, sources)
        assert branch is not None
        assert (branch.where, branch.how) == (f"{SCRIPT}:3", "leave")

    def test_object_created_by_only_one_rank(self) -> None:
        text = (
            "class Summary:\n    def after(self):\n        x()\n"
            "def main():\n    hooks = []\n    if rank == 1:\n        hooks.append(Summary())\n"
            "    for hook in hooks:\n        hook.after()\n    y()\nmain()\n"
        )
        here: list[list[tuple[str, int]]] = [[("<module>", 11), ("main", 10)] for _ in RANKS]
        here[1] = [("<module>", 11), ("main", 9), ("Summary.after", 3)]
        found, sources = placed(text, *here)
        branch = deciding_condition([found[1]], [s for s in found if s.rank != 1], 4, sources)
        assert branch is not None
        assert (branch.where, branch.taken_by, branch.sure) == (f"{SCRIPT}:6", [1], True)

    def test_error_raised_under_a_rank_test_is_marked(self) -> None:
        text = "def main():\n    if rank == 1:\n        raise ValueError\n    x()\nmain()\n"
        here: list[list[tuple[str, int]]] = [[("<module>", 5), ("main", 4)] for _ in RANKS]
        here[1] = []
        found, sources = placed(text, *here)
        branch = deciding_condition([s for s in found if s.rank != 1], [found[1]], 4, sources)
        assert branch is not None
        assert (branch.where, branch.how) == (f"{SCRIPT}:2", "raise")


class TestLoops:
    def left(self, text: str, gone: str, inside: str) -> tuple[str, str | None] | None:
        after, within = lines_with(text, gone, inside)
        found, sources = placed(text, [("main", after)], [("main", within)])
        return exited_loop(found[0], found[1], sources)

    @pytest.mark.parametrize(
        ("loop", "ended_by"),
        [
            ("for batch in loader:\n        x()  # IN", None),
            ("for step in range(100):\n        if done(loss):\n            break\n        x()  # IN", 3),
            ("while step < most:\n        x()  # IN", 2),
            ("while True:\n        if batch is None:\n            break\n        x()  # IN", 3),
            ("out = [\n        x(b)  # IN\n        for b in loader\n    ]", None),
            ("for batch in loader:\n        x()  # IN\n    else:\n        log()", None),
        ],
    )
    def test_loop_that_one_rank_has_left(self, loop: str, ended_by: int | None) -> None:
        text = f"def main():\n    {loop}\n    y()  # OUT\n"
        found = self.left(text, "# OUT", "# IN")
        assert found is not None
        assert found[1] == (f"{SCRIPT}:{ended_by}" if ended_by else None)

    def test_loop_in_a_function_the_other_rank_has_left(self) -> None:
        text = "def epoch():\n    for b in loader:\n        x()\ndef main():\n    epoch()\n    y()\n"
        found, sources = placed(text, [("main", 6)], [("main", 5), ("epoch", 3)])
        assert exited_loop(found[0], found[1], sources) == (f"{SCRIPT}:2", None)

    def test_inner_loop_left_for_the_next_iteration_of_the_outer_one(self) -> None:
        text = "def main():\n    for e in range(3):\n        y()  # OUT\n        for b in c:\n            x()  # IN\n"
        assert self.left(text, "# OUT", "# IN") == (f"{SCRIPT}:4", None)
        deep = "def epoch():\n    for b in c:\n        x()\ndef main():\n    while go:\n        y()\n        epoch()\n"
        found, sources = placed(deep, [("main", 6)], [("main", 7), ("epoch", 3)])
        assert exited_loop(found[0], found[1], sources) == (f"{SCRIPT}:2", None)

    def test_no_loop_was_left_if_both_ranks_are_in_it(self) -> None:
        text = "def main():\n    for b in loader:\n        x()  # IN\n        y()  # OUT\n"
        assert self.left(text, "# OUT", "# IN") is None

    def test_exception_handler_that_skips_the_place_of_the_others(self) -> None:
        body = "        try:\n            x()  # IN\n        except E:\n            pass\n        y()  # OUT\n"
        text = f"def main():\n    for b in c:\n{body}"
        out, within = lines_with(text, "# OUT", "# IN")
        found, sources = placed(text, [("main", out)], [("main", within)])
        assert skipping_condition(found[0], found[1], sources) == (f"{SCRIPT}:5", True)
