"""Comments that suppress findings: ``# ddpwizard: ignore[DW401] reason``, on the line of a finding or the line above.

Without rules in brackets a comment suppresses every finding of its line. A comment without effect is a finding.
"""

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from ..training_script.source import BOM
from .rule_descriptions import UNUSED_IGNORE, UNUSED_IGNORE_RULE
from .types import ReviewFinding

COMMENT = re.compile(r"#\s*ddpwizard:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?", re.IGNORECASE)
NO_CODE = (tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


class Suppression(msgspec.Struct, frozen=True):
    """A comment: its place, the line of code that it is for, and the rules that it names (None: all)."""

    line: int
    column: int
    code_line: int
    text: str
    rules: tuple[str, ...] | None

    def covers(self, finding: ReviewFinding) -> bool:
        """Return whether this comment suppresses a finding."""
        on_line = self.code_line in (finding.line, finding.end_line)
        return on_line and (self.rules is None or finding.rule in self.rules)


def suppressions_in(text: str) -> list[Suppression]:
    """Return the suppressing comments of a Python text; strings that look like one are none."""
    return [*_comments(text)] if COMMENT.search(text) else []


def unsuppressed(findings: Iterable[ReviewFinding], comments: Sequence[Suppression]) -> list[ReviewFinding]:
    """Return the findings that no comment suppresses."""
    return [finding for finding in findings if not any(each.covers(finding) for each in comments)]


def unused_suppressions(
    findings: Sequence[ReviewFinding],
    comments: Sequence[Suppression],
    path: str,
    *,
    ran: Collection[str],
    known: Collection[str],
) -> list[ReviewFinding]:
    """Return a finding for each comment that suppresses none of ``findings``.

    A rule that did not run is not judged: ``ran`` are those that did, of the ``known`` ones.
    """
    unused: list[ReviewFinding] = []
    for comment in comments:
        used = {finding.rule for finding in findings if comment.covers(finding)}
        if comment.rules is None:
            problem = "" if used or set(ran) != set(known) else f"nothing is found on line {comment.code_line}"
        elif not comment.rules:
            problem = "it names no rule"
        else:
            problem = ", ".join(
                f"{rule} is no rule" if rule not in known else f"{rule} is not found on line {comment.code_line}"
                for rule in comment.rules
                if rule not in known or (rule in ran and rule not in used)
            )
        if problem:
            unused.append(_finding(comment, f"`{comment.text}` has no effect: {problem}", path))
    return unused


def _finding(comment: Suppression, message: str, path: str) -> ReviewFinding:
    return ReviewFinding(
        rule=UNUSED_IGNORE,
        cause=UNUSED_IGNORE_RULE.cause,
        path=path,
        line=comment.line,
        column=comment.column,
        end_line=comment.line,
        message=message,
        why=UNUSED_IGNORE_RULE.why,
        severity=UNUSED_IGNORE_RULE.severity,
        confidence=1.0,
    )


def _comments(text: str) -> Iterator[Suppression]:
    """Yield the comments, each when the line of code that it is for is known."""
    waiting: list[Suppression] = []
    code_line = 0  # the last line that holds code
    for token in _tokens(text):
        if token.type == tokenize.COMMENT and (found := COMMENT.search(token.string)):
            line, column = token.start
            named = found["rules"]
            rules = None if named is None else tuple(part.strip().upper() for part in named.split(",") if part.strip())
            comment = Suppression(line, column + found.start() + 1, code_line, found[0], rules)
            if code_line == line:
                yield comment
            else:
                waiting.append(comment)
        elif token.type not in NO_CODE:
            for comment in waiting:
                yield msgspec.structs.replace(comment, code_line=token.start[0])
            waiting = []
            code_line = token.end[0]


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text.removeprefix(BOM), newline=None).readline)
    except (tokenize.TokenError, SyntaxError):  # of the end of a text that the parser accepts
        return
