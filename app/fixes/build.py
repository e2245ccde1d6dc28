"""Build the fixes of a cause for a case: patches by the rules of the review, the rest by generators."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from ...knowledge.schema import Cause, FixSpec, Knowledge
from ...knowledge.templates import fill_template
from ..evidence import signature_id
from ..hardware.machine import Machine, machine_from_snapshot
from ..launchers import accelerate, deepspeed, env_file, schedulers, torchrun
from ..launchers.rewrite import find_free_port
from ..launchers.types import GeneratedFix
from . import code_templates
from .call_options import patch_calls
from .facts import CaseFacts, FixContext
from .planner_link import planner_command
from .recipes.table import OF_CODE, load_recipe
from .recipes.types import RecipeResult
from .rule_patches import changes_condition, condition_of_job, further_rules, patch_by_rule
from .types import Fix, Place
from .user_code import rename_variables

SHOWN_PLACES = 5
CHANGES = ("patch", "text", "env")  # kinds after which the job is started again; the others are files of their own

Generator = Callable[[Machine, list[str]], GeneratedFix]

# The generators that a knowledge entry may name. Each takes the machine and the script with its arguments.
GENERATORS: dict[str, Generator] = {
    "torchrun-single-node": torchrun.single_node,
    "torchrun-multi-node": torchrun.multi_node,
    "free-port-command": torchrun.free_port_command,
    "unset-launch-env": torchrun.unset_launch_env,
    "shm-size": torchrun.shm_size,
    "accelerate-ddp": accelerate.accelerate_ddp,
    "accelerate-fsdp2": accelerate.accelerate_fsdp2,
    "accelerate-deepspeed": accelerate.accelerate_deepspeed,
    "deepspeed-json": deepspeed.deepspeed_json,
    "deepspeed-hostfile": deepspeed.deepspeed_hostfile,
    "slurm-script": schedulers.slurm_script,
    "kubernetes-manifest": schedulers.kubernetes_manifest,
    "ddp-code": code_templates.ddp_code,
    "fsdp2-code": code_templates.fsdp2_code,
    "join-context": code_templates.join_context,
    "find-unused": code_templates.find_unused,
    "env-file": env_file.env_file,
    "pin-interface": env_file.pin_interface,
}


def build_fixes(cause: Cause, context: FixContext, knowledge: Knowledge) -> list[Fix]:
    """Build the fixes of a cause, those first that fit what was seen, else in the order of its entry.

    A fix that lacks facts has text only (``display``), which names the missing ones. Reads the scripts of the case;
    writes nothing.
    """
    facts = CaseFacts(context)
    machine = seen_machine(machine_from_snapshot(context.snapshot), facts)
    further = further_rules(cause, facts, knowledge)
    holds = facts.holds | _named_lines(cause, facts)
    built = [(spec, *_build(cause, spec, facts, holds, machine, knowledge)) for spec in [*cause.fixes, *further]]
    built = [each for each in built if each[0] not in further or _repairs(each[1], facts)]
    return [fix for _, fix, _ in sorted(built, key=lambda each: _preference(*each, facts, holds))]


def _named_lines(cause: Cause, facts: CaseFacts) -> set[str]:
    """Return the names by which fixes refer to the signatures of their cause, of those that were seen."""
    return {
        f"line.{signature.name}"
        for index, signature in enumerate(cause.signatures)
        if signature.name and signature_id(cause, index) in facts.holds
    }


def _repairs(fix: Fix, facts: CaseFacts) -> bool:
    """Return whether a fix changes the scripts, and in them the condition at which the ranks diverged, if known."""
    return bool(fix.patches) and changes_condition(fix.patches, facts)


def _preference(spec: FixSpec, fix: Fix, is_own: bool, facts: CaseFacts, holds: frozenset[str]) -> tuple[int, int]:
    """Return the place of a fix among those of its cause. ``is_own``: it was made from the user's own lines.

    Those that fit what was seen come first, and with them every patch and every fix made from the user's lines that
    does not contradict it; what contradicts it comes last. An example or what only shows the fault comes after the
    rest, a patch that cannot be made after that. Before all is a patch of the condition at which the ranks diverged.
    """
    order = _order(spec, holds)
    if spec.generator and not (spec.text or fix.commands or fix.files or fix.patches):
        order = max(order, 2)  # its generator lacks facts
    if spec.diagnostic:
        return order, 3
    if fix.patches and order == 1:
        return 0, 0 if condition_of_job(facts) and changes_condition(fix.patches, facts) else 1
    if fix.patches:
        return order, 0
    if is_own:
        return (order if order == 3 else 0), 1
    return (max(order, 2) if spec.kind == "patch" else order), (3 if spec.kind == "code" else 2)


def target_of(context: FixContext) -> list[str]:
    """Return the script and its arguments in a launcher's form: from the running job, else the script alone."""
    return CaseFacts(context).target


