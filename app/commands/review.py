"""``ddpwizard review PATH…``: find distributed-training bugs in scripts, show or apply patches."""

import gc
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
from ..fixes.patch_walk import Written, fix_of_review, written_lines
from ..options import Options, knowledge_for
from ..review import output_formats, public_findings
from ..review.file_review import review_source
from ..review.files import FoundFile, files_to_review
from ..review.many_files import review_files
from ..review.migrations.targets import TARGETS
from ..review.rule_descriptions import rules_with_texts
from ..review.settings import ReviewSettings, settings_for
from ..review.types import ReviewedFile, ReviewFinding, SkippedFile
from ..system.paths import relative_to_cwd
from ..text import redact
from ..text.diff import unified_diff
from ..text.json_output import print_json, public_document
from ..text.terminal import Verbatim, align_columns, print_line, print_patch, print_progress
from .common import common_options

MOST_RULES_SHOWN = 12
NOT_FOLLOWED = (
    "too large or too deeply nested, with what it imports, to be followed to its end: divergences between ranks may be "
    "missing; split it"
)


class _Request(msgspec.Struct, kw_only=True):
    """The options of one review."""

    paths: Sequence[Path]
    diff: bool
    fix: bool
    unsafe_fixes: bool
    rules: Sequence[str]
    format_: str | None
    exclude: Sequence[str]
    force_exclude: bool
    statistics: bool
    options: Options

    @property
    def safeties(self) -> list[Safety]:
        """The levels of safety of the patches to make."""
        if not (self.fix or self.diff):
            return []
        return ["safe", "unsafe"] if self.unsafe_fixes or self.diff else ["safe"]


@click.command(name="review")
@click.argument("paths", nargs=-1, metavar="PATH…", type=click.Path(path_type=Path))
@click.option("--diff", is_flag=True, help="Print one patch with every fix, safe and unsafe; write nothing.")
@click.option("--fix", is_flag=True, help="Show the safe fixes and apply them; ddpwizard undo reverts them.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix: also apply fixes that may change behaviour.")
@click.option("--rule", "rules", metavar="ID", multiple=True, help="Only this rule. Repeatable.")
@click.option("--rules", "list_rules", is_flag=True, help="List the rules with their severity, and review nothing.")
@click.option("--exclude", metavar="GLOB", multiple=True, help="Leave out these files, as in .gitignore. Repeatable.")
@click.option("--force-exclude", is_flag=True, help="Apply the exclude patterns of pyproject.toml to given files too.")
@click.option("--statistics", is_flag=True, help="Print the number of findings of each rule instead of the findings.")
@click.option(
    "--format", "format_", type=click.Choice(["sarif", "github"]), help="Output for code scanning or GitHub Actions."
)
@click.option(
    "--to",
    "target",
    type=click.Choice([*TARGETS]),
    help="Migrate a script instead: show the change; --fix writes it.",
)
@click.option(
    "--launch-files",
    is_flag=True,
    help="Review the files that start a job instead: configurations, scripts and manifests that contradict each other.",
)
@common_options
def command(list_rules: bool, target: str | None, launch_files: bool, options: Options, **given: Any) -> int:
    """Find distributed-training bugs in scripts and notebooks. A directory means every .py and .ipynb file below it.

    Files that .gitignore or exclude in [tool.ddpwizard.review] of pyproject.toml leave out are not reviewed. A comment
    `# ddpwizard: ignore[DW401] reason` suppresses a finding. Exit code 1: findings remain. A file that cannot be
    reviewed is one line; exit code 2: no file could be.

    \b
    Examples:
      ddpwizard review train.py
      ddpwizard review train.py --diff | git apply
      ddpwizard review src/ --fix --unsafe-fixes
      ddpwizard review . --exclude 'tests/' --statistics
      ddpwizard review --to ddp train.py --fix
      ddpwizard review --launch-files job/
    """
    request = _Request(options=options, **given)
    knowledge = knowledge_for(options)
    if list_rules:
        return _list_rules(knowledge, options)
    if target:
        from .review_migration import run_migration

        other = {"--format": request.format_, "--rule": request.rules, "--exclude": request.exclude}
        if unused := [name for name, value in (other | {"--statistics": request.statistics}).items() if value]:
            raise UserError(f"{unused[0]} does not go with --to", f"leave {unused[0]} out")
        return run_migration(request.paths, target, knowledge, options, diff=request.diff, fix=request.fix)
    if launch_files:
        from .review_launch_files import review_launch_files

        if any(value for name, value in given.items() if name != "paths"):
            raise UserError("--launch-files goes with PATH and --json only", "leave the other options out")
        if not request.paths:
            raise UserError("Missing argument 'PATH…'", "give the files of one job, or their directory")
        return review_launch_files(request.paths, options)
    _check(request, knowledge)
    files, skipped = _find(request, knowledge)
    reviewed: list[ReviewedFile] = []
    unfinished: list[str] = []
    for result in review_files(files, knowledge, request.safeties):
        if isinstance(result, ReviewedFile):
            reviewed.append(result)
            if not result.complete:
                unfinished.append(f"{relative_to_cwd(result.path)}: {NOT_FOLLOWED}")
        else:
            skipped.append(result)
    if skipped and not reviewed:
        more = f" (and {len(skipped) - 1} more that cannot be reviewed)" if len(skipped) > 1 else ""
        raise UserError(skipped[0].message + more, skipped[0].next_step)
    for each in skipped:
        print_progress(f"left out: {each.message}")
    for each in unfinished:
        print_progress(each)
    fixed = None
    if request.fix:
        settings = {str(file.path.absolute()): file.settings for file in files}
        fixed = sum(len(file.patched.done) for file in reviewed if file.patched)
        reviewed = _apply(reviewed, settings, knowledge)
    findings = [finding for file in reviewed for finding in file.findings]
    gc.freeze()  # what the review keeps for further files lives as long as this process: no search for garbage in it
    _print(request, reviewed, skipped, _rules_that_ran(files, knowledge), knowledge, fixed)
    return ExitCode.FOUND if findings else ExitCode.OK


