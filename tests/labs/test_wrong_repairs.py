"""Changes after which the job of a lab ends without its failure and is not repaired: the proof refuses them."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest
from ddpwizard.app.labs.lab_checks import read_checked_files
from ddpwizard.app.labs.lab_run import BY_RANK, WITHOUT_GPU, LabRun, is_repaired, run_lab, shows_failure
from ddpwizard.app.labs.workspace import make_workspace
from ddpwizard.knowledge.labs import Lab, read_labs
from helpers.torchrun_server import run_python, run_torchrun

pytestmark = pytest.mark.labs
LABS = read_labs()
EXCHANGE = """\
    dist.recv(incoming, src=(rank - 1) % world_size)
    dist.send(block, dst=(rank + 1) % world_size)
"""
REPLACE = '    os.replace(CHECKPOINT + ".tmp", CHECKPOINT)\n'
CAUGHT = f"    try:\n    {REPLACE}    except FileNotFoundError:\n        pass\n"
ONE_PROCESS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
ALONE = "store=dist.HashStore(), rank=0, world_size=1"
LOAD = "        model.module.load_state_dict(torch.load(PRETRAINED))\n"
UNIQUE = "return [*{int(epoch): (int(epoch), float(loss)) for epoch, loss in csv.reader(file)}.values()]"
SENT = "        for each in model.parameters():\n            dist.broadcast(each.data, 0)\n"
NO_BIAS = "    for layer in whole:\n        nn.init.zeros_(layer.bias)\n"
REMOVE = "    dist.barrier()\n    if dist.get_rank() == 0:\n        os.remove(CHECKPOINT)\n    dist.barrier()\n"
WRONG_REPAIRS = [  # the lab, a text of its script, and the text in its place
    ("collective-desync", "    share_weights(model, rank)\n", ""),
    ("p2p-deadlock", EXCHANGE, ""),
    ("rank-died-survivors-wait", "        return\n", "        rows = torch.zeros(64, 8)\n"),
    ("missing-sampler", "in loader:", "in list(loader)[: len(loader) // world_size]:"),
    ("missing-set-epoch", "batch_size=8, sampler=sampler", "batch_size=8, shuffle=True"),
    ("iterable-not-sharded", "in self.read():", "in list(self.read())[: LINES // 2]:"),
    ("env-contract-broken", "required=True", "default=0"),
    ("python-lock", "limit=8", "limit=1000"),
    ("rank-conditional-collective", "    dist.all_reduce(counts)\n", ""),
    ("rank-dependent-init", LOAD, ""),
    ("fsdp-wrap-policy", "    fully_shard(model.layers)\n", ""),
    ("dataloader-stall", "NOT_COPIED = {131}", "NOT_COPIED = set()"),
    ("missing-set-epoch", "in loader:", "in (batches := [*loader])[epoch:] + batches[:epoch]:"),
    ("worker-rng-duplicate", "torch.randn(16, 4)", "torch.randn(16, 4) + 1e-5 * rank"),
    ("decoder-crash", 'self.raw[33] = b"-"', 'self.raw[33] = b"0 0"'),
    ("bare-python-launch", "    local_rank = int(", f"    os.environ |= {ONE_PROCESS}\n    local_rank = int("),
    ("backend-mismatch", 'init_process_group(backend="nccl")', f"init_process_group('gloo', {ALONE})"),
    ("checkpoint-race", REPLACE, CAUGHT),
    ("zero-stage-choice", '"optimizer": optimizer.state_dict()', '"optimizer": optimizer.optim.state_dict()'),
    (
        "dataset-per-rank",
        "    tokens = np.load(node.DATA)",
        "    tokens = np.fromfile(node.DATA, np.int64, 6_000_000, offset=128)",
    ),
    ("dataset-per-rank", "= node.limit_memory(), ", "= node.NODE_BYTES // 2, "),
    ("exit-hang", 'name="writer")', 'name="writer", daemon=True)'),
    ("compile-per-rank", "def main():\n", "torch._dynamo.config.recompile_limit = 64\n\n\ndef main():\n"),
    ("external-service-block", "epoch % 5 == 0", "epoch % 5 == 4"),
    ("batchnorm-unsynced", "nn.BatchNorm1d(32)", "nn.Identity()"),
    ("all-ranks-side-effects", "return [(int(epoch), float(loss)) for epoch, loss in csv.reader(file)]", UNIQUE),
    ("effective-batch-lr", "(data)\n    per_rank", "(data, 1, 0)\n    LEARNING_RATE = 0.25\n    per_rank"),
    ("wrapper-forward-bypassed", "        difference = largest", f"{SENT}        difference = largest"),
    ("unequal-means", "EASY = 32", "EASY = 80"),
    ("uneven-inputs", "RECORDS = [72, 104]", "RECORDS = [72, 72]"),
    ("mixed-parallel-groups", "    split = [", f"{NO_BIAS}    split = ["),
    ("incomplete-resume", "    train_until(last_epoch=3)\n", f"{REMOVE}    train_until(last_epoch=3)\n"),
]


# A fork joins no threads at its end, and its ranks are so close together that a race has another winner.
IN_OWN_INTERPRETERS = {"exit-hang", "checkpoint-race"}


@pytest.mark.parametrize(("id_", "old", "new"), WRONG_REPAIRS, ids=[each[0] for each in WRONG_REPAIRS])
def test_proof_refuses_a_wrong_repair(id_: str, old: str, new: str, tmp_path: Path) -> None:
    lab = LABS[id_]
    make_workspace(lab, tmp_path)
    script = tmp_path / "train.py"
    text = script.read_text()
    assert text.count(old) == 1
    script.write_text(text.replace(old, new))
    run = (
        asyncio.run(run_lab(lab, tmp_path, sys.executable, should_end=True))
        if id_ in IN_OWN_INTERPRETERS
        else run_of_forks(lab, tmp_path)
    )
    assert (run.ending, run.code) == ("ended", 0), run.output[-3000:]
    assert not shows_failure(lab, run) and not is_repaired(lab, run), run.output[-3000:]


def run_of_forks(lab: Lab, directory: Path) -> LabRun:
    """Run a lab as ``run_lab`` does, its processes as forks of one that has imported torch."""
    program, *words = shlex.split(lab.launch)
    options, arguments = words[: words.index("train.py")], words[words.index("train.py") + 1 :]
    environ = {**os.environ, **BY_RANK, **WITHOUT_GPU, **lab.environ}
    if program == "torchrun":
        ended = run_torchrun(options, Path("train.py"), arguments, directory=directory, limit_s=300, environ=environ)
    else:
        ended = run_python(Path("train.py"), arguments, directory=directory, limit_s=300, environ=environ)
    files = read_checked_files(lab, directory)
    return LabRun(ending="ended", code=ended.code, elapsed_s=0.0, output=ended.log, launch=lab.launch, files=files)
