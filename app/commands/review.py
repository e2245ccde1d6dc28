"""``ddpwizard review PATH…``: find distributed-training bugs in scripts, show or apply patches."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ... import __version__
from ...knowledge.schema import Knowledge, Safety
from ..errors import UserError
from ..exit_codes import ExitCode
from ..fixes.apply import apply_fix
from ..fixes.records import AppliedFix
from ..fixes.types import FilePatch, Fix
from ..options import Options, knowledge_for
from ..review import output_formats
from ..review.review import RULES, apply_fixes, review_text, scripts_in
from ..review.types import ReviewFinding
from ..system.paths import relative_to_cwd
from ..text import redact
from ..text.diff import unified_diff
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line, print_patch, print_progress
from ..training_script.source import NEWLINE, read_source
from .common import common_options


class _Script(msgspec.Struct):
    """A file under review: its text, its findings, and its text after the patches."""

    path: Path
    text: str
    encoding: str
    findings: list[ReviewFinding]
    after: str
    done: list[ReviewFinding]


@click.command(name="review")
@click.argument("paths", nargs=-1, metavar="PATH…", required=True, type=click.Path(path_type=Path))
@click.option("--diff", is_flag=True, help="Print one patch with every fix, safe and unsafe; write nothing.")
@click.option("--fix", is_flag=True, help="Show the safe fixes and apply them; ddpwizard undo reverts them.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix: also apply fixes that may change behaviour.")
@click.option("--rule", "rules", metavar="ID", multiple=True, help="Only this rule. Repeatable.")
@click.option(
    "--format", "format_", type=click.Choice(["sarif", "github"]), help="Output for code scanning or GitHub Actions."
)
@common_options
def command(
    paths: Sequence[Path],
    diff: bool,
    fix: bool,
    unsafe_fixes: bool,
    rules: Sequence[str],
    format_: str | None,
    options: Options,
) -> int:
    """Find distributed-training bugs in scripts. A directory means every .py file below it.

    Exit code 1: findings remain.

    \b
    Examples:
      ddpwizard review train.py
      ddpwizard review train.py --diff | git apply
      ddpwizard review src/ --fix --unsafe-fixes
    """
    _check(diff, fix, unsafe_fixes, rules, format_, options)
    knowledge = knowledge_for(options)
    safeties: list[Safety] = ["safe", "unsafe"] if unsafe_fixes or diff else ["safe"]
    scripts, unread = _read(paths, knowledge, rules or None, safeties if fix or diff else [])
    if fix:
        for script in scripts:
            for line in unified_diff(script.text, script.after, relative_to_cwd(str(script.path))).splitlines():
                print_progress(line)
        applied = _apply(scripts)
        for script in scripts if applied else []:
            script.text, script.findings = (
                script.after,
                review_text(script.after, str(script.path), knowledge, rules or None),
            )
        _tell_applied(scripts, applied)
    findings = [finding for script in scripts for finding in script.findings]
    if unread and not findings:
        raise UserError(unread[0], "pass Python 3 scripts, or omit this file")
    for problem in unread:
        print_progress(f"left out: {problem}")
    if options.json:
        body = {"findings": [output_formats.finding_as_json(finding) for finding in findings]}
        print_json(public_document("review", knowledge, body))
    elif format_ == "sarif":
        print_json(_plain(output_formats.sarif_log(findings, knowledge, __version__)))
    elif format_ == "github":
        for finding in findings:
            print_line(output_formats.github_command(finding))
    elif diff:
        _show_patch(scripts)
    else:
        _show(scripts, knowledge, options.ascii)
    return ExitCode.FOUND if findings else ExitCode.OK


def _check(
    diff: bool, fix: bool, unsafe_fixes: bool, rules: Sequence[str], format_: str | None, options: Options
) -> None:
    for rule in rules:
        if rule not in RULES:
            raise UserError(f"--rule {rule}: no such rule", "rules: " + ", ".join(RULES))
    if diff and fix:
        raise UserError("--diff writes nothing and --fix writes", "give one of them")
    if unsafe_fixes and not fix:
        raise UserError("--unsafe-fixes has no effect without --fix", "add --fix; --diff shows unsafe fixes anyway")
    if format_ and (options.json or diff):
        raise UserError("--format, --json and --diff each fill standard output", "give one of them")
    if options.json and diff:
        raise UserError("--json and --diff each fill standard output", "--json holds the diff of every fix already")


def _read(
    paths: Sequence[Path], knowledge: Knowledge, rules: Sequence[str] | None, safeties: Sequence[Safety]
) -> tuple[list[_Script], list[str]]:
    """Review every file; an unreadable file is an error if it was named, and reported if a directory contains it."""
    scripts: list[_Script] = []
    unread: list[str] = []
    for path, named in scripts_in(paths):
        try:
            absolute = path.absolute()
            _, text, encoding = read_source(path)
            findings = review_text(text, str(absolute), knowledge, rules)
            after, done = (
                apply_fixes(text, str(absolute), knowledge, rules, safeties) if findings and safeties else (text, [])
            )
            scripts.append(_Script(absolute, text, encoding, findings, after, done))
        except UserError as error:
            if named:
                raise
            unread.append(error.message)
    return scripts, unread


def _apply(scripts: list[_Script]) -> AppliedFix | None:
    """Write all patches together, so that one ``undo`` reverts them."""
    changed = [script for script in scripts if script.after != script.text]
    if not changed:
        return None
    causes = Counter(finding.cause for script in changed for finding in script.done)
    fix = Fix(
        id="review",
        cause=causes.most_common(1)[0][0],
        title=", ".join(dict.fromkeys(finding.fix.id for s in changed for finding in s.done if finding.fix)),
        safety="unsafe",
        patches=[FilePatch(path=str(s.path), before=s.text, after=s.after) for s in changed],
    )
    return apply_fix(fix, Path.cwd())


def _tell_applied(scripts: list[_Script], applied: AppliedFix | None) -> None:
    if not applied:
        print_progress("nothing applied: no patch with the allowed safety")
        return
    for script in scripts:
        for finding in script.done:
            assert finding.fix
            print_progress(f"applied {finding.fix.id} ({finding.rule}) to {relative_to_cwd(str(script.path))}")
    print_progress(f"revert with: ddpwizard undo {applied.id}")


def _show(scripts: list[_Script], knowledge: Knowledge, ascii_only: bool) -> None:
    findings = [finding for script in scripts for finding in script.findings]
    for script in scripts:
        lines = NEWLINE.split(script.text)
        for finding in script.findings:
            for line in output_formats.finding_lines(finding, lines, knowledge, ascii_only):
                print_line(line)
            print_line()
    files = f"{len(scripts)} file{'s' if len(scripts) != 1 else ''}"
    if not findings:
        print_line(f"Nothing found in {files}. Rules: {', '.join(RULES)}.")
        return
    safeties = Counter(finding.fix.safety for finding in findings if finding.fix)
    patches = safeties["safe"] + safeties["unsafe"]
    print_line(f"{len(findings)} found in {files}; {patches} with a patch ({safeties['unsafe']} of them unsafe)")
    if patches:
        unsafe = " --unsafe-fixes" if safeties["unsafe"] else ""
        print_line(f"--diff shows the patch, --fix{unsafe} applies it, ddpwizard undo reverts it")


def _show_patch(scripts: list[_Script]) -> None:
    """Print the patch on stdout in the encoding of each file; print fixed and remaining findings on stderr."""
    for script in scripts:
        for finding in script.findings:
            safety = finding.fix.safety if finding.fix else "display"
            why = f": {finding.fix.why_unsafe}" if finding.fix and finding.fix.why_unsafe else ""
            print_progress(f"{relative_to_cwd(finding.path)}:{finding.line} {finding.rule} {safety}{why}")
        patch = unified_diff(script.text, script.after, relative_to_cwd(str(script.path)))
        if sys.stdout.isatty():
            print_patch(patch)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(patch.encode(script.encoding, "surrogateescape"))
    sys.stdout.flush()


def _plain(document_: dict[str, Any]) -> dict[str, Any]:
    cleaned = redact.redact_data(document_)
    assert isinstance(cleaned, dict)
    return cleaned
