"""Training programs in pairs, with the measured truth about each: one goes wrong on two ranks, its twin does not.

The pairs are in ``tests/real_jobs/programs``: ``broken`` and ``healthy`` hold programs of the same names, each a file
or a folder with ``main.py``. ``truth.tsv`` has a row for each pair.
"""

import csv
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).parent.parent / "real_jobs" / "programs"
CHECKS = PROGRAMS / "checks.py"
# Broken programs whose cause the review does not find, or leaves to a person.
WITHOUT_PATCH = {
    "accumulate_nosync",
    "accuracy_report",
    "activation_shapes",
    "any_of_flags",
    "any_rank_guard",
    "average_of_counts",
    "averaged_norms",
    "bandit_rollouts",
    "batch_predictions",
    "callback_trainer",
    "checkpointed_blocks",
    "chosen_teacher",
    "class_counts",
    "cluster_config",
    "confusion_table",
    "cosine_decay",
    "csv_rows",
    "described_items",
    "distillation",
    "epoch_steps",
    "error_rate",
    "expert_gradients",
    "feature_statistics",
    "file_queue",
    "final_report",
    "finetune_resume",
    "first_members",
    "flat_buckets",
    "flat_gradients",
    "gathered_embeddings",
    "gradient_hooks",
    "gradual_unfreeze",
    "hard_examples",
    "label_histogram",
    "largest_weight",
    "late_wait",
    "local_of_mean",
    "mean_perplexity",
    "merged_predictions",
    "meter_of_floats",
    "metric_order",
    "micro_batches",
    "moving_average",
    "node_sampler",
    "overflow_check",
    "own_checkpoint",
    "padded_tokens",
    "param_server",
    "part_loaders",
    "per_class_recall",
    "plateau_rates",
    "positional_sampler",
    "quasi_newton_fit",
    "rank_correlation",
    "rank_logger",
    "rank_zero_only",
    "recall_at_one",
    "report_accuracy",
    "resume_returns",
    "resumed_orders",
    "reused_stage",
    "review_classifier",
    "rollout_collector",
    "rotated_exchange",
    "row_parts",
    "run_config",
    "run_folder",
    "samplers_first",
    "scattered_rows",
    "sent_augmentation",
    "shard_files",
    "sharded_save",
    "shared_order",
    "shared_queue",
    "shared_run_name",
    "signal_error",
    "sparse_gradients",
    "spectrogram_codes",
    "speech_batches",
    "stop_request",
    "subgroup_broadcast",
    "summed_hook",
    "sync_on_first",
    "teacher_labels",
    "token_mean",
    "two_stages",
    "uneven_join",
    "unpicklable_config",
    "vocab_first",
    "weighted_draws",
    "worker_stream",
    "zero_resume",
    "zero_without_class",
}


class Truth(NamedTuple):
    """Row of the table: what the broken program of a pair does, and the line that causes it."""

    name: str
    outcome: str
    """``hang``, ``crash``, or ``wrong``: it ends and fails its check."""
    file: str
    """Path below ``broken`` of the file with the cause."""
    line: int
    why: str


def read_truth() -> list[Truth]:
    """Return the rows of the table."""
    with (PROGRAMS / "truth.tsv").open(newline="") as table:
        return [
            Truth(**{**row, "line": int(row["line"])})
            for row in csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]


def path_of(kind: str, name: str) -> Path:
    """Return the file, or the folder, of a program; ``kind`` is ``broken`` or ``healthy``."""
    folder = PROGRAMS / kind / name
    return folder if folder.is_dir() else folder.with_suffix(".py")
