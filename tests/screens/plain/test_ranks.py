"""The ranks of a job in the plain wizard: grouped, and the page of one rank."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddpwizard.screens.plain.prompt import Prompt, Quit
from ddpwizard.screens.plain.ranks import choose_job, show_job, show_rank
from helpers.recorded_state import RecordedState, large, report, surrounded
from msgspec.structs import replace

Prompts = Callable[[str], Prompt]


@pytest.fixture
def prompt() -> Iterator[Prompts]:
    """Make prompts that read the given lines."""
    opened: list[int] = []

    def make(answers: str) -> Prompt:
        read, write = os.pipe()
        opened.append(read)
        os.write(write, answers.encode())
        os.close(write)
        found = Prompt()
        found._fd, found._ended = read, False
        return found

    yield make
    for each in opened:
        os.close(each)


def test_rank_table_lists_all_known_columns(
    prompt: Prompts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_job(prompt(""), surrounded(report(tmp_path)))
    rows = capsys.readouterr().out.splitlines()
    names = next(row for row in rows if row.startswith("  rank"))
    for name in ("state", "where", "call", "last moved", "group", "seq", "CPU", "GPU", "memory", "I/O"):
        assert f"  {name}" in names
    first = next(row for row in rows if row.startswith("  0 "))
    assert "train.py:7  validate  all_reduce  ≥ 3 s       default_pg  117" in first
    assert next(row for row in rows if row.startswith("  1–3 ")).index("waiting") == names.index("state")


def test_a_thousand_ranks_are_a_short_table(
    prompt: Prompts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_job(prompt(""), large(tmp_path))
    printed = capsys.readouterr().out
    assert "… 261 more places" in printed
    assert len(printed.splitlines()) < 80


def test_the_list_of_jobs_has_their_states_and_which_have_ended(
    prompt: Prompts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, first = RecordedState(), report(tmp_path)
    second = replace(first, observed=replace(first.observed, job=replace(first.job, launcher_pid=4712)))
    state.ended_jobs.add(second.job.id)
    assert choose_job(state, prompt("1\n"), [first, second]) is first
    printed = capsys.readouterr().out
    assert "(pid 4711): looks hung" in printed
    assert "(pid 4712): has ended" in printed


def test_a_rank_is_chosen_by_its_place(prompt: Prompts, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = RecordedState()
    state.reports = [surrounded(report(tmp_path))]
    show_rank(state, prompt("2\n0\n3\n"))
    printed = capsys.readouterr().out
    assert "Please give the number of a rank: ranks 1–3." in printed
    page = printed[printed.index("Rank 3") :]
    for part in ("waiting in barrier", "← rank 3", "Main thread", "loader worker, pid 5003", "rank 3 validates"):
        assert part in page


def test_a_rank_of_a_thousand_is_chosen_by_its_number(
    prompt: Prompts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = RecordedState()
    state.reports = [report(tmp_path), large(tmp_path)]
    show_rank(state, prompt("2\nn\n517\n"))
    assert "\nRank 517\n" in capsys.readouterr().out


def test_rank_page_back_and_quit(prompt: Prompts, tmp_path: Path) -> None:
    state = RecordedState()
    state.reports = [report(tmp_path)]
    show_rank(state, prompt("b\n"))
    with pytest.raises(Quit):
        show_rank(state, prompt("q\n"))
