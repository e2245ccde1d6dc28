"""The parts of a fix (patch, commands, config, why): coloured for the screen, plain for a file."""

from textual.content import Content

from ...app.fixes.types import Fix, safety_text
from ...knowledge.schema import Cause
from ..widgets.formatting import reflow, safe_content, status_sign


def fix_parts(fix: Fix, cause: Cause) -> dict[str, list[Content]]:
    """Return the parts that the fix has by the name of their tab, in reading order."""
    found: dict[str, list[Content]] = {}
    if fix.patches:
        found["patch"] = [_diff_line(line) for line in fix.diff().removesuffix("\n").split("\n")]
    if fix.commands:
        found["commands"] = [safe_content(line) for line in fix.commands]
    if fix.files:
        found["config"] = [row for name, content in fix.files.items() for row in _file(name, content)]
    found["why"] = [safe_content(reflow(fix.text)), Content("")] if fix.text else []
    found["why"] += [safe_content(cause.summary, "bold"), Content(""), safe_content(reflow(cause.explain))]
    return found


def safety_content(fix: Fix, ascii_only: bool) -> Content:
    """Render how far the fix can be trusted."""
    status, text = safety_text(fix)
    if status is None:
        return Content.styled(text, "$muted")
    return Content.assemble(status_sign(status, ascii_only), safe_content(f" {text}"))


def part_as_text(fix: Fix, cause: Cause, part: str) -> tuple[str, str]:
    """Return a part for the clipboard: (file name, text)."""
    if part == "patch":
        return f"{fix.id}.patch", fix.diff()
    if part == "commands":
        return f"{fix.id}.sh", "\n".join(fix.commands) + "\n"
    if part == "config":
        name = next(iter(fix.files)).rpartition("/")[2]
        return name, "\n".join(fix.files.values())
    return f"{fix.id}.txt", "\n".join(row.plain for row in fix_parts(fix, cause)["why"]) + "\n"


def _file(name: str, content: str) -> list[Content]:
    return [safe_content(name, "bold"), *(safe_content(line) for line in content.splitlines()), Content("")]


def _diff_line(line: str) -> Content:
    if line.startswith(("---", "+++", "@@")):
        return safe_content(line, "$muted")
    return safe_content(line, {"+": "$success", "-": "$error"}.get(line[:1], ""))
