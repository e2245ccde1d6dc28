"""Severity of divergences: the less of a program is known, the lower."""

import json
from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.built_in_knowledge import built_in_knowledge

START = "import os\nimport torch\nimport torch.distributed as dist\nrank = dist.get_rank()\n"
STATE_DICT = """\
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
def save(model):
    if rank == 0:
        get_model_state_dict(model)
"""
MADE_ON_DEMAND = """\
from torch.nn.parallel import DistributedDataParallel as DDP
class Runner:
    @property
    def model(self):
        if self.raw.device != self.device:
            self.wrapped = DDP(self.raw)
        return self.wrapped
    def save(self):
        if rank == 0:
            print(self.model)
"""
BY_GROUP = """\
def join(groups):
    mine = groups[rank]
    if len(mine) > 1:
        dist.barrier()
"""
FOREIGN = """\
def train(train_loader, losses):
    compute = losses.get("total")
    for batch in train_loader:
        loss, extra = compute(batch)
        if extra:
            dist.all_reduce(loss)
"""
ONE_OF_TWO_WRAPPERS = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
def main(model, sharded):
    model = FSDP(model) if sharded else DDP(model)
    whole = model.state_dict() if sharded else None
    if rank == 0:
        torch.save(whole if sharded else model.state_dict(), "last.pt")
"""
BY_LIBRARY = """\
from accelerate import Accelerator
accelerator = Accelerator()
def save(path):
    if accelerator.is_main_process:
        accelerator.save_state(path)
"""

REASON_ON_ONE_RANK = """\
import time
def stop(limit):
    reason = None
    if rank == 0:
        if time.time() > limit:
            reason = "too late"
    if reason is not None:
        dist.barrier()
"""

SIZE_SET_ELSEWHERE = """\
import time
def divided():
    os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) // 2)
def step(part, limit):
    if time.time() > limit:
        return
    dist.all_reduce(part)
"""


def severities(tmp_path: Path, code: str) -> list[str]:
    """Return the severity of each finding of the rules about ranks that part."""
    script = tmp_path / "train.py"
    script.write_text(START + code)
    found = review_file(script, built_in_knowledge())
    return [each.severity for each in found if each.rule.startswith("DW4")]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (STATE_DICT, ["info"]),
        (STATE_DICT.replace("    if rank", "    fully_shard(model)\n    if rank"), ["warning"]),
        (MADE_ON_DEMAND, ["info"]),
        (ONE_OF_TWO_WRAPPERS, []),
        (ONE_OF_TWO_WRAPPERS.replace("if sharded else model", "or model"), ["warning"]),
        (ONE_OF_TWO_WRAPPERS.replace(" if sharded else DDP(model)", ""), ["error"]),
        (REASON_ON_ONE_RANK, ["warning"]),
        (SIZE_SET_ELSEWHERE, ["warning"]),
        (BY_GROUP, ["warning"]),
        (BY_LIBRARY, ["warning"]),
        (BY_LIBRARY.replace("if acc", "if accelerator.distributed_type == 'DEEPSPEED' or acc"), ["info"]),
        (FOREIGN, []),
        (FOREIGN.replace("if extra:", "if loss.item() > 3:"), ["warning"]),
    ],
)
def test_severity(code: str, expected: list[str], tmp_path: Path) -> None:
    assert severities(tmp_path, code) == expected


def test_an_exit_and_a_collective_that_exclude_each_other(tmp_path: Path) -> None:
    code = """\
def collect(part, only_first):
    if only_first and rank != 0:
        return None
    if not only_first:
        dist.barrier()
    return part
"""
    assert severities(tmp_path, code) == []
    assert severities(tmp_path, code.replace("not only_first", "only_first"))


def test_two_collectives_that_meet_are_reported_once(tmp_path: Path) -> None:
    code = """\
from torch.nn.parallel import DistributedDataParallel as DDP
def evaluate():
    dist.barrier()
def train(model, batches):
    for batch in batches:
        model(batch).sum().backward()
