"""Plain technical English: help texts, messages, documentation and docstrings avoid the words listed here."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from ddpwizard import cli

ROOT = Path(__file__).parent.parent
# word: the plain ones to use instead
AVOIDED = {
    r"told": "reported, listed, distinguished",
    r"said": "given, reported",
    r"mend(s|ed|ing)?": "fix",
    r"besides?": "next to, in addition to, with",
    r"stands": "is at, waits at",
    r"box(es)?": "machine",
    r"(a|one|each|last|saved|first|second|third) look": "a sample, a snapshot",
    r"(two|the|all|between) looks": "samples",
    r"unasked": "without being asked",
    r"anew": "again",
    r"part(ed|ing)": "diverged, divergence",
    r"sought": "wanted",
    r"speaks?|speaking": "points to, supports, sends",
    r"stand(s|ing)? still": "hangs",
}
PATTERN = re.compile(rf"\b({'|'.join(AVOIDED)})\b", re.IGNORECASE)
CLAUSE = re.compile(r"(What|Who|Whether|Where|That|How|Which|When)\b(?!-|.*\?)")
CLAUSE_IN_QUOTES = re.compile(rf"[\"'](\\\\\n)?\s*{CLAUSE.pattern}")
# Written as users write them.
PROGRAMS_OF_USERS = (
    "tests/real_jobs/programs",
    "tests/real_jobs/scripts",
    "tests/journeys/scripts",
    "tests/helpers/migration_scripts",
)
KNOWLEDGE_FILES = ("labs", "chapters", "questions.yaml", "rules.yaml", "probes.yaml", "terms.yaml", "topics.yaml")
CODE = ("app", "screens", "knowledge", "docs", "assets", "cli.py", "tests")
DOCUMENTS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
)


def tracked(*paths: str, ending: str) -> list[Path]:
    """Return the files of the tree below ``paths`` with this ending."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.splitlines() if name.endswith(ending) and (ROOT / name).is_file()]


def programs(pattern: re.Pattern[str], *paths: str) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each Python file whose text matches: to parse all files takes seconds.

    Parts of names count as words.
    """
    for path in tracked(*paths, ending=".py"):
        text = path.read_text()
        if pattern.search(text.replace("_", " ")):
            yield path, text


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and isinstance(node.body[0], ast.Expr):
                yield node.body[0].lineno, text


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string that has more than one word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def names_and_comments(readline: Callable[[], str]) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment, and of every name with spaces between its parts."""
    for token in tokenize.generate_tokens(readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        elif token.type == tokenize.NAME:
            yield token.start[0], token.string.replace("_", " ")


def without_patterns(text: str) -> list[str]:
    """Return the lines of a YAML file; the phrases of users in a question are theirs and are left empty."""
    lines, heard = [], False
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        heard = line.strip() == "heard:" or (heard and indent > 2)
        lines.append("" if heard else line)
    return lines


def avoided(path: Path, found: Iterator[tuple[int, str]]) -> list[str]:
    """Return one line for each avoided word."""
    where = path.relative_to(ROOT)
    return [f"{where}:{line}: {match[0]}" for line, text in found for match in PATTERN.finditer(text)]


def test_docstrings_and_messages_avoid_the_words() -> None:
    """Texts in code, docstrings among them. Tests may quote what users write, so only their docstrings count."""
    found = []
    for path, text in programs(PATTERN, *CODE):
        if path == Path(__file__):
            continue
        tree = ast.parse(text)
        found += avoided(path, docstrings(tree) if path.is_relative_to(ROOT / "tests") else texts(tree))
    assert not found, "\n".join(found)


def test_names_and_comments_avoid_the_words() -> None:
    """Names count by their parts. Programs that are examples of what users write are theirs."""
    found = []
    for path, text in programs(PATTERN, *CODE):
        if path == Path(__file__) or any(path.is_relative_to(ROOT / each) for each in PROGRAMS_OF_USERS):
            continue
        found += avoided(path, names_and_comments(io.StringIO(text).readline))
    assert not found, "\n".join(found)


def test_docstrings_are_imperative_or_noun_phrases() -> None:
    clauses = []
    for path, program in programs(CLAUSE_IN_QUOTES, *CODE):
        for line, text in docstrings(ast.parse(program)):
            if CLAUSE.match(text.split("\n")[0]):
                clauses.append(f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}")
    assert not clauses, "\n".join(clauses)


@pytest.mark.parametrize("name", KNOWLEDGE_FILES)
def test_texts_of_labs_chapters_questions_and_rules_avoid_the_words(name: str) -> None:
    found = []
    for path in tracked(f"knowledge/{name}", ending=".yaml"):
        found += avoided(path, iter(enumerate(without_patterns(path.read_text()), 1)))
    assert not found, "\n".join(found)


def test_names_of_tests_avoid_the_words() -> None:
    found = []
    for path, text in programs(PATTERN, "tests"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found += [f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"] * bool(
                    PATTERN.search(node.name.replace("_", " "))
                )
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_avoid_the_words(name: str) -> None:
    lines = re.sub(r"`[^`\n]*`", "", (ROOT / name).read_text()).splitlines()
    assert not avoided(ROOT / name, iter(enumerate(lines, 1)))


def test_texts_of_the_entries_avoid_the_words() -> None:
    """Quoted log lines and phrases of users are theirs; titles, explanations, fixes and differences are ours."""
    from helpers.built_in_knowledge import built_in_knowledge

    found = []
    for cause in built_in_knowledge().causes.values():
        fixes = (text for fix in cause.fixes for text in (fix.id, fix.title, fix.text, fix.code, fix.note))
        clues = (clue.why for clue in cause.clues)
        apart = (*cause.tells_apart.values(), *(each.what for each in cause.changed), cause.no_lab)
        for text in (cause.title, cause.summary, cause.explain, *fixes, *clues, *apart):
            found += [f"{cause.id}: {match[0]}: {text[:60]}" for match in PATTERN.finditer(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_avoids_the_words(command: str) -> None:
    shown = CliRunner().invoke(cli.group, [*filter(None, [command]), "--help"]).output
    assert "Usage" in shown
    assert not PATTERN.findall(click.unstyle(shown))
