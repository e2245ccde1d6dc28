"""Migrations of a training script: read it once into facts, then rewrite it, or refuse with the place."""

from collections.abc import Callable

from ...errors import UserError
from ...training_script.source import BOM, NEWLINE
from . import ddp, fsdp2, resume
from .types import Migration, Note, Refusal

# A migration returns the new text and its reports; the text has newlines only.
Rewrite = Callable[[str, str], tuple[str, list[Note]]]
# By the names of ``targets.TARGETS``.
REWRITES: dict[str, Rewrite] = {"ddp": ddp.rewrite, "fsdp2": fsdp2.rewrite, "resume": resume.rewrite}


def migrate(text: str, path: str, target: str) -> Migration:
    """Return the migration of the text of a script.

    Raises:
        UserError: The text is not valid Python, or a notebook.
    """
    if path.endswith(".ipynb"):
        raise UserError(f"{path}: a notebook", "export it first: jupyter nbconvert --to script")
    newline = found[0] if (found := NEWLINE.search(text)) else "\n"
    plain = NEWLINE.sub("\n", text.removeprefix(BOM))
    try:
        after, reports = REWRITES[target](plain, path)
    except Refusal as refusal:
        return Migration(target=target, path=path, before=text, after=text, refusals=[refusal.note])
    if NEWLINE.sub("\n", text) != text or text.startswith(BOM):
        after = (BOM if text.startswith(BOM) else "") + after.replace("\n", newline)
    return Migration(target=target, path=path, before=text, after=after, reports=sorted(set(reports)))
