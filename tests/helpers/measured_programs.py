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
    "any_rank_guard",
    "averaged_norms",
    "bandit_rollouts",
    "batch_predictions",
    "callback_trainer",
    "checkpointed_blocks",
    "class_counts",
    "cluster_config",
    "cosine_decay",
    "csv_rows",
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
    "gradient_hooks",
    "gradual_unfreeze",
    "hard_examples",
    "label_histogram",
    "late_wait",
    "load_pretrained",
    "mean_perplexity",
    "merged_predictions",
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
    "rank_correlation",
    "rank_logger",
    "rank_zero_only",
    "recall_at_one",
    "report_accuracy",
    "resumed_orders",
    "reused_stage",
    "review_classifier",
    "rollout_collector",
    "rotated_exchange",
    "row_parallel",
    "row_parts",
    "run_config",
    "run_folder",
    "scattered_rows",
    "shard_files",
    "sharded_save",
    "shared_order",
    "shared_queue",
    "shared_run_name",
    "signal_error",
    "sparse_gradients",
    "speech_batches",
    "summed_hook",
    "sync_on_first",
    "teacher_labels",
    "token_mean",
    "two_stages",
    "uneven_join",
    "vocab_first",
    "weighted_draws",
    "worker_stream",
    "zero_resume",
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
