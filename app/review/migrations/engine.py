"""Migrations of a training script: read it once into facts, then rewrite it, or refuse with the place."""

import difflib
from collections.abc import Callable

from ...errors import UserError
from ...text.python_source import parse_python
from ...training_script.model.rank_mentions import concerns_ranks
from ...training_script.source import BOM, NEWLINE
from ..file_review import every_error_in_one_line
from . import ddp, fsdp2, resume
from .own_findings import Migrated, without_own_findings
from .types import Migration, Note, Refusal

# A migration returns the new text and its reports; the text has newlines only.
Rewrite = Callable[[str, str], tuple[str, list[Note]]]
# By the names of ``targets.TARGETS``.
REWRITES: dict[str, Rewrite] = {"ddp": ddp.rewrite, "fsdp2": fsdp2.rewrite, "resume": resume.rewrite}


def migrate(text: str, path: str, target: str) -> Migration:
    """Return the migration of the text of a script.

    Raises:
        UserError: The text is not valid Python, a notebook, or nested too deeply; or the migration failed.
    """
    if path.endswith(".ipynb"):
        raise UserError(f"{path}: a notebook", "export it first: jupyter nbconvert --to script")
    plain = NEWLINE.sub("\n", text.removeprefix(BOM))
    with every_error_in_one_line(path):
        try:
            after, reports = REWRITES[target](plain, path)
            if target != "resume" or concerns_ranks(plain):
                after = without_own_findings(Migrated(plain, after, path))
        except Refusal as refusal:
            return Migration(target=target, path=path, before=text, after=text, refusals=[refusal.note])
        parse_python(after)
    if plain != text:
        after = (BOM if text.startswith(BOM) else "") + _with_newlines(after, plain, text.removeprefix(BOM))
    return Migration(target=target, path=path, before=text, after=after, reports=sorted(set(reports)))


def _with_newlines(after: str, plain: str, text: str) -> str:
    """Return ``after`` with the newlines of ``text``; in new lines, that of its first line."""
    kinds = [match[0] for match in NEWLINE.finditer(text)]
    first = kinds[0] if kinds else "\n"
    if len(set(kinds)) < 2:
        return after.replace("\n", first)
    old, new = plain.split("\n"), after.split("\n")
    ends = [first] * len(new)
    for kind, start, end, to, _ in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            ends[to : to + end - start] = [*kinds, first][start:end]
    return "".join(line + end for line, end in zip(new[:-1], ends, strict=False)) + new[-1]
