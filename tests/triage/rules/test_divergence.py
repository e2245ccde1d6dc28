"""The condition that separates ranks, in every form that scripts use."""

import pytest
from ddpwizard.app.training_script.line_queries import ScriptFiles
from ddpwizard.app.triage.rank_activity.rank_state import RankState, rank_states
from ddpwizard.app.triage.rules.divergence import deciding_condition, exited_loop, skipping_condition
from helpers.synthetic_job import SCRIPT, job, lines_with, observation, stack, still

RANKS = (0, 1, 2, 3)


def placed(text: str, *frames: list[tuple[str, int]]) -> tuple[list[RankState], ScriptFiles]:
    """Ranks that wait in a barrier at these places of a script, outermost frame first."""
    samples = {100 + rank: still(stack("barrier", *places)) for rank, places in enumerate(frames)}
    seen = observation(job(len(frames)), samples, {SCRIPT: text})
    sources = ScriptFiles(seen.sources)
    return rank_states(seen, sources), sources


class TestBranch:
    def between(self, text: str, culprit: int) -> str | None:
        one, other, start = lines_with(text, "# ONE", "# OTHERS", "main()  # CALL")
        here: list[list[tuple[str, int]]] = [[("<module>", start), ("main", other)] for _ in RANKS]
        here[culprit] = [("<module>", start), ("main", one)]
        found, sources = placed(text, *here)
        mine = [stand for stand in found if stand.rank == culprit]
        branch = deciding_condition(mine, [stand for stand in found if stand.rank != culprit], 4, sources)
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
    def test_condition_that_separates_ranks_is_found(self, body: str, culprit: int) -> None:
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
    def test_library_decorator_that_separates_ranks_is_found(self, decorator: str, culprit: int) -> None:
        text = f"{decorator}\ndef save():\n    x()\ndef main():\n    save()\n    dist.barrier()\nmain()\n"
        inside = [("<module>", 7), ("main", 5), ("save", 3)]
        here: list[list[tuple[str, int]]] = [[("<module>", 7), ("main", 6)] for _ in RANKS]
        here[culprit] = inside
        found, sources = placed(text, *here)
        rest = [stand for stand in found if stand.rank != culprit]
        branch = deciding_condition([found[culprit]], rest, 4, sources)
        assert branch is not None
        assert (branch.where, branch.taken_by, branch.sure) == (f"{SCRIPT}:1", [culprit], True)

    def test_exit_from_a_loop_in_a_function_that_one_rank_has_left(self) -> None:
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

    def test_object_that_only_one_rank_has_created(self) -> None:
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

    def test_error_raised_under_a_rank_condition_is_reported_as_error(self) -> None:
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

    def test_loop_in_a_function_that_the_other_rank_has_left(self) -> None:
        text = "def epoch():\n    for b in loader:\n        x()\ndef main():\n    epoch()\n    y()\n"
        found, sources = placed(text, [("main", 6)], [("main", 5), ("epoch", 3)])
        assert exited_loop(found[0], found[1], sources) == (f"{SCRIPT}:2", None)

    def test_loop_that_one_rank_has_left_for_the_next_outer_iteration(self) -> None:
        text = "def main():\n    for e in range(3):\n        y()  # OUT\n        for b in c:\n            x()  # IN\n"
        assert self.left(text, "# OUT", "# IN") == (f"{SCRIPT}:4", None)
        deep = "def epoch():\n    for b in c:\n        x()\ndef main():\n    while go:\n        y()\n        epoch()\n"
        found, sources = placed(deep, [("main", 6)], [("main", 7), ("epoch", 3)])
        assert exited_loop(found[0], found[1], sources) == (f"{SCRIPT}:2", None)

    def test_no_loop_is_left_if_both_ranks_are_in_it(self) -> None:
        text = "def main():\n    for b in loader:\n        x()  # IN\n        y()  # OUT\n"
        assert self.left(text, "# OUT", "# IN") is None

    def test_exception_handler_that_lets_a_rank_skip_the_place_of_the_others(self) -> None:
        body = "        try:\n            x()  # IN\n        except E:\n            pass\n        y()  # OUT\n"
        text = f"def main():\n    for b in c:\n{body}"
        out, within = lines_with(text, "# OUT", "# IN")
        found, sources = placed(text, [("main", out)], [("main", within)])
        assert skipping_condition(found[0], found[1], sources) == (f"{SCRIPT}:5", True)
