"""The output of the ranks side by side."""

from ddpwizard.screens.learn.rank_panes import rank_panes, row_of_line

TORCHRUN = "torchrun --standalone --nproc-per-node=2 train.py"
LONG = "the table has 8 rows for 4 epochs: " + "x" * 60


def test_long_lines_are_wrapped_and_two_ranks_are_side_by_side() -> None:
    alone = rank_panes({0: [LONG]}, TORCHRUN, 70, 12).plain
    assert alone.count("x") == 60 and max(map(len, alone.splitlines())) <= 72
    text = rank_panes({0: [LONG], 1: ["step 3"]}, TORCHRUN, 78, 12).plain
    both = text.splitlines()
    assert "rank 0" in both[0] and "rank 1" in both[0]
    assert both[1].rstrip().endswith("step 3") and text.count("x") == 60


def test_a_line_that_does_not_fit_whole_is_left_out_and_a_very_long_one_is_shown_from_its_start() -> None:
    words = "first " + "word " * 20 + "last"
    shown = rank_panes({0: ["before", words, "step 1", "step 2"]}, TORCHRUN, 40, 4).plain.splitlines()
    assert [line.strip() for line in shown] == ["rank 0", "step 1", "step 2"]
    assert "first" in rank_panes({0: ["before", words]}, TORCHRUN, 40, 3).plain.splitlines()[1]
    whole = rank_panes({0: ["before", words, "step 1"]}, TORCHRUN, 40, 12).plain
    assert "before" in whole and "first" in whole and "step 1" in whole


def test_the_last_lines_are_shown() -> None:
    shown = rank_panes({0: [f"step {number}" for number in range(40)], None: ["the launcher"]}, TORCHRUN, 60, 10).plain
    assert [line.strip() for line in shown.splitlines()][-2:] == ["launcher", "the launcher"]
    assert "step 39" in shown and "step 3\n" not in shown and shown.rstrip().endswith("the launcher")


def test_lines_of_a_script_without_a_launcher_are_those_of_python() -> None:
    shown = rank_panes({None: ["KeyError: 'LOCAL_RANK'"]}, "python train.py", 60, 10).plain
    assert shown.splitlines() == ["python", "KeyError: 'LOCAL_RANK'"]


def test_without_a_height_all_lines_are_shown() -> None:
    lines = [f"step {number}" for number in range(40)]
    shown = rank_panes({0: lines, 1: lines[:1], None: lines}, TORCHRUN, 78, None).plain.splitlines()
    assert [line.split("  ")[0] for line in shown] == ["rank 0", *lines, "launcher", *lines]


def test_the_row_of_a_line_counts_wrapped_lines_and_panes_above() -> None:
    printed: dict[int | None, list[str]] = {
        rank: [LONG, f"step 1 of {rank}", LONG, f"step 3 of {rank}"] for rank in range(3)
    }
    for width in (40, 78, 130):
        shown = rank_panes(printed, TORCHRUN, width, None).plain.splitlines()
        for rank in range(3):
            for at in (1, 3):
                assert f"step {at} of {rank}" in shown[row_of_line(printed, rank, at, width)]