def _check(request: _Request, knowledge: Knowledge) -> None:
    known = rules_with_texts(knowledge)
    if not request.paths:
        raise UserError("Missing argument 'PATH…'", "give a script, a notebook or a directory")
    for rule in request.rules:
        if rule not in known:
            raise UserError(f"--rule {rule}: no such rule", "rules: " + ", ".join(known))
    if request.diff and request.fix:
        raise UserError("--diff writes nothing and --fix writes", "give one of them")
    if request.unsafe_fixes and not request.fix:
        raise UserError("--unsafe-fixes has no effect without --fix", "add --fix; --diff shows unsafe fixes anyway")
    if request.format_ and (request.options.json or request.diff):
        raise UserError("--format, --json and --diff each fill standard output", "give one of them")
    if request.options.json and request.diff:
        raise UserError("--json and --diff each fill standard output", "--json holds the diff of every fix already")
    if request.statistics and (request.format_ or request.diff):
        raise UserError("--statistics, --format and --diff each fill standard output", "give one of them")


def _find(request: _Request, knowledge: Knowledge) -> tuple[list[FoundFile], list[SkippedFile]]:
    """Return the files to review with the settings of their projects, and the paths without any."""
    known = rules_with_texts(knowledge)
    warned: set[str] = set()

    def settings_of(directory: Path) -> ReviewSettings:
        settings = settings_for(directory, known)
        for problem in settings.problems:
            if problem not in warned:
                print_progress(f"ddpwizard: {problem}")
        warned.update(settings.problems)
        return msgspec.structs.replace(settings, select=tuple(request.rules), ignore=()) if request.rules else settings

    files: list[FoundFile] = []
    skipped: list[SkippedFile] = []
    for item in files_to_review(request.paths, settings_of, request.exclude, force_exclude=request.force_exclude):
        if isinstance(item, FoundFile):
            files.append(item)
        else:
            skipped.append(item)
    return files, skipped


def _apply(
    reviewed: Sequence[ReviewedFile], settings: dict[str, ReviewSettings], knowledge: Knowledge
) -> list[ReviewedFile]:
    """Write all patches together, so that one ``undo`` reverts them, and return the review of what is left."""
    changed = {file.path: file.patched for file in reviewed if file.patched}
    for path, patched in changed.items():
        for line in unified_diff(patched.before, patched.after, relative_to_cwd(path)).splitlines():
            print_progress(Verbatim(line))
    if not changed:
        print_progress("nothing applied: no patch with the allowed safety")
        return [*reviewed]
    done = [finding for patched in changed.values() for finding in patched.done]
    applied = apply_fix(fix_of_review(changed), Path.cwd())
    for line in written_lines(Written(applied=applied, done=done)):
        print_progress(line)
    left: list[ReviewedFile] = []
    for file in reviewed:
        if file.patched:
            after = review_source(file.patched.after, file.path, settings[file.path], knowledge)
            left.append(ReviewedFile(path=file.path, findings=after.findings, excerpts=after.excerpts))
        else:
            left.append(file)
    return left


def _rules_that_ran(files: Sequence[FoundFile], knowledge: Knowledge) -> list[str]:
    """Return the rules that ran on at least one file, without the one about comments."""
    different = {id(file.settings): file.settings for file in files}.values()
    ran = {rule for settings in different for rule in settings.rules(knowledge.rules)}
    return [rule for rule in knowledge.rules if rule in ran]


