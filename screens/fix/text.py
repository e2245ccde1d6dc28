"""A fix in its parts (patch, commands, config, why), coloured for the screen and plain for a file."""

from textual.content import Content

from ...app.fixes.types import Fix
from ...knowledge.schema import Cause
from ..widgets.formatting import reflow, safe_content, status_sign


def fix_parts(fix: Fix, cause: Cause) -> dict[str, list[Content]]:
    """What there is of the fix, by the name of its tab, in reading order."""
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


def safety_text(fix: Fix, ascii_only: bool) -> Content:
    """How far it can be trusted to change nothing but the fault."""
    if fix.safety == "safe":
        return Content.assemble(status_sign("ok", ascii_only), " safe: it changes nothing but the fault")
    if fix.safety == "unsafe":
        return Content.assemble(status_sign("warn", ascii_only), safe_content(f" read it first: {fix.why_unsafe}"))
    return Content.styled("to read and do by hand", "$muted")


def part_as_text(fix: Fix, cause: Cause, part: str) -> tuple[str, str]:
    """A part for the clipboard: (name of a file for it, its text)."""
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
