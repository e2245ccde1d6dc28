"""Output formats of findings: SARIF 2.1.0, GitHub workflow commands, plain lines."""

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ...knowledge.schema import Knowledge
from ..system.paths import relative_to_cwd
from ..text.terminal import Verbatim
from .rule_descriptions import rules_with_texts
from .types import RelatedPlace, ReviewFinding, SkippedFile, SourceLine

SARIF_LEVEL = {"error": "error", "warning": "warning", "info": "note"}
GITHUB_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}


def sarif_log(
    findings: Sequence[ReviewFinding], skipped: Sequence[SkippedFile], knowledge: Knowledge, version: str
) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log with one run; paths as URIs, relative if below the working directory.

    A file that was not reviewed is a notification of the run.
    """
    rules = sorted({finding.rule for finding in findings})
    driver = {"name": "ddpwizard", "version": version, "rules": [_sarif_rule(rule, knowledge) for rule in rules]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {"executionSuccessful": True, "toolExecutionNotifications": [_sarif_skipped(s) for s in skipped]}
                ],
                "results": [_sarif_result(finding, rules) for finding in findings],
            }
        ],
    }


def _sarif_rule(id_: str, knowledge: Knowledge) -> dict[str, Any]:
    rule = rules_with_texts(knowledge)[id_]
    return {
        "id": id_,
        "name": rule.cause or rule.title,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix}. Symptom: {rule.symptom}."},
        "defaultConfiguration": {"level": SARIF_LEVEL[rule.severity]},
    }


def _sarif_result(finding: ReviewFinding, rules: list[str]) -> dict[str, Any]:
    column = {} if finding.cell else {"startColumn": finding.column}  # not the column of the notebook's file
    region = {"startLine": finding.line, **column, "endLine": finding.end_line}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": SARIF_LEVEL[finding.severity],
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": _sarif_file(finding.path), "region": region}}],
        **({"relatedLocations": [_sarif_related(place) for place in finding.related]} if finding.related else {}),
        "properties": {"confidence": finding.confidence},
    }


def _sarif_related(place: RelatedPlace) -> dict[str, Any]:
    location = {"artifactLocation": _sarif_file(place.path), "region": {"startLine": place.line}}
    return {"physicalLocation": location, "message": {"text": place.message}}


def _sarif_skipped(skipped: SkippedFile) -> dict[str, Any]:
    return {
        "level": "warning",
        "message": {"text": f"not reviewed: {skipped.reason}"},
        "locations": [{"physicalLocation": {"artifactLocation": _sarif_file(skipped.path)}}],
    }


def _sarif_file(path: str) -> dict[str, str]:
    path = relative_to_cwd(path)
    return {"uri": ("file://" if path.startswith("/") else "") + quote(os.fsencode(path))}


def github_command(finding: ReviewFinding) -> str:
    """Return a workflow command that GitHub shows next to the line."""
    place = {
        "file": relative_to_cwd(finding.path),
        "line": str(finding.line),
        "endLine": str(finding.end_line),
        **({} if finding.cell else {"col": str(finding.column)}),
        "title": f"{finding.rule} {finding.cause}".strip(),
    }
    properties = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in place.items())
    return f"::{GITHUB_LEVEL[finding.severity]} {properties}::{_escaped(f'{finding.message}. {finding.why}', '')}"


def _escaped(text: str, also: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + also else c for c in text)


def github_command_of_skipped(skipped: SkippedFile) -> str:
    """Return a workflow command for a file that was not reviewed."""
    place = _escaped(relative_to_cwd(skipped.path), ":,")
    return f"::warning file={place},title=not reviewed::{_escaped(skipped.reason, '')}"


def place_text(place: ReviewFinding | RelatedPlace, *, column: bool = True) -> str:
    """Return a place as it is shown: ``train.py:12:5``, in a notebook ``train.ipynb:cell 3:12:5``.

    Only a finding has a column.
    """
    cell = place.cell
    line = f"cell {cell.number}:{cell.line}" if cell else f"{place.line}"
    at = f":{place.column}" if column and isinstance(place, ReviewFinding) else ""
    return f"{relative_to_cwd(place.path)}:{line}{at}"


def finding_lines(
    finding: ReviewFinding, excerpt: Sequence[SourceLine], knowledge: Knowledge, ascii_only: bool
) -> list[str]:
    """Return a finding as text: the place, the source around it, why it matters, the fix and how safe it is."""
    rule = rules_with_texts(knowledge)[finding.rule]
    lines = [f"{place_text(finding)} {finding.rule} {finding.message}"]
    lines += [Verbatim(f"    {line}") for line in _numbered(finding, excerpt, ascii_only)]
    lines += [f"    see  {place_text(each)}: {each.message}" for each in _outside(finding, excerpt)]
    lines += [f"    why  {finding.why}", f"    fix  {rule.fix}"]
    fix = finding.fix
    if fix and fix.safety == "display":
        lines.append(f"         by hand: {fix.why_unsafe}")
    elif fix:
        lines.append(f"         patch {fix.id}, {fix.safety}" + (f": {fix.why_unsafe}" if fix.why_unsafe else ""))
    return lines


def _outside(finding: ReviewFinding, excerpt: Sequence[SourceLine]) -> list[RelatedPlace]:
    """Return the related places of a finding that its excerpt does not show."""
    if finding.cell:
        return [each for each in finding.related if each.cell != finding.cell]
    shown = {line.number for line in excerpt}
    return [each for each in finding.related if each.path != finding.path or each.line not in shown]


def _numbered(finding: ReviewFinding, excerpt: Sequence[SourceLine], ascii_only: bool) -> list[str]:
    """Return the lines around a finding with their numbers, and a sign where lines are left out."""
    mark, gap = (">", "...") if ascii_only else ("▸", "…")
    at = finding.cell.line if finding.cell else finding.line
    shown: list[str] = []
    for place, (number, text) in enumerate(excerpt):
        if place and number > excerpt[place - 1].number + 1:
            shown.append(f"  {'':>5}  {gap}")
        shown.append(f"{mark if number == at else ' '} {number:>5}  {text.expandtabs(4)}".rstrip())
    return shown
