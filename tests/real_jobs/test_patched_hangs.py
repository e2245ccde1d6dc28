"""The jobs that hang, with the patch that the review makes from their source: each ends then, on two ranks or four.

``test_hangs`` shows that they hang without it, and what triage says of each.
"""

import shutil
from pathlib import Path

import pytest
from helpers.hang_cases import HANGS
from helpers.jobs import SCRIPTS
from helpers.patched_files import patch_program
from helpers.torchrun_server import run_programs

pytestmark = [pytest.mark.jobs, pytest.mark.long]

# The patch for each script that has one.
PATCHES = {
    "accel.py": "hoist-collective",
    "actors.py": "send-first",
    "chief.py": "make-on-every-rank",
    "detect.py": "choice-of-rank-0",
    "ensemble.py": "common-order",
    "exporter.py": "call-on-every-rank",
    "fetch.py": "hoist-collective",
    "finetune.py": "hoist-collective",
    "gan.py": "agree-on-condition",
    "gather_stats.py": "call-on-every-rank",
    "moe.py": "common-order",
    "pretrain.py": "work-under-condition",
    "quantize.py": "call-before-choice",
    "records.py": "agree-on-error",
    "ring.py": "exchange-at-once",
    "scoring.py": "agree-on-condition",
    "segmentation.py": "hoist-collective",
    "sharded.py": "hoist-collective",
    "stages.py": "exchange-at-once",
    "stream.py": "agree-on-rounds",
    "tabular.py": "agree-on-condition",
    "tensor_parallel.py": "same-group",
    "translate.py": "agree-on-rounds",
    "vision/train.py": "hoist-collective",
}
STARTS_RANKS = {"fetch.py"}
OF_FOUR_RANKS = ("ensemble.py", "moe.py", "tensor_parallel.py")
LIMIT = ("--limit-s", "240")  # all of them end: it only bounds a failure, also on a machine with other work
OTHER_CAUSES = {"divide-the-sum"}  # patches that have nothing to do with the hang


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """Copies of the scripts, each file or folder with its patches, and the ids of these by script."""
    folder = tmp_path_factory.mktemp("patched")
    patches: dict[str, list[str]] = {}
    for script in sorted({hang.script for hang in HANGS}):
        source, name = SCRIPTS / script, script.partition("/")[0]
        if source.parent == SCRIPTS:
            copied = Path(shutil.copy(source, folder / name))
        else:
            copied = Path(shutil.copytree(source.parent, folder / name))
            (copied / source.name).rename(copied / "main.py")
        made = [each.fix.id for each in patch_program(copied) if each.fix]
        patches[script] = [each for each in made if each not in OTHER_CAUSES]
        if not patches[script]:
            (shutil.rmtree if copied.is_dir() else Path.unlink)(copied)
    return folder, patches


def test_scripts_that_have_a_patch(patched: tuple[Path, dict[str, list[str]]]) -> None:
    _, patches = patched
    assert {script: made[0] for script, made in patches.items() if made} == PATCHES


def test_patched_jobs_end(patched: tuple[Path, dict[str, list[str]]]) -> None:
    folder, _ = patched
    of_four = [*LIMIT, *(f"--of-four={name}" for name in OF_FOUR_RANKS)]
    codes = run_programs([*of_four, str(folder), *STARTS_RANKS], folder, limit_s=600)
    assert len(codes) == len(PATCHES)
    failed = [name for name, ranks in codes.items() if any(ranks)]
    logs = {name: [log.read_text()[-600:] for log in (folder / name).with_suffix("").glob("*.log")] for name in failed}
    assert not failed, logs
