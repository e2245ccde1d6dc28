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
    "bandit_rollouts",
    "batch_predictions",
    "callback_trainer",
    "checkpointed_blocks",
    "class_counts",
    "cluster_config",
    "cosine_decay",
    "csv_rows",
    "distillation",
    "error_rate",
    "feature_statistics",
    "file_queue",
    "final_report",
    "finetune_resume",
    "flat_buckets",
    "flat_gradients",
    "gradient_hooks",
    "gradual_unfreeze",
    "load_pretrained",
    "merged_predictions",
    "micro_batches",
    "moving_average",
    "node_sampler",
    "param_server",
    "per_class_recall",
    "plateau_rates",
    "rank_correlation",
    "rank_logger",
    "rank_zero_only",
    "recall_at_one",
    "report_accuracy",
    "review_classifier",
    "rollout_collector",
    "row_parallel",
    "run_config",
    "shard_files",
    "sharded_save",
    "shared_queue",
    "signal_error",
    "speech_batches",
    "two_stages",
    "uneven_join",
    "vocab_first",
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
