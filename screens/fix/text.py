"""The parts of a fix (patch, what to do, config, why): coloured for the screen, plain for a file."""

from collections.abc import Iterator

from textual.content import Content

from ...app.fixes.types import Fix, commands_text, place_lines, safety_text, start_again_text
from ...app.text.paragraphs import reflow
from ...knowledge.schema import Cause
from ..widgets.formatting import safe_content, status_sign
from ..widgets.source import diff_line

STEPS = "what to do"
SHORT_FILE_LINES = 20


def fix_parts(fix: Fix, cause: Cause) -> dict[str, list[Content]]:
    """Return the parts that the fix has by the name of their tab, in reading order.

    ``what to do`` is the whole fix but its patch; ``config`` a new file alone, to copy it.
    """
    found: dict[str, list[Content]] = {}
    if fix.patches:
        found["patch"] = [diff_line(line) for line in fix.diff().removesuffix("\n").split("\n")]
    if steps := list(_steps(fix)):
        found[STEPS] = steps
    if fix.files:
        found["config"] = [row for name, content in fix.files.items() for row in _file(name, content)]
    found["why"] = [safe_content(cause.summary, "bold"), Content(""), safe_content(reflow(cause.explain))]
    return found


def safety_content(fix: Fix, ascii_only: bool) -> Content:
    """Render how far the fix can be trusted."""
    status, text = safety_text(fix)
    if status is None:
        return Content.styled(text, "$muted")
    return Content.assemble(status_sign(status, ascii_only), safe_content(f" {text}"))


def part_as_text(fix: Fix, cause: Cause, part: str) -> tuple[str, str]:
    """Return a part for the clipboard: (file name, text). Of what to do it is the code, or else the commands."""
    if part == "patch":
        return f"{fix.id}.patch", fix.diff()
    if part == STEPS and fix.code:
        return f"{fix.id}.txt", fix.code + "\n"
    if part == STEPS and fix.commands:
        return f"{fix.id}.sh", "\n".join(fix.commands) + "\n"
    if part == "config":
        name = next(iter(fix.files)).rpartition("/")[2]
        return name, "\n".join(fix.files.values())
    return f"{fix.id}.txt", "\n".join(row.plain for row in fix_parts(fix, cause)[part]) + "\n"


def _steps(fix: Fix) -> Iterator[Content]:
    """Yield prose, places, code, commands and new files, with an empty line between two of them."""
    blocks = [
        [safe_content(reflow(fix.text))] if fix.text else [],
        [safe_content(f"  {line}") for line in place_lines(fix)],
        [safe_content(f"  {line}", "bold") for line in fix.code.splitlines()],
        [safe_content(reflow(fix.note))] if fix.note else [],
        list(_commands(fix)),
        [safe_content(start_again_text(fix)), safe_content(f"  {fix.again}", "bold")] if fix.again else [],
        [row for name, content in fix.files.items() for row in _new_file(name, content)],
    ]
    for number, block in enumerate(filter(None, blocks)):
        yield from ([Content("")] if number else [])
        yield from block


def _commands(fix: Fix) -> Iterator[Content]:
    if fix.commands and fix.directory:
        yield safe_content(commands_text(fix))
    yield from (safe_content(line, "bold") for line in fix.commands)


def _new_file(name: str, content: str) -> list[Content]:
    """Return a short file as it will be written; of a long one its length, since it has a tab of its own."""
    lines = len(content.splitlines())
    if lines > SHORT_FILE_LINES:
        return [safe_content(f"new file {name}, {lines} lines: see config", "bold")]
    return _file(f"new file {name}", content)


def _file(name: str, content: str) -> list[Content]:
    return [safe_content(name, "bold"), *(safe_content(line) for line in content.splitlines()), Content("")]