def main(ranks):
    model = DDP(torch.nn.Linear(4, 4))
    batches = [torch.randn(8, 4) for _ in range(4)]
    if rank in ranks:
        evaluate()
    train(model, batches)
main([int(each) for each in os.environ["VALIDATE"].split(",")])
"""
    assert len(severities(tmp_path, code)) == 1


@pytest.mark.parametrize(
    "module", ["import waits\n\n\ndef end():\n    waits.wait()\n", "from waits import wait as end\n"]
)
def test_a_collective_is_followed_through_a_file_that_names_none(module: str, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import torch.distributed\n\n\ndef wait():\n    torch.distributed.barrier()\n")
    (tmp_path / "steps.py").write_text(module)
    assert severities(tmp_path, "from steps import end\nif rank == 0:\n    end()\n") == ["warning"]


RELATED = [
    (
        "if rank == 0:\n    dist.barrier()\n    dist.gather(x)\nelse:\n    dist.gather(x)\n    dist.barrier()\n",
        [(5, "rank 0 and rank 1 part here"), (6, "rank 0 waits in barrier"), (9, "rank 1 waits in gather")],
    ),
    (
        "for x in train_loader:\n    if x.sum().item() > 3:\n        break\n    dist.all_reduce(x)\n",
        [
            (6, "one rank and another rank part here"),
            (7, "another rank leaves here, before all_reduce"),
            (8, "one rank waits in all_reduce"),
        ],
    ),
    (
        "for x in train_loader:\n    dist.all_reduce(x)\n    if os.getpid() > 3:\n        break\n",
        [(7, "another rank leaves the loop here, one rank goes on"), (6, "one rank waits in all_reduce")],
    ),
    (
        "for n in range(rank):\n    dist.barrier()\n",
        [(5, "one rank runs this loop more often than another rank"), (6, "one rank waits in barrier")],
    ),
]


@pytest.mark.parametrize(("code", "expected"), RELATED)
def test_both_ways_are_named(code: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(START + code)
    (found,) = (each for each in review_file(script, built_in_knowledge()) if each.related)
    assert [(each.line, each.message) for each in found.related] == expected


def test_the_ways_in_a_notebook_are_cells(tmp_path: Path) -> None:
    code = [START, RELATED[-1][0]]
    cells = [{"cell_type": "code", "source": [text], "metadata": {}, "outputs": []} for text in code]
    script = tmp_path / "train.ipynb"
    script.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    (found,) = review_file(script, built_in_knowledge())
    assert [(each.cell.number, each.cell.line) for each in found.related if each.cell] == [(2, 1), (2, 2)]


def test_an_error_of_rank_0_before_the_model_is_wrapped(tmp_path: Path) -> None:
    code = """\
import os
from torch.nn.parallel import DistributedDataParallel as DDP
def main(args, model):
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        if os.path.exists(args.log) and not args.resume:
            return -1
    return DDP(model)
"""
    assert severities(tmp_path, code) == ["warning"]


HELPER = """\
def keep(text, path):
    with open(path, "w") as file:
        file.write(text)
def log(text):
    get_logger(text)
def get_logger(text):
    make_logger(text)
def make_logger(text):
    keep(text, "log-of-helpers.txt")
def keep_and_end(text):
    with open("options.txt", "w") as file:
        file.write(text)
    exit(0)
"""
WRITES = """\
from files import keep, keep_and_end, log
log("0")
if os.environ.get("ONLY_OPTIONS"):
    keep_and_end("1")
keep("1", "options.txt")
dist.init_process_group()
if rank == 0:
    keep("2", "log.txt")
"""


def test_a_file_that_a_helper_writes_on_every_rank_is_found_at_its_call(tmp_path: Path) -> None:
    (tmp_path / "files.py").write_text(HELPER)
    script = tmp_path / "train.py"
    script.write_text(START + WRITES)
    found = [each for each in review_file(script, built_in_knowledge()) if each.rule == "DW412"]
    assert [script.read_text().split("\n")[each.line - 1] for each in found] == ['keep("1", "options.txt")']
    assert "(files.py:2)" in found[0].message
