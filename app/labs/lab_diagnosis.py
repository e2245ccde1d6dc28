"""The wizard's own diagnosis of a failing lab, and the repair by the fix of its cause."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ...knowledge.labs import Lab, LabEdit
from ...knowledge.schema import Knowledge
from ..diagnosis.case import Case
from ..diagnosis.intake import add_to_case
from ..diagnosis.job_evidence import add_review, add_triage, review_job_script, review_script, timeline_of_output
from ..errors import UserError
from ..evidence import Diagnosis
from ..fixes.apply import apply_fix
from ..fixes.build import build_fixes
from ..fixes.facts import FixContext
from ..fixes.records import AppliedFix
from ..fixes.types import FilePatch, Fix, changed_places
from ..logs.read import find_sources, source_of_text
from ..probes.context import ProbeContext
from ..probes.run_probes import run_probes
from ..review.patches.apply_edits import apply_edits
from ..snapshot import Snapshot
from .lab_run import LabRun
from .workspace import script_of

OUTPUT = "output"  # the origin of what the job printed
OWN_REPAIR = "The repair of this lab"


class LabDiagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The ranked causes of a failing lab, and what the fixes of its own cause are built from."""

    diagnosis: Diagnosis
    context: FixContext


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """The change that repairs a lab, and how the repaired job is started.

    ``advice``: the fix of the wizard that the change follows, where it is the lab's own because that fix is a text.
    """

    fix: Fix
    launch: str
    environ: dict[str, str] = {}
    advice: Fix | None = None

    @property
    def command(self) -> str:
        """The command line that starts the repaired job, with its variables before it."""
        return command_text(self.launch, self.environ)


def command_text(launch: str, environ: Mapping[str, str]) -> str:
    """Return a command line with variables before it, as it is typed in a shell."""
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environ.items()), launch])


async def read_machine(python: str, knowledge: Knowledge) -> Snapshot:
    """Return the CPUs and the network interfaces of this machine, by which fixes choose numbers and names."""
    return await run_probes(["limits", "network"], ProbeContext(python=python), knowledge, granted="reads")


def diagnose_run(
    lab: Lab, run: LabRun, directory: Path, knowledge: Knowledge, machine: Snapshot | None = None
) -> LabDiagnosis:
    """Diagnose what a run of a lab showed: the sampled ranks, the output of a job that ended, and the script."""
    case = Case(knowledge)
    script = script_of(lab, directory)
    timeline = None
    if run.report:
        add_triage(case, [run.report])
        findings = review_job_script(run.report, knowledge)
    else:
        if run.output.strip():
            timeline = add_to_case(case, [source_of_text(run.output, OUTPUT)], of_job=True).timeline
        findings = review_script(script if script.is_file() else None, knowledge)
    add_review(case, findings)
    for question, answer in lab.answers.items():
        case.answer(question, answer)
    context = FixContext(
        snapshot=machine,
        script=str(script),
        report=run.report,
        findings=findings,
        evidence=case.evidence,
        timeline=timeline,
        launch=shlex.split(run.launch or lab.launch),
        directory=str(directory),
        output=timeline_of_output(run.report, knowledge) if run.report else None,
    )
    return LabDiagnosis(diagnosis=case.diagnosis(), context=context)


def diagnose_log(directory: Path, knowledge: Knowledge) -> LabDiagnosis:
    """Diagnose the files of a lab that is the log of a job."""
    case = Case(knowledge)
    found = add_to_case(case, find_sources([str(directory)]), of_job=True)
    context = FixContext(evidence=case.evidence, timeline=found.timeline)
    return LabDiagnosis(diagnosis=case.diagnosis(), context=context)


def repair_of(lab: Lab, found: LabDiagnosis, directory: Path, knowledge: Knowledge) -> Repair:
    """Return the fix of the lab, made for the learner's copy.

    Raises:
        UserError: The fix cannot be made for these files, or makes nothing that could be applied.
    """
    fix = _rule_fix(lab, found, knowledge) if lab.fix in knowledge.rules else _cause_fix(lab, found, knowledge)
    advice = fix if lab.edits else None
    if advice:
        fix = _own_repair(lab, advice, directory)
    if fix is None or not (fix.patches or fix.files or fix.start or fix.environ):
        raise UserError(f"the fix {lab.fix} cannot be made for these files", "reset the lab, then run it again")
    return Repair(fix=fix, launch=fix.start or lab.launch, environ=fix.environ, advice=advice)


def _own_repair(lab: Lab, advice: Fix, directory: Path) -> Fix:
    """Return the edits of a lab as a fix, with the lines that they change."""
    patches = _patches(lab.edits, script_of(lab, directory).parent)
    return Fix(
        id=advice.id, cause=lab.cause, title=OWN_REPAIR, safety="display", patches=patches,
        places=[place for patch in patches for place in changed_places(patch)],
    )  # fmt: skip


def _cause_fix(lab: Lab, found: LabDiagnosis, knowledge: Knowledge) -> Fix | None:
    fixes = build_fixes(knowledge.causes[lab.cause], found.context, knowledge)
    return next((each for each in fixes if each.id == lab.fix), None)


def _rule_fix(lab: Lab, found: LabDiagnosis, knowledge: Knowledge) -> Fix | None:
    """Return the patch of a rule of the review; without one, its text, which the edits of the lab follow."""
    finding = next((each for each in found.context.findings if each.rule == lab.fix), None)
    if finding is None:
        return None
    if finding.fix is None or not finding.fix.edits:
        rule = knowledge.rules[lab.fix]
        named = Fix(id=lab.fix, cause=lab.cause, title=rule.fix, safety=rule.safety, why_unsafe=rule.why_unsafe)
        return named if lab.edits else None
    before = Path(finding.path).read_text(encoding="utf-8")
    patch = FilePatch(path=finding.path, before=before, after=apply_edits(before, finding.fix.edits))
    return Fix(
        id=finding.fix.id, cause=lab.cause, title=finding.message, safety=finding.fix.safety, patches=[patch],
        why_unsafe=finding.fix.why_unsafe or "",
    )  # fmt: skip


def _patches(edits: Sequence[LabEdit], directory: Path) -> list[FilePatch]:
    """Return the edits that the text of a fix asks for as patches of the learner's copy, if each text is there once."""
    before: dict[Path, str] = {}
    after: dict[Path, str] = {}
    for edit in edits:
        path = directory / edit.file
        before.setdefault(path, path.read_text(encoding="utf-8"))
        text = after.get(path, before[path])
        if text.count(edit.old) != 1:
            return []
        after[path] = text.replace(edit.old, edit.new)
    return [FilePatch(path=str(path), before=before[path], after=text) for path, text in after.items()]


def apply_repair(repair: Repair, directory: Path) -> AppliedFix | None:
    """Apply the fix to the learner's copy, if it changes files; only then ``ddpwizard undo`` takes it back.

    Raises:
        UserError: A file changed since the fix was made, or cannot be written.
    """
    if repair.fix.patches or repair.fix.files:
        return apply_fix(repair.fix, directory)
    return None
