"""Numbers of ranks that a program writes out as settings, and those of the launcher."""

import pytest
from helpers.review_snippets import found

START = """
import argparse
from dataclasses import dataclass
parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--gpus", type=int, default=4)
parser.add_argument("--world-size", type=int, default=1)
args = parser.parse_args()
SETTINGS
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", rank=rank, world_size=SIZE)
dist.barrier()
"""


def program(size: str, settings: str = "pass") -> str:
    return START.replace("SIZE", size).replace("SETTINGS", settings)


FOUND = {
    "an option": program("args.world_size"),
    "a product of options": program("args.nodes * args.gpus"),
    "a computed option": program("args.count", "args.count = args.nodes * args.gpus"),
    "a mapping": program('config["nodes"] * config["gpus"]', 'config = {"nodes": 1, "gpus": 4}'),
    "a class": program("Config().size", "@dataclass\nclass Config:\n    size: int = 8"),
}
HEALTHY = {
    "a variable": program('int(os.environ["WORLD_SIZE"])'),
    "an option that the variable sets": program("args.world_size", 'args.world_size = int(os.environ["WORLD_SIZE"])'),
    "the GPUs of the machine": program("args.nodes * torch.cuda.device_count()"),
    "a number that is left open": program("-1"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert len(found(code, "DW117")) == 1


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert found(code, "DW117") == []


def test_place_where_the_number_is_written() -> None:
    (finding,) = found(FOUND["a mapping"], "DW117")
    assert 12 in {each.line for each in finding.related}
