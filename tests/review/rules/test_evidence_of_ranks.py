"""Evidence that several ranks run a function: its inner functions, an option for FSDP, other calls of its helpers."""

import pytest
from helpers.review_snippets import lines

BODY = """
            rank = dist.get_rank()
            if rank == 0:
                total = estimate(state)
            dist.barrier()
"""
ESTIMATE = """
def estimate(state):
    total = torch.ones(1)
    dist.all_reduce(total)
    return total
"""
MADE_INSIDE = {
    "a class": f"def make():\n    class Callback:\n        def on_save(self, state):{BODY}    return Callback\n",
    "a class with a base of a library": "def make():\n    from transformers import TrainerCallback\n"
    f"    class Callback(TrainerCallback):\n"
    f"        def on_save(self, args, state, control):{BODY}    return Callback\n",
    "a function": f"def make():\n    if True:\n        def hook(state):{BODY}    return hook\n",
    "a function in a function": f"def make():\n    def inner():\n"
    f"        def hook(state):{BODY}        return hook\n    return inner\n",
}
LEFT_OUT = {
    "made by rank 0 only": "def make():\n    hook = None\n    if dist.get_rank() == 0:\n"
    "        def hook(state):\n            if state:\n                dist.barrier()\n    return hook\n",
    "the same on all ranks": "def make():\n    def hook(state):\n        return estimate(state)\n    return hook\n",
}
HELPER = """
import json
from functools import partial
def record(path, **values):
    with open(path, "w") as file:
        json.dump(values, file)

def train(model, loader, path, rank, fast):
    {first}
    for step, batch in enumerate(loader):
        model(batch)
        if rank == 0:
            record(path, step=step)
    if rank == 0:
        record(path, done=True)
    if torch.cuda.device_count() > 1 and fast.of_all:
        dist.all_reduce(torch.ones(1))
"""
READ_BACK = """
import json
import pickle
import fcntl
def update(path, rank, own):
    dist.barrier()
    {}
"""
BROKEN_FILES = {
    "read and written": "with open(path) as f:\n        kept = json.load(f)\n"
    "    with open(path, 'w') as f:\n        json.dump(kept, f)",
    "emptied in one opening": "with open(path, 'rb+') as f:\n        f.truncate(0)\n        print(own, file=f)",
    "in one opening": "with open(path, 'r+') as f:\n        kept = json.load(f)\n"
    "        f.seek(0)\n        json.dump(kept, f)",
}
WHOLE_FILES = {
    "on rank 0": "if rank == 0:\n        with open(path, 'r+') as f:\n"
    "            kept = json.load(f)\n            json.dump(kept, f)",
    "a file of each rank": "with open(f'{path}.{rank}', 'r+') as f:\n        kept = json.load(f)\n"
    "        json.dump(kept, f)",
    "read in an opening that would let it write": "with open(path, 'r+') as f:\n        kept = json.load(f)",
    "read without a name": "kept = pickle.load(open(path, 'rb+'))",
    "read line by line": "with open(path, 'r+') as f:\n        for line in f:\n            print(line)",
    "read only": "with open(path) as f:\n        kept = json.load(f)",
    "under a lock": "with open(path, 'r+') as f:\n        fcntl.flock(f, fcntl.LOCK_EX)\n"
    "        f.write('x')\n    print(rank)",
}
OPTIONAL = """
import json
def save(cfg, trainer):
    if {}:
        with open("config.json") as f:
            config = json.load(f)
        with open("config.json", "w") as f:
            json.dump(config, f)
    elif cfg.wait:
        trainer.accelerator.wait_for_everyone()
"""


@pytest.mark.parametrize("code", MADE_INSIDE.values(), ids=MADE_INSIDE.keys())
def test_what_a_function_makes_for_a_library_is_followed(code: str) -> None:
    assert lines(ESTIMATE + code, "DW401") == ["total = estimate(state)"]


@pytest.mark.parametrize("code", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_what_only_some_ranks_make_is_not(code: str) -> None:
    assert lines(ESTIMATE + code, "DW401") == []


@pytest.mark.parametrize("call", ["record(path, config=1)", "report = partial(record, path)\n    report(config=1)"])
def test_the_only_call_without_a_condition_on_the_rank_is_found(call: str) -> None:
    (line,) = lines(HELPER.format(first=call), "DW412")
    assert "config=1" in line


@pytest.mark.parametrize(
    "call",
    [
        "if rank == 0:\n        record(path, config=1)",
        "record(f'{path}{rank}')",
    ],
)
def test_calls_that_a_condition_or_the_path_keeps_apart_are_not(call: str) -> None:
    assert lines(HELPER.format(first=call), "DW412") == []


@pytest.mark.parametrize("code", BROKEN_FILES.values(), ids=BROKEN_FILES.keys())
def test_a_file_that_all_ranks_read_and_write_is_found(code: str) -> None:
    assert len(lines(READ_BACK.format(code), "DW412")) == 1


@pytest.mark.parametrize("code", WHOLE_FILES.values(), ids=WHOLE_FILES.keys())
def test_a_file_that_one_rank_changes_at_a_time_is_not(code: str) -> None:
    assert lines(READ_BACK.format(code), "DW412") == []


@pytest.mark.parametrize("option", ["cfg.fsdp_config", "cfg.use_fsdp", "trainer.is_fsdp_enabled or cfg.fsdp"])
def test_an_option_for_fsdp_shows_several_ranks(option: str) -> None:
    assert len(lines(OPTIONAL.format(option), "DW412")) == 1


@pytest.mark.parametrize(
    "option", ["cfg.save_config", "not cfg.fsdp", "trainer.is_fsdp_enabled and cfg.local_rank == 0"]
)
def test_other_options_do_not(option: str) -> None:
    assert lines(OPTIONAL.format(option), "DW412") == []


LEAVES = """
class Trainer:
    def __init__(self, cfg, plan):
        self.cfg, self.plan = cfg, plan

    def hook(self, name, x):
        if self.cfg.split_modules:
            if name not in self.plan[dist.get_rank()]:
                return
        {}

    def reduced(self, x):
        if {}:
            return x
        dist.all_reduce(x)
        return x
"""


@pytest.mark.parametrize("test", ["self.cfg.split_modules", "not dist.is_initialized() or self.cfg.split_modules"])
def test_ranks_that_leave_under_an_option_miss_nothing_that_the_option_switches_off(test: str) -> None:
    assert lines(LEAVES.format("self.reduced(x)", test), "DW404") == []


@pytest.mark.parametrize("code", ["dist.all_reduce(x)", "if self.cfg.other:\n            dist.all_reduce(x)"])
def test_ranks_that_leave_before_another_collective_are_found(code: str) -> None:
    assert len(lines(LEAVES.format(code, "True"), "DW404")) == 1
