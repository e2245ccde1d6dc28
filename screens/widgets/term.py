"""A term of the glossary."""

from textual.content import Content

from ...knowledge.schema import Knowledge
from .formatting import safe_content


def term_paragraphs(name: str, knowledge: Knowledge) -> list[Content]:
    """Render a term: its text, its chapter, its causes."""
    term = knowledge.terms[name]
    rows = [safe_content(name, "bold"), safe_content(" / ".join(["term", *term.also]), "$muted"), Content("")]
    rows += [safe_content(term.text), Content(""), Content.styled("Chapter", "bold $accent")]
    rows += [safe_content(f"  ddpwizard explain {term.chapter}")]
    if term.causes:
        rows += [Content(""), Content.styled("Causes", "bold $accent")]
        rows += [Content.assemble("  – ", safe_content(knowledge.causes[id_].title)) for id_ in term.causes]
    return rows
