"""``--to ddp``: one process or DataParallel to DistributedDataParallel.

The global batch and the learning rate stay, every rank evaluates all samples, and rank 0 writes.
"""

from ..patches.apply_edits import apply_edits
from ..rule_context import Script
from ..rules import missing_set_epoch
from .accumulation import accumulate_unreduced
from .ddp_checks import check_before, report_changes
from .facts import TrainingFacts
from .helper_code import MIGRATION, HelperCode
from .loaders import share_batches
from .metrics import reduce_logged_values
from .module_attributes import unwrap_attributes
from .one_rank import write_on_one_rank
from .rewriting import Rewriting
from .start import on_cpu, set_up_and_finish
from .types import Note
from .wrap_model import wrap_model


def rewrite(text: str, path: str) -> tuple[str, list[Note]]:
    """Return the script for DDP and the reports on it.

    Raises:
        Refusal: Something in it cannot be kept.
    """
    facts = TrainingFacts(text, path)
    check_before(facts)
    tags = {"alone", "on-cpu"} if on_cpu(facts) else {"alone"}
    made = Rewriting(facts, HelperCode({"ddp_setup.py.in": tags, MIGRATION: set()}, {}, _taken_names(facts)))
    share_batches(made)
    reduce_logged_values(made)
    write_on_one_rank(made)
    wrap_model(made)
    unwrap_attributes(made)
    accumulate_unreduced(made)
    set_up_and_finish(made)
    report_changes(made)
    return _with_set_epoch(made), made.reports


def _taken_names(facts: TrainingFacts) -> set[str]:
    """Return the names that the script binds to something of its own."""
    return {
        name
        for scope in {*facts.names.scope_of.values()}
        for name, bindings in scope.bindings.items()
        if any(binding.kind != "import" for binding in bindings)
    }


def _with_set_epoch(made: Rewriting) -> str:
    """Return the new text with ``set_epoch`` in the epoch loop, by the patch of the rule for it."""
    text, path = made.text(), made.source.path
    if "DistributedSampler" not in made.helpers.used:
        return text
    for _ in made.facts.training_loaders:
        found = missing_set_epoch.check(Script(text, path))
        patch = next((patch for each in found if each.patch and (patch := each.patch()).edits), None)
        if patch is None:
            break
        text = apply_edits(text, patch.edits)
    if "set_epoch" not in text:
        made.report(
            made.facts.batch_loop, "call set_epoch(epoch) of the sampler before each epoch: no epoch loop was found"
        )
    return text
