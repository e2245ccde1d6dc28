"""The journeys."""

from pathlib import Path

from helpers.hang_cases import Hang
from helpers.hang_jobs import named
from journey import Edit, Journey

UNDER_RANK_TEST = ("rank-conditional-collective",)
SCRIPTS = Path(__file__).parent / "scripts"
BRANCH = ("# BRANCH", "# HANG")


def own(name: str, file: str = "train.py") -> str:
    """Return the script of a directory of this folder's scripts."""
    return str(SCRIPTS / name / file)


JOURNEYS: tuple[Journey, ...] = (
    Journey(
        name="vision",
        job=named("vision"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit(
                "train.py",
                "        if comms.is_main_process():  # BRANCH\n            accuracy = evaluate(model, held_out)\n",
                "        accuracy = evaluate(model, held_out)\n        if comms.is_main_process():\n",
            ),
        ),
    ),
    Journey(
        name="pretrain",
        job=named("pretrain"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit(
                "pretrain.py",
                "        if not self.is_main:  # BRANCH\n",
                "        if not self.is_main:\n            dist.barrier()\n",
            ),
        ),
    ),
    Journey(
        name="flowers",
        job=named("flowers"),
        causes=("dataloader-stall",),
        at=("for step, pixels in enumerate(loader)", "read_bytes()"),
        edits=(
            Edit(
                "flowers.py",
                "self.files = sorted(Path(root).iterdir())",
                "self.files = sorted(path for path in Path(root).iterdir() if path.is_file())",
            ),
        ),
    ),
    Journey(
        name="metrics_log",
        job=named("metrics_log"),
        causes=("python-lock",),
        at=("# HANG",),
        edits=(Edit("metrics_log.py", "threading.Lock()", "threading.RLock()"),),
    ),
    Journey(
        name="save-best",
        job=Hang(
            name="save-best",
            script=own("save_best"),
            ready=("validated", 3),
            causes=UNDER_RANK_TEST,
            culprits=((0,),),
        ),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
    ),
)
