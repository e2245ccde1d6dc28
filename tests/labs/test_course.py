"""Chapters and labs with their numbers."""

from pathlib import Path

import pytest
from ddpwizard.app.labs.course import load_course, read_course
from ddpwizard.app.labs.progress import LabProgress, Progress
from ddpwizard.app.options import Options
from ddpwizard.knowledge.labs import read_labs
from helpers.built_in_knowledge import built_in_knowledge
from helpers.command import loaded_modules

COURSE = read_course(built_in_knowledge())


def test_every_lab_has_a_number_and_counts_once() -> None:
    assert {each.lab.id for each in COURSE.labs} == read_labs().keys()
    assert len(COURSE.labs) == len(read_labs())
    numbers = [each.number for chapter in COURSE.chapters for each in chapter.labs]
    assert len(numbers) == len(set(numbers)) > len(COURSE.labs), "some labs are in two chapters"
    for number in numbers:
        found = COURSE.lab(number)
        assert found and found.number == number == COURSE.number_of(number)


def test_a_lab_is_found_by_its_id_and_by_its_cause() -> None:
    throttled = COURSE.number_of("throttled-rank")
    lab = COURSE.lab(throttled)
    assert lab and lab.lab.cause == "rank-paused"
    assert COURSE.number_of("hangs") == "7" and COURSE.number_of("no-such") == ""
    assert throttled in [each.number for each in COURSE.labs_of("hangs")]


def test_names_that_are_suggested_do_not_have_the_answers() -> None:
    assert not built_in_knowledge().causes.keys() & set(COURSE.names())


def test_repaired_labs_are_counted_once() -> None:
    twice = next(
        each.lab.id
        for chapter in COURSE.chapters
        for each in chapter.labs
        if sum(other.lab.id == each.lab.id for found in COURSE.chapters for other in found.labs) > 1
    )
    of_all = f"of {len(COURSE.labs)} labs done"
    assert COURSE.done_text(Progress(labs={twice: LabProgress(repaired=True)})) == f"1 {of_all}"
    assert COURSE.done_text(Progress()) == f"0 {of_all}"


def test_a_lab_whose_answer_was_shown_is_not_counted_as_solved() -> None:
    job = next(each for each in COURSE.labs if each.lab.fix and not each.lab.question)
    log = next(each for each in COURSE.labs if not each.lab.launch)
    shown = Progress(
        labs={
            job.lab.id: LabProgress(failed=True, answered=True, answer_shown=True, repaired=True),
            log.lab.id: LabProgress(answered=True, answer_shown=True),
        }
    )
    assert COURSE.done_text(shown) == f"0 of {len(COURSE.labs)} labs done, 2 with the answer shown"
    notes = {lab.number: lab.note for chapter in COURSE.listing(shown) for lab in chapter.labs}
    assert (notes[job.number], notes[log.number]) == ("repaired, answer shown", "answer shown")


def test_a_lab_of_a_log_that_was_only_opened_has_no_note() -> None:
    log = next(each for each in COURSE.labs if not each.lab.launch)
    opened = Progress(labs={log.lab.id: LabProgress(directory=log.number)})
    assert not next(lab.note for each in COURSE.listing(opened) for lab in each.labs if lab.number == log.number)
    assert COURSE.half_done(opened) == log


def test_a_lab_of_two_chapters_names_its_first_number() -> None:
    listed = [lab for chapter in COURSE.listing(Progress()) for lab in chapter.labs]
    repeated = [lab for lab in listed if lab.same_as]
    assert len(repeated) == len(listed) - len(COURSE.labs) > 0
    for lab in repeated:
        first, again = COURSE.lab(lab.same_as), COURSE.lab(lab.number)
        assert first and again and first.lab is again.lab and not first.same_as
        assert lab.note == f"same as {lab.same_as}" and f"({lab.note})" in "\n".join(COURSE.lines(Progress()))


def test_a_lab_is_followed_by_the_next_one_also_of_the_next_chapter() -> None:
    course = read_course(built_in_knowledge())
    numbers = [each.number for each in course.labs]
    all_done = Progress(labs={each.lab.id: LabProgress(repaired=True) for each in course.labs})
    found = [following.number if (following := course.next_lab(number, all_done)) else "" for number in numbers]
    assert found == [*numbers[1:], ""], "a lab that comes again in another chapter is done only once"
    assert course.next_lab("0.0", all_done) is None


def test_a_lab_of_an_earlier_chapter_that_is_not_done_comes_next() -> None:
    rows = [each for chapter in COURSE.chapters for each in chapter.labs]
    at = next(at for at, each in enumerate(rows) if each.same_as)
    assert COURSE.next_lab(rows[at - 1].number, Progress()) == rows[at]
    done = Progress(labs={rows[at].lab.id: LabProgress(repaired=True)})
    assert COURSE.next_lab(rows[at - 1].number, done) != rows[at]


def test_a_cached_course_is_the_one_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_course(Options()) == read_course(built_in_knowledge()) == load_course(Options())


def test_a_cached_course_is_read_again_after_a_file_of_a_lab_has_changed(tmp_path: Path) -> None:
    lab = tmp_path / "labs" / "missing-sampler"
    lab.mkdir(parents=True)
    (lab / "lab.yaml").write_text("title: [no title]\n")
    assert len(load_course(Options(knowledge=(tmp_path,))).left_out) == 1
    (lab / "lab.yaml").unlink()
    assert load_course(Options(knowledge=(tmp_path,))).left_out == []


def test_a_cached_course_is_loaded_without_yaml_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read = "from ddpwizard.app.labs.course import load_course, Options; load_course(Options())"
    assert "yaml" in loaded_modules(read)
    loaded = loaded_modules(read)
    assert "yaml" not in loaded and "ddpwizard.app.logs.matcher" not in loaded
