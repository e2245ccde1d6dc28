"""Documents of a few kinds of blocks, written as Markdown or as one HTML page without scripts.

Every text is plain text: markup in a log or a file name is escaped.
"""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from .terminal import strip_control


class Bullets(NamedTuple):
    """A list; a pair is a line and, less prominent, its source."""

    items: Sequence[str | tuple[str, str]]


class Table(NamedTuple):
    """Rows under a header."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Code(NamedTuple):
    """Text shown verbatim. ``language`` is ``diff``, ``python`` or ``text``."""

    text: str
    language: str = "text"


Block = str | Bullets | Table | Code


class Section(NamedTuple):
    """A heading and the blocks under it."""

    title: str
    blocks: list[Block]


class Document(NamedTuple):
    """A title, the answer in a few sentences, and the sections that prove it."""

    title: str
    lead: list[str]
    sections: list[Section]


def to_markdown(document: Document) -> str:
    """Return the document in GitHub's Markdown."""
    parts = [f"# {escape_markdown(document.title)}", *(escape_markdown(line) for line in document.lead)]
    for section in document.sections:
        parts.append(f"## {escape_markdown(section.title)}")
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(parts) + "\n"


def to_html(document: Document) -> str:
    """Return one self-contained page without scripts, readable in light and dark mode and on paper."""
    body = [f"<h1>{_safe(document.title)}</h1>", *(f'<p class="lead">{_safe(line)}</p>' for line in document.lead)]
    for section in document.sections:
        body.append(f"<section><h2>{_safe(section.title)}</h2>")
        body += [_html_block(block) for block in section.blocks]
        body.append("</section>")
    return PAGE.format(title=_safe(document.title), style=STYLE, body="\n".join(body))


def _block(block: Block) -> str:
    if isinstance(block, str):
        return escape_markdown(block)
    if isinstance(block, Code):
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", block.text)), default=0))
        return f"{fence}{block.language}\n{strip_control(block.text).rstrip()}\n{fence}"
    if isinstance(block, Bullets):
        pairs = [(item, "") if isinstance(item, str) else item for item in block.items]
        return "\n".join(
            f"- {escape_markdown(line)}" + (f" ({escape_markdown(how)})" if how else "") for line, how in pairs
        )
    rows = [block.head, ["---"] * len(block.head), *([escape_markdown(cell) for cell in row] for row in block.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def escape_markdown(text: str) -> str:
    """Return one line of prose with Markdown's special characters escaped."""
    line = " ".join(strip_control(text).split())
    line = re.sub(r"([\\`*\[|]|~(?=~))", r"\\\1", line).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)
    return re.sub(r"^(?=[#+-])|^(\d+)(?=[.)]\s)", r"\1\\", line)


def _html_block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{_safe(block)}</p>"
    if isinstance(block, Code):
        lines = strip_control(block.text).rstrip().split("\n")
        if block.language == "diff":
            return f"<pre>{''.join(_diff_line(line) for line in lines)}</pre>"
        return f"<pre>{_safe(chr(10).join(lines))}</pre>"
    if isinstance(block, Bullets):
        pairs = [(item, "") if isinstance(item, str) else item for item in block.items]
        items = (f"<li>{_safe(line)}{f' <small>{_safe(how)}</small>' if how else ''}</li>" for line, how in pairs)
        return f"<ul>{''.join(items)}</ul>"
    head = "".join(f'<th scope="col">{_safe(cell)}</th>' for cell in block.head)
    rows = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in block.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _diff_line(line: str) -> str:
    kind = {"+": "new", "-": "old", "@": "at"}.get(line[:1], "")
    return f'<span class="{kind}">{_safe(line)}\n</span>' if kind else f"{_safe(line)}\n"


def _safe(text: str) -> str:
    return html.escape(strip_control(text))


STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --paper: #ffffff; --quiet: #57606a; --rule: #d0d7de;
  --code: #f3f5f7; --new: #0a5c2b; --old: #a1161f; --accent: #0b57b0 }
@media (prefers-color-scheme: dark) { :root { --text: #e3e8ee; --paper: #14181d; --quiet: #9aa7b4; --rule: #37414c;
  --code: #1d242c; --new: #7ee2a0; --old: #ff9a94; --accent: #79b8ff } }
body { color: var(--text); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; border-bottom: 1px solid var(--rule); padding-bottom: .2rem }
.lead { font-size: 1.1rem } small { color: var(--quiet) }
pre { background: var(--code); padding: .7rem; overflow-x: auto; font: 13px/1.45 ui-monospace, monospace }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .92rem }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--rule) }
.new { color: var(--new) } .old { color: var(--old) } .at { color: var(--accent) }
@media print { pre, .wide { overflow: visible; white-space: pre-wrap } }
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
