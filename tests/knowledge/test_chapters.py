"""The chapters: each fits a small terminal, has a drawing, and names what exists."""

import re
import shlex
from pathlib import Path

import click
import pytest
from ddpwizard import cli
from ddpwizard.app.text.ascii import to_ascii
from ddpwizard.knowledge.chapters import COLUMNS, LINES_PER_PAGE, read_chapters, read_valid_chapters
from ddpwizard.knowledge.labs import lab_ids
from ddpwizard.knowledge.yaml_file import KnowledgeError
from ddpwizard.screens.shell import theme
from helpers.built_in_knowledge import built_in_knowledge
from test_language import PATTERN

CHAPTERS = read_chapters()
DRAWN = re.compile("[─│┌┐└┘├┤┬┴┼█░▸◀═]")
CHAPTER = """\
order: 99
title: An odd chapter
summary: Something odd.
pages:
  - |
    It is odd.
labs: [port-in-use]
"""


def longest_drawing(page: str) -> int:
    """Return the largest number of consecutive lines that are drawn."""
    found = longest = 0
    for line in page.splitlines():
        found = found + 1 if DRAWN.search(line) else 0
        longest = max(longest, found)
    return longest


def typed_commands(page: str) -> list[list[str]]:
    """Return the words of each command line of ddpwizard in a page, without its comment."""
    lines = (line.partition("#")[0].strip() for line in page.splitlines())
    return [shlex.split(line) for line in lines if line.startswith("ddpwizard ")]


def test_chapters_have_an_order():
    assert [chapter.order for chapter in CHAPTERS.values()] == list(range(1, len(CHAPTERS) + 1))
    assert next(iter(CHAPTERS)) == "ranks" and len(CHAPTERS) >= 12


@pytest.mark.parametrize("id_", CHAPTERS)
def test_chapter_fits_a_small_terminal_also_in_ascii(id_: str):
    chapter = CHAPTERS[id_]
    assert 1 <= len(chapter.pages) <= 4
    for text in (chapter.title, chapter.summary):
        assert len(text) <= 100
    for number, page in enumerate(chapter.pages, 1):
        lines = page.splitlines()
        assert len(lines) <= LINES_PER_PAGE, (number, len(lines))
        for line in lines:
            plain = to_ascii(line)
            assert len(line) == len(plain) <= COLUMNS, (number, line)
            assert plain.count("?") == line.count("?") == theme.to_ascii(line).count("?"), (number, line)


@pytest.mark.parametrize("id_", CHAPTERS)
def test_chapter_has_a_drawing_and_ids_of_causes(id_: str):
    chapter = CHAPTERS[id_]
    assert max(map(longest_drawing, chapter.pages)) >= 3
    assert chapter.labs and set(chapter.labs) <= built_in_knowledge().causes.keys() | lab_ids()
    assert len(set(chapter.labs)) == len(chapter.labs)


@pytest.mark.parametrize("id_", CHAPTERS)
def test_chapter_names_commands_that_exist(id_: str):
    context = click.Context(cli.group)
    for page in CHAPTERS[id_].pages:
        for _, name, *words in typed_commands(page):
            command = cli.group.get_command(context, name)
            assert command, name
            own = words[: words.index("--")] if "--" in words else words
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in own if word.startswith("--")} <= known, (name, own)


@pytest.mark.parametrize("id_", CHAPTERS)
def test_chapter_avoids_the_words(id_: str):
    chapter = CHAPTERS[id_]
    assert not PATTERN.findall("\n".join([chapter.title, chapter.summary, *chapter.pages]))


def test_rules_in_chapters_exist():
    named = {rule for chapter in CHAPTERS.values() for page in chapter.pages for rule in re.findall(r"DW\d{3}", page)}
    assert named and named <= built_in_knowledge().rules.keys()


def test_a_team_adds_and_replaces_chapters(tmp_path: Path):
    (tmp_path / "chapters").mkdir()
    (tmp_path / "chapters" / "odd.yaml").write_text(CHAPTER)
    (tmp_path / "chapters" / "ranks.yaml").write_text(CHAPTER.replace("99", "0"))
    chapters = read_chapters(tmp_path)
    assert next(iter(chapters)) == "ranks" and list(chapters)[-1] == "odd"
    assert (chapters["odd"].title, chapters["odd"].id) == ("An odd chapter", "odd")
    assert chapters["ranks"].pages == ["It is odd.\n"]


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("order: 99", "order: first", 1, "int"),
        ("summary: Something odd.", "sumary: Something odd.", 3, "sumary"),
        ("summary: Something odd.", "summary: |\n  One.\n  Two.", 3, "one line"),
        ("pages:\n  - |\n    It is odd.\n", "pages: []\n", 4, "at least one page"),
        ("    It is odd.\n", "    It is odd.\n" * 21, 5, "at most 20 lines, not 21"),
        ("    It is odd.\n", "    " + "x" * 77 + "\n", 5, "at most 76 columns, not 77"),
    ],
)
def test_error_is_reported_with_file_and_line(old: str, new: str, line: int, problem: str, tmp_path: Path):
    path = tmp_path / "chapters" / "odd.yaml"
    path.parent.mkdir()
    path.write_text(CHAPTER.replace(old, new))
    with pytest.raises(KnowledgeError) as caught:
        read_chapters(tmp_path)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert problem in caught.value.problem
    chapters, problems = read_valid_chapters(tmp_path)
    assert "odd" not in chapters and CHAPTERS.keys() <= chapters.keys()
    assert [each.path for each in problems] == [path]
