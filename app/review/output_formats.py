"""Output formats of findings: public JSON, SARIF 2.1.0, GitHub workflow commands, plain lines."""

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ...knowledge.schema import Knowledge
from ..system.paths import relative_to_cwd
from .types import ReviewFinding

SARIF_LEVEL = {"error": "error", "warning": "warning", "info": "note"}
GITHUB_LEVEL = {"error": "error", "warning": "warning", "info": "notice"}
LINES_AROUND = 2
MOST_LINES = 9


def finding_as_json(finding: ReviewFinding) -> dict[str, Any]:
    """Return the public JSON of a finding."""
    names = ("rule", "cause", "path", "line", "column", "end_line", "message", "why", "severity", "confidence")
    fix = finding.fix
    shown = fix and {"id": fix.id, "safety": fix.safety, "why_unsafe": fix.why_unsafe, "diff": fix.diff}
    return {name: getattr(finding, name) for name in names} | {"fix": shown}


def sarif_log(findings: Sequence[ReviewFinding], knowledge: Knowledge, version: str) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log with one run; paths as URIs, relative if below the working directory."""
    rules = sorted({finding.rule for finding in findings})
    driver = {"name": "ddpwizard", "version": version, "rules": [_sarif_rule(rule, knowledge) for rule in rules]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(finding, rules) for finding in findings],
            }
        ],
    }


def _sarif_rule(id_: str, knowledge: Knowledge) -> dict[str, Any]:
    rule = knowledge.rules[id_]
    return {
        "id": id_,
        "name": rule.cause,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"{rule.fix}. How it shows: {rule.symptom}."},
        "defaultConfiguration": {"level": SARIF_LEVEL[rule.severity]},
    }


def _sarif_result(finding: ReviewFinding, rules: list[str]) -> dict[str, Any]:
    path = relative_to_cwd(finding.path)
    uri = ("file://" if path.startswith("/") else "") + quote(os.fsencode(path))
    region = {"startLine": finding.line, "startColumn": finding.column, "endLine": finding.end_line}
    return {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": SARIF_LEVEL[finding.severity],
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
        "properties": {"confidence": finding.confidence},
    }


def github_command(finding: ReviewFinding) -> str:
    """Return a workflow command that GitHub shows next to the line."""
    place = {
        "file": relative_to_cwd(finding.path),
        "line": str(finding.line),
        "endLine": str(finding.end_line),
        "col": str(finding.column),
        "title": f"{finding.rule} {finding.cause}",
    }
    properties = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in place.items())
    return f"::{GITHUB_LEVEL[finding.severity]} {properties}::{_escaped(f'{finding.message}. {finding.why}', '')}"


def _escaped(text: str, also: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + also else c for c in text)


def finding_lines(finding: ReviewFinding, text: Sequence[str], knowledge: Knowledge, ascii_only: bool) -> list[str]:
    """Return a finding as text: the place, the source around it, why it matters, the fix and how safe it is.

    ``text`` are the lines of the file.
    """
    place = f"{relative_to_cwd(finding.path)}:{finding.line}:{finding.column}"
    rule = knowledge.rules[finding.rule]
    lines = [f"{place} {finding.rule} {finding.message}"]
    lines += [f"    {line}" for line in _excerpt(finding, text, ascii_only)]
    lines += [f"    why  {finding.why}", f"    fix  {rule.fix}"]
    fix = finding.fix
    if fix and fix.safety == "display":
        lines.append(f"         by hand: {fix.why_unsafe}")
    elif fix:
        lines.append(f"         patch {fix.id}, {fix.safety}" + (f": {fix.why_unsafe}" if fix.why_unsafe else ""))
    return lines


def _excerpt(finding: ReviewFinding, text: Sequence[str], ascii_only: bool) -> list[str]:
    """Return the numbered lines of a finding and of its condition; distant lines in between are left out."""
    mark, gap = (">", "...") if ascii_only else ("▸", "…")
    first = finding.branch or max(1, finding.line - LINES_AROUND)
    wanted = list(range(min(first, finding.line), min(len(text), finding.line + LINES_AROUND) + 1))
    if len(wanted) > MOST_LINES:
        wanted = [n for n in wanted if abs(n - finding.line) <= LINES_AROUND or n == finding.branch]
    shown: list[str] = []
    for place, number in enumerate(wanted):
        if place and number > wanted[place - 1] + 1:
            shown.append(f"  {'':>5}  {gap}")
        sign = mark if number == finding.line else " "
        shown.append(f"{sign} {number:>5}  {text[number - 1].expandtabs(4)}".rstrip())
    return shown
