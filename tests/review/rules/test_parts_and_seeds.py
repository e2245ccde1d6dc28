"""Buffers for parts of a tensor, types that attributes have by the rank, and seeds that each rank draws."""

import pytest
from helpers.review_snippets import found, lines

MESSAGE = """
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    parts = torch.rand(10, 3)CUT
    dist.send(parts[PLACE], 1)
else:
    mine = torch.empty(SHAPE)
    dist.recv(mine, 0)
"""
RIGHT = [
    (".split(4)", "1", "4, 3"),
    (".split(4)", "2", "2, 3"),
    (".split(4)", "-1", "2, 3"),
    (".split(4, 1)", "0", "10, 3"),
    (".split(2, dim=-1)", "0", "10, 2"),
    (".split([3, 7])", "0", "3, 3"),
    (".chunk(4)", "3", "1, 3"),
    (".chunk(4)", "-1", "1, 3"),
    (".chunk(3, dim=1)", "0", "10, 1"),
    (".tensor_split(4)", "-1", "2, 3"),
    ("", "1:4", "3, 3"),
    ("", "-2:", "2, 3"),
    ("", "1:4, 0", "3"),
    ("", ":, 1:2", "10, 1"),
]
WRONG = [
    (".split(4)", "2", "4, 3"),
    (".split(4)", "-1", "4, 3"),
    (".split(6)", "1", "6, 3"),
    (".chunk(4)", "3", "3, 3"),
    (".chunk(4)", "-1", "3, 3"),
    (".tensor_split(4)", "-1", "3, 3"),
    ("", "1:4", "4, 3"),
    ("", "-2:", "3, 3"),
]


def message(cut: str, place: str, shape: str) -> str:
    return MESSAGE.replace("CUT", cut).replace("PLACE", place).replace("SHAPE", shape)


@pytest.mark.parametrize("parts", RIGHT)
def test_a_buffer_as_large_as_the_part_is_right(parts: tuple[str, str, str]) -> None:
    assert lines(message(*parts), "DW441") == []


@pytest.mark.parametrize("parts", WRONG)
def test_a_buffer_for_another_part_is_found(parts: tuple[str, str, str]) -> None:
    assert lines(message(*parts), "DW441") == ["dist.recv(mine, 0)"]


DEALT = """
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if rank == 0:
    parts = torch.arange(10.0).split(4)
    for to in range(1, world):
        dist.send(parts[to + FIRST], to)
else:
    mine = torch.empty(4)
    dist.recv(mine, 0)
"""


def test_the_part_of_a_round_of_a_loop_is_compared() -> None:
    assert lines(DEALT.replace("FIRST", "0"), "DW441") == []
    assert lines(DEALT.replace("FIRST", "1"), "DW441") == ["dist.recv(mine, 0)"]


HELD = """
class Counter:
    def __init__(self):
        dist.init_process_group("gloo")
        self.rank = dist.get_rank()
        self.count = COUNT

    def total(self):
        value = torch.tensor(HELD)
        dist.all_reduce(value)
        return value

Counter().total()
"""


@pytest.mark.parametrize("held", ["self.count", "[self.count]", "[self.count, 1]"])
def test_numbers_of_another_type_that_an_attribute_holds_are_found(held: str) -> None:
    code = HELD.replace("HELD", held)
    assert lines(code.replace("COUNT", "0 if self.rank == 0 else 0.5"), "DW441") == ["dist.all_reduce(value)"]
    assert lines(code.replace("COUNT", "1 if self.rank == 0 else 2"), "DW441") == []
    assert lines(code.replace("COUNT", "1.0 if self.rank == 0 else 0.5"), "DW441") == []
    assert lines(code.replace("COUNT", "0 if self.debug else 0.5"), "DW441") == []


SAMPLED = """
import time
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
sampler = DistributedSampler(torch.load("train.pt"), seed=SEED)
"""


def test_a_seed_of_the_time_or_the_process_is_one_of_each_rank() -> None:
    severities = {"int(time.time())": "warning", "time.time_ns() % 1000": "warning", "os.getpid()": "error"}
    for seed, severity in severities.items():
        assert [each.severity for each in found(SAMPLED.replace("SEED", seed), "DW205")] == [severity]
    for seed in ("0", "int(os.environ['SEED'])", "len(os.environ)"):
        assert found(SAMPLED.replace("SEED", seed), "DW205") == []


def test_a_split_by_a_seed_of_the_time_is_found() -> None:
    code = """
    import time
    dist.init_process_group("gloo")
    torch.manual_seed(SEED)
    first, second = torch.utils.data.random_split(torch.load("train.pt"), [8, 2])
    """
    assert [each.severity for each in found(code.replace("SEED", "int(time.time())"), "DW227")] == ["warning"]
    assert found(code.replace("SEED", "17"), "DW227") == []
