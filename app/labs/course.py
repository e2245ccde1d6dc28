"""The chapters with their labs, numbered: ``7`` is a chapter, ``7.2`` its second lab."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...knowledge.chapters import Chapter, read_valid_chapters
from ...knowledge.labs import Lab, read_valid_labs
from ...knowledge.quiz import read_valid_quiz
from ...knowledge.schema import Knowledge
from ..knowledge_cache import load_cached
from ..options import Options, knowledge_directories, knowledge_for, left_out_line
from .progress import Progress

QUIZ = "quiz"  # in place of the number of a lab
QUIZ_TITLE = "Quiz: who was first?"
QUIZ_SUMMARY = "Read the logs of real jobs with several ranks, and name the rank that failed first."
FURTHER = Chapter(
    id="further-labs",
    order=0,
    title="Further labs",
    summary="Failures that no chapter is about.",
    pages=[],
    labs=[],
)


class CourseLab(msgspec.Struct, frozen=True):
    """A lab with its number. The number, not the cause, is shown: the cause is what the learner has to find.

    ``same_as`` is its number in the first chapter that has it, if that is another one.
    """

    number: str
    lab: Lab
    same_as: str = ""

    @property
    def first_number(self) -> str:
        """Its number in the first chapter that has it."""
        return self.same_as or self.number


class CourseChapter(msgspec.Struct, frozen=True):
    """A chapter with its number and its labs."""

    number: str
    chapter: Chapter
    labs: list[CourseLab]


class ListedLab(msgspec.Struct, frozen=True):
    """A lab in the JSON document."""

    number: str
    title: str
    failed: bool
    repaired: bool
    same_as: str = ""
    has_repair: bool = True
    answer_shown: bool = False

    @property
    def solved(self) -> bool:
        """True if it is repaired, and the learner has found the cause."""
        return self.repaired and not self.answer_shown

    @property
    def done(self) -> str:
        """The work done in the lab, in words."""
        done = "seen to fail" if self.failed else ""
        if self.repaired:
            done = "repaired" if self.has_repair else "answered"
        return ", ".join(filter(None, [done, "answer shown" if self.answer_shown else ""]))

    @property
    def note(self) -> str:
        """The number of the same lab in an earlier chapter, and what is done."""
        return ", ".join(filter(None, [self.same_as and f"same as {self.same_as}", self.done]))


class ListedChapter(msgspec.Struct, frozen=True):
    """A chapter in the JSON document."""

    number: str
    id: str
    title: str
    pages: int
    pages_read: int
    labs: list[ListedLab]
    quiz: bool = False


class Course(msgspec.Struct, frozen=True):
    """All chapters in their order. ``left_out`` has a line for each chapter and lab that is not valid."""

    chapters: list[CourseChapter]
    left_out: list[str] = []

    @property
    def labs(self) -> list[CourseLab]:
        """All labs, each once: with its number in the first chapter that has it."""
        found: dict[str, CourseLab] = {}
        for chapter in self.chapters:
            for each in chapter.labs:
                found.setdefault(each.lab.id, each)
        return [*found.values()]

    def done_text(self, progress: Progress) -> str:
        """Return how many labs the learner has done, and how many more with the answer shown."""
        text = f"{sum(listed_lab(each, progress).solved for each in self.labs)} of {len(self.labs)} labs done"
        done = [progress.labs[each.lab.id] for each in self.labs if is_done(each.lab, progress)]
        shown = sum(state.answer_shown for state in done)
        return f"{text}, {shown} with the answer shown" if shown else text

    def number_of(self, wanted: str) -> str:
        """Return the number of a chapter or lab that is named by its number, its id or the cause; "" if none is."""
        found = [each.number for each in self.chapters if wanted in (each.number, each.chapter.id)]
        found += [QUIZ] if wanted == QUIZ else []
        found += [wanted] if self.lab(wanted) else []
        found += [each.number for each in self.labs if wanted in (each.lab.id, each.lab.cause)]
        return found[0] if found else ""

    def chapter(self, number: str) -> CourseChapter | None:
        """Return the chapter with a number, or the one of a lab."""
        return next((each for each in self.chapters if each.number == number.partition(".")[0]), None)

    def lab(self, number: str) -> CourseLab | None:
        """Return the lab with a number."""
        return next((each for chapter in self.chapters for each in chapter.labs if each.number == number), None)

    def next_lab(self, number: str, progress: Progress) -> CourseLab | None:
        """Return the lab after the one with a number, which may be in the next chapter.

        A lab that is also in an earlier chapter comes once more only if it is not done.
        """
        later = iter([each for chapter in self.chapters for each in chapter.labs])
        known = any(each.number == number for each in later)
        wanted = (each for each in later if not (each.same_as and is_done(each.lab, progress)))
        return next(wanted, None) if known else None

    def half_done(self, progress: Progress) -> CourseLab | None:
        """Return the lab that was used last and is not done; None if it is, or if no lab was opened."""
        known = {each.lab.id: each for each in self.labs}
        last = next((known[id_] for id_ in reversed(progress.labs) if id_ in known), None)
        return last if last and not is_done(last.lab, progress) else None

    def labs_of(self, chapter: str) -> list[CourseLab]:
        """Return the labs of the chapter with an id."""
        return next((each.labs for each in self.chapters if each.chapter.id == chapter), [])

    def names(self) -> list[str]:
        """Return what ``number_of`` takes, the ids of labs and their causes left out: they are the answers."""
        chapters = (name for each in self.chapters for name in (each.number, each.chapter.id))
        return [*chapters, *(lab.number for each in self.chapters for lab in each.labs), QUIZ]

    def listing(self, progress: Progress) -> list[ListedChapter]:
        """Return the chapters and labs with what is done."""
        return [
            ListedChapter(
                number=each.number,
                id=each.chapter.id,
                title=each.chapter.title,
                pages=len(each.chapter.pages),
                pages_read=min(progress.pages.get(each.chapter.id, 0), len(each.chapter.pages)),
                labs=[listed_lab(lab, progress) for lab in each.labs],
                quiz=each.chapter.quiz,
            )
            for each in self.chapters
        ]

    def lines(self, progress: Progress) -> list[str]:
        """Return the chapters and labs with what is done, as lines."""
        lines: list[str] = []
        for chapter in self.listing(progress):
            read = f"{chapter.pages_read} of {chapter.pages} pages read" if chapter.pages_read else ""
            lines.append(f"{chapter.number:>4}  {chapter.title}" + (f"   ({read})" if read else ""))
            for lab in chapter.labs:
                lines.append(f"{lab.number:>8}  {lab.title}" + (f"   ({lab.note})" if lab.note else ""))
        return lines


def load_course(options: Options) -> Course:
    """Return the course with that of the team, from a cache if no file has changed; else with the knowledge base.

    Raises:
        UserError: A directory does not exist or cannot be read.
    """
    extra = knowledge_directories(options)
    return load_cached("course", extra, Course, lambda: read_course(knowledge_for(options, warn=False), extra))


def read_course(knowledge: Knowledge, extra: Sequence[Path] = ()) -> Course:
    """Return the chapters with their labs; a lab that no chapter names is one of the last chapter."""
    labs, problems = read_valid_labs(knowledge, *extra)
    read, problems_of_chapters = read_valid_chapters(*extra)
    chapters = [*read.values()]
    left = labs.keys() - {id_ for chapter in chapters for id_ in chapter.labs}
    if left:
        families = {id_: each.family for id_, each in knowledge.causes.items()}
        further = sorted(left, key=lambda id_: (families.get(labs[id_].cause, ""), id_))
        chapters.append(msgspec.structs.replace(FURTHER, labs=further))
    numbered: list[CourseChapter] = []
    first: dict[str, str] = {}
    for number, chapter in enumerate(chapters, 1):
        own = [labs[id_] for id_ in chapter.labs if id_ in labs]
        rows = [CourseLab(f"{number}.{place}", lab, first.get(lab.id, "")) for place, lab in enumerate(own, 1)]
        first |= {each.lab.id: each.number for each in rows if not each.same_as}
        numbered.append(CourseChapter(str(number), chapter, rows))
    problems = [*problems_of_chapters, *problems, *read_valid_quiz(*extra)[1]]
    return Course(numbered, [left_out_line(str(each)) for each in problems])


def is_done(lab: Lab, progress: Progress) -> bool:
    """Return whether nothing is left to do in a lab: it is repaired, measured, or the cause of its log is known."""
    state = progress.labs.get(lab.id)
    if state is None or state.repaired:
        return state is not None
    return bool(state.measured) if lab.question else state.answered and not lab.launch


def listed_lab(each: CourseLab, progress: Progress) -> ListedLab:
    """Return a lab with what is done in it."""
    state = progress.labs.get(each.lab.id)
    return ListedLab(
        number=each.number,
        title=each.lab.title,
        failed=bool(state and state.failed),
        repaired=bool(state and state.repaired),
        same_as=each.same_as,
        has_repair=bool(each.lab.fix),
        answer_shown=bool(state and state.answer_shown),
    )