def seen_machine(machine: Machine, facts: CaseFacts) -> Machine:
    """Return the machine with what was seen of the job: its ranks, and the port that is taken."""
    ranks, port = facts.values.get("ranks_per_node", ""), facts.values.get("port", "")
    if ranks.isdigit() and int(ranks) > 0:
        machine = msgspec.structs.replace(machine, job_ranks=int(ranks))
    if (world := facts.values.get("world", "")).isdigit():
        machine = msgspec.structs.replace(machine, world_size=int(world))
    if not machine.head and (head := facts.values.get("master_addr")):
        machine = msgspec.structs.replace(machine, head=head)
    machine = msgspec.structs.replace(machine, start_elsewhere=facts.command_elsewhere)
    if port.isdigit():
        busy = int(port)
        free = machine.free_port if machine.free_port != busy else find_free_port()
        machine = msgspec.structs.replace(machine, busy_port=busy, free_port=free)
    return machine


def _order(spec: FixSpec, holds: frozenset[str]) -> int:
    """Return the place of a fix among those of its cause: 0 fits what was seen, 3 contradicts it."""
    if any(id_ in holds for id_ in spec.unless):
        return 3
    if not spec.when:
        return 1
    return 0 if any(id_ in holds for id_ in spec.when) else 2


def _made_by(recipe: str, facts: CaseFacts) -> RecipeResult:
    if recipe in OF_CODE and facts.context.report is None and not facts.files:
        return RecipeResult()
    make = load_recipe(recipe)
    return make(facts) if make else RecipeResult(text=f"This ddpwizard has no recipe {recipe!r}.")


def _build(
    cause: Cause, spec: FixSpec, facts: CaseFacts, holds: frozenset[str], machine: Machine, knowledge: Knowledge
) -> tuple[Fix, bool]:
    """Return a fix, and whether a recipe made it from the user's own lines."""
    if spec.rule:
        fix = patch_by_rule(cause, spec, facts, knowledge)
    elif spec.generator:
        fix = _generated(cause, spec, machine, facts.target)
    else:
        fix = Fix(id=spec.id, cause=cause.id, title=spec.title, safety="display")
    against = next((id_ for id_ in spec.unless if id_ in holds), "")
    made = _made_by(spec.recipe, facts) if spec.recipe else RecipeResult()
    if not fix.patches or (made.patches and not changes_condition(fix.patches, facts)):
        set_, set_places = patch_calls(spec.set, facts)
        patches = set_ or made.patches
        made = msgspec.structs.replace(made, places=[*made.places, *set_places])
        if patches and not against:
            fix = msgspec.structs.replace(fix, patches=patches, safety=spec.safety, why_unsafe=spec.why_unsafe, text="")
    values = {"plan": planner_command(facts), "command": facts.command, **facts.values} if facts.values else {}
    text, code, note = (fill_template(part, values).strip("\n") for part in (spec.text, spec.code, spec.note))
    is_new = bool(made.text or made.code)
    fix = msgspec.structs.replace(
        fix,
        title=fill_template(spec.title, facts.values),
        text="\n\n".join(part for part in (made.text, text.strip(), fix.text) if part),
        code=made.code if is_new and made.code else rename_variables(code, facts.names),
        note="\n".join(part for part in (note.strip(), _reason_against(against, knowledge)) if part),
        places=_places(cause, spec, facts, made, fix),
    )
    target = facts.values.get("target", "\0")
    starts = [line for line in fix.commands if target in line]
    if starts or any(target in line for line in fix.code.splitlines()):
        fix = msgspec.structs.replace(fix, start=starts[0]) if len(starts) == 1 else fix
    elif spec.kind in CHANGES:
        fix = msgspec.structs.replace(fix, again=facts.command)
    if (starts or fix.again) and facts.directory != Path.cwd():
        fix = msgspec.structs.replace(fix, directory=str(facts.directory))
    return fix, is_new and bool(made.places)


def _reason_against(id_: str, knowledge: Knowledge) -> str:
    """Return why a fix does not fit what was seen, by the text of the condition or finding."""
    text = (knowledge.facts | knowledge.findings()).get(id_, "") if id_ else ""
    return f"It does not fit what was seen: {text}." if text else ""


def _places(cause: Cause, spec: FixSpec, facts: CaseFacts, made: RecipeResult, fix: Fix) -> list[Place]:
    """Return the lines that a fix is about, at most ``SHOWN_PLACES`` and each once."""
    found = list(made.places)
    if not found and not fix.patches and (spec.kind in CHANGES or spec.at):
        found = facts.reviewed(cause.id) or [file.place(call) for file, call in facts.calls(spec.at)]
        found = [*facts.places(cause.id), *found] or facts.seen(cause)
    if not found and spec.kind == "command" and facts.error_place:
        found = [facts.error_place]
    once = {(place.path, place.line): place for place in reversed(found)}
    return [place for place in found if once.get((place.path, place.line)) is place][:SHOWN_PLACES]


def _generated(cause: Cause, spec: FixSpec, machine: Machine, target: list[str]) -> Fix:
    made = GeneratedFix(text="")
    if spec.generator in GENERATORS:
        made = GENERATORS[spec.generator](machine, target)
    elif spec.generator:
        made = GeneratedFix(text=f"This ddpwizard has no generator {spec.generator!r}.")
    return Fix(
        id=spec.id,
        cause=cause.id,
        title=spec.title,
        safety=spec.safety if made.files else "display",
        why_unsafe=spec.why_unsafe if made.files else "",
        text=made.text,
        commands=made.commands,
        files=made.files,
        environ=made.environ,
    )
