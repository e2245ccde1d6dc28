"""The scripts for tests of migrations."""

from pathlib import Path

SCRIPTS = Path(__file__).with_name("migration_scripts")
RUNNER = SCRIPTS.with_name("run_on_two_ranks.py")
CANNOT_BE_KEPT = ("batch_norm", "iterable_dataset", "own_sampler", "two_optimizers")
CAN_BE_MIGRATED = sorted({path.stem for path in SCRIPTS.glob("*.py")} - {"digits", *CANNOT_BE_KEPT})
