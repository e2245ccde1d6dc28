"""The documentation site: every entry has its page, every link leads somewhere, and mkdocs builds it strictly."""

import functools
import posixpath
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ddpwizard.cli import COMMANDS
from ddpwizard.knowledge.chapters import read_chapters
from helpers.built_in_knowledge import built_in_knowledge
from public_documents import DOCUMENTS
from site_pages import generated_pages, inline, term_anchor

ROOT = Path(__file__).parents[2]
KNOWLEDGE = built_in_knowledge()
WRITTEN = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


@functools.cache
def generated() -> dict[str, str | bytes]:
    """Return the generated files, made by the first test that needs them."""
    return generated_pages()


def pages() -> dict[str, str]:
    """Return the text of every page, written or generated."""
    return WRITTEN | {path: text for path, text in generated().items() if isinstance(text, str)}


def test_every_entry_has_its_page():
    expected = {f"causes/{id_}.md" for id_ in KNOWLEDGE.causes} | {f"rules/{id_}.md" for id_ in KNOWLEDGE.rules}
    expected |= {f"chapters/{id_}.md" for id_ in read_chapters()} | {f"checks/{id_}.md" for id_ in KNOWLEDGE.probes}
    expected |= {f"schemas/{kind}.json" for kind in DOCUMENTS}
    assert expected <= generated().keys()
    glossary = pages()["glossary.md"]
    assert all(f"{{ #{term_anchor(name)} }}" in glossary for name in KNOWLEDGE.terms)
    assert len({term_anchor(name) for name in KNOWLEDGE.terms}) == len(KNOWLEDGE.terms)
    assert all(f"## ddpwizard {name}\n" in pages()["commands.md"] for name in COMMANDS)
    assert not WRITTEN.keys() & generated().keys()


def test_links_lead_to_pages():
    paths = WRITTEN.keys() | generated().keys()
    for page, text in pages().items():
        prose = re.sub(r"^(`{3,}).*?^\1$|^ {4}.*?$|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
        for target in LINK.findall(prose):
            if "://" not in target and not target.startswith("#"):
                path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
                assert path in paths, (page, target)


def test_navigation_has_every_written_page():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = set(re.findall(r"[\w/-]+\.md", str(settings["nav"])))
    assert WRITTEN.keys() <= listed
    assert listed <= pages().keys()


def test_signs_of_a_text_are_no_markup():
    assert inline("a `b|c` and *d* [e](f) <g>") == "a <code>b&#124;c</code> and \\*d\\* \\[e](f) &lt;g&gt;"


@pytest.mark.slow
def test_mkdocs_builds_the_site_strictly(tmp_path: Path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "causes" / "port-in-use.html").read_text()
    assert KNOWLEDGE.causes["port-in-use"].title in page
    loaded = re.findall(r"<(?:link|script|img)[^>]*(?:href|src)=\"?(https?:[^\" >]*)", page)
    assert not loaded
    assert not list(tmp_path.rglob("*.py"))
