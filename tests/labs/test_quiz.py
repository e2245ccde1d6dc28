"""The quiz: the wizard's own timeline names the rank that is the right answer; answers are kept and graded."""

from pathlib import Path

import pytest
from ddpwizard.app.labs.progress import load_progress
from ddpwizard.app.labs.quiz import Quiz
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.first_failure import first_error
from ddpwizard.app.logs.read import source_of_text
from ddpwizard.knowledge.quiz import QuizItem, read_quiz
from ddpwizard.knowledge.yaml_file import KnowledgeError
from helpers.built_in_knowledge import built_in_knowledge
from test_language import PATTERN

ITEMS = read_quiz()
ITEM = 'title: One\nranks: 2\nfirst: 1\nwhy: It says so.\nlog: |\n  [rank1]: KeyError: "x"\n'


def test_there_are_ten_questions_with_different_answers() -> None:
    assert len(ITEMS) >= 10
    assert {item.first for item in ITEMS} == {0, 1, 2, 3}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_timeline_shows_the_right_answer(item: QuizItem) -> None:
    timeline = analyse_logs([source_of_text(item.log, "log")], built_in_knowledge()).timeline
    assert timeline
    found = first_error(timeline)
    first = found.tracks[0].rank if found and found.tracks else timeline.culprit
    tracks = timeline.attempts[-1].tracks
    assert {track.rank for track in tracks} >= {item.first}
    if first is None:  # the rank that the others waited for has no failure of its own
        silent = [track.rank for track in tracks if not any(event.kind == "consequence" for event in track.events)]
        assert silent == [item.first]
    else:
        assert first == item.first
    lines = Quiz(built_in_knowledge()).solution_lines(item)
    assert lines[0] == f"Rank {item.first} was first." and len(lines) > 4


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_question_is_readable_and_does_not_name_its_answer(item: QuizItem) -> None:
    assert not PATTERN.findall(item.title + item.why)
    assert f"rank {item.first}" not in item.title.lower()
    assert all(len(line) <= 200 for line in item.log.splitlines())
    assert str(item.first) in item.why


def test_the_first_answer_is_kept_and_graded() -> None:
    quiz = Quiz(built_in_knowledge())
    first, second = quiz.items[:2]
    assert (quiz.next_number, quiz.answered) == (1, 0)
    assert quiz.answer(first, first.first)
    assert not quiz.answer(second, (second.first + 1) % second.ranks)
    assert quiz.answer(second, second.first)  # seen to be right, and not counted
    again = Quiz(built_in_knowledge())
    assert (again.right, again.answered, again.next_number) == (1, 2, 3)
    assert [each.right for each in again.listing()[:3]] == [True, False, None]
    again.restart()
    assert load_progress().quiz == {} and again.next_number == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("first: 1", "first: 2", 3, "ranks 0 to 1"),
        ("ranks: 2", "rank: 2", 2, "rank"),
        ("log: |\n", "log: |\n" + "  line\n" * 61, 5, "at most 60 lines"),
    ],
)
def test_error_is_reported_with_file_and_line(old: str, new: str, line: int, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "quiz" / "odd.yaml"
    path.parent.mkdir()
    path.write_text(ITEM)
    assert [item.id for item in read_quiz(tmp_path)][-1] == "odd"
    path.write_text(ITEM.replace(old, new))
    with pytest.raises(KnowledgeError) as caught:
        read_quiz(tmp_path)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert problem in caught.value.problem
