"""``--to ddp``: one process or DataParallel to DistributedDataParallel.

The global batch and the learning rate stay, every rank evaluates all samples, and rank 0 writes.
"""

from .accumulation import accumulate_unreduced
from .ddp_checks import check_before, report_changes
from .facts import TrainingFacts
from .helper_code import MIGRATION, HelperCode, taken_names
from .loaders import share_batches
from .metrics import reduce_logged_values
from .module_attributes import unwrap_attributes
from .one_rank import load_to_host, write_on_one_rank
from .rewriting import Rewriting
from .set_epoch import call_set_epoch, with_set_epoch
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
    made = Rewriting(facts, HelperCode({"ddp_setup.py.in": tags, MIGRATION: set()}, {}, taken_names(facts.names)))
    share_batches(made)
    reduce_logged_values(made)
    write_on_one_rank(made)
    wrap_model(made)
    unwrap_attributes(made)
    accumulate_unreduced(made)
    call_set_epoch(made)
    load_to_host(made)
    set_up_and_finish(made)
    report_changes(made)
    text = with_set_epoch(made)
    return text, made.reports