def _print(
    request: _Request,
    reviewed: Sequence[ReviewedFile],
    skipped: Sequence[SkippedFile],
    rules: Sequence[str],
    knowledge: Knowledge,
    fixed: int | None,
) -> None:
    findings = [finding for file in reviewed for finding in file.findings]
    if request.options.json:
        body: dict[str, Any] = {
            "findings": [public_findings.finding_as_json(finding) for finding in findings],
            "skipped": [public_findings.skipped_as_json(each) for each in skipped],
            "files": len(reviewed),
        }
        if request.statistics:
            counts = Counter(finding.rule for finding in findings)
            body["statistics"] = [{"rule": rule, "findings": count} for rule, count in counts.most_common()]
        print_json(public_document("review", knowledge, body))
    elif request.format_ == "sarif":
        print_json(_redacted(output_formats.sarif_log(findings, skipped, knowledge, __version__)))
    elif request.format_ == "github":
        for finding in findings:
            print_line(Verbatim(output_formats.github_command(finding)))
        for each in skipped:
            print_line(Verbatim(output_formats.github_command_of_skipped(each)))
    elif request.diff:
        _show_patch(reviewed)
    else:
        if request.statistics:
            _show_statistics(findings, knowledge)
        else:
            _show_findings(reviewed, knowledge, request.options.ascii)
        _show_summary(findings, len(reviewed), len(skipped), rules, fixed)


def _show_findings(reviewed: Sequence[ReviewedFile], knowledge: Knowledge, ascii_only: bool) -> None:
    for file in reviewed:
        for finding, excerpt in zip(file.findings, file.excerpts, strict=True):
            for line in output_formats.finding_lines(finding, excerpt, knowledge, ascii_only):
                print_line(line)
            print_line()


def _show_statistics(findings: Sequence[ReviewFinding], knowledge: Knowledge) -> None:
    every = rules_with_texts(knowledge)
    counts = Counter(finding.rule for finding in findings)
    rows = [(f"{count:>6,}", rule, every[rule].title) for rule, count in counts.most_common()]
    for line in align_columns(rows) if rows else ():
        print_line(line)


def _show_summary(
    findings: Sequence[ReviewFinding], files: int, skipped: int, rules: Sequence[str], fixed: int | None
) -> None:
    """Print the last line: how many findings there are, or with ``fixed`` how many were fixed and are left."""
    before = f"{fixed:,} fixed, " if fixed else ""
    where = f"{files:,} file{'s' if files != 1 else ''}"
    left_out = f"; {skipped:,} left out" if skipped else ""
    if not findings:
        ran = ", ".join(rules) if len(rules) <= MOST_RULES_SHOWN else f"{len(rules)}, listed by --rules"
        none = f"{before}none left" if fixed else "Nothing found"
        print_line(f"{none} in {where}{left_out}. Rules: {ran or 'none'}.")
        return
    safeties = Counter(finding.fix.safety for finding in findings if finding.fix)
    patches = safeties["safe"] + safeties["unsafe"]
    unsafe = f"{patches} with a patch ({safeties['unsafe']} of them unsafe)"
    print_line(f"{before}{len(findings)} {'found' if fixed is None else 'left'} in {where}; {unsafe}{left_out}")
    if patches:
        unsafe = " --unsafe-fixes" if safeties["unsafe"] else ""
        print_line(f"--diff shows the patch, --fix{unsafe} applies it, ddpwizard undo reverts it")


def _show_patch(reviewed: Sequence[ReviewedFile]) -> None:
    """Print the patch on stdout in the encoding of each file; print fixed and remaining findings on stderr."""
    for file in reviewed:
        for finding in file.findings:
            safety = finding.fix.safety if finding.fix else "display"
            why = f": {finding.fix.why_unsafe}" if finding.fix and finding.fix.why_unsafe else ""
            print_progress(f"{output_formats.place_text(finding, column=False)} {finding.rule} {safety}{why}")
        if not file.patched:
            continue
        patch = unified_diff(file.patched.before, file.patched.after, relative_to_cwd(file.path))
        if sys.stdout.isatty():
            print_patch(patch)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(patch.encode(file.patched.encoding, "surrogateescape"))
    sys.stdout.flush()


def _list_rules(knowledge: Knowledge, options: Options) -> int:
    every = rules_with_texts(knowledge)
    if options.json:
        body = {"rules": [public_findings.rule_as_json(id_, rule) for id_, rule in every.items()]}
        print_json(public_document("rules", knowledge, body))
        return ExitCode.OK
    rows = [(id_, rule.severity, rule.safety, rule.title) for id_, rule in every.items()]
    for line in align_columns([("rule", "severity", "patch", "finds"), *rows]):
        print_line(line)
    return ExitCode.OK


def _redacted(document_: dict[str, Any]) -> dict[str, Any]:
    cleaned = redact.redact_data(document_)
    assert isinstance(cleaned, dict)
    return cleaned
