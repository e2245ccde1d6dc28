"""DW476: counts of one rank in objects that add up what all ranks have reduced."""

import pytest
from helpers.review_snippets import lines

METRIC = """
class Metric:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def _sum(self, values):
        total = values.sum()
        if dist.is_initialized():
            dist.all_reduce(total)
        return total

    def __call__(self, values, targets):
        {added}
        {counted}

    def mean(self):
        return self.total / self.count

    {method}
"""
ADDED = {
    "of a method": "self.total += self._sum(values)",
    "by a name": "total = self._sum(values)\n        self.total += total",
    "of several": "total, rest = self._sum(values)\n        self.total += total.item()",
    "reduced here": "total = values.sum()\n        dist.all_reduce(total)\n        self.total += total.item()",
}
COUNTED = ["self.count += len(values)", "self.count += values.numel()", "self.count += targets.size(0)"]
SHARED = {
    "reduced here": "count = torch.tensor(len(values))\n        dist.all_reduce(count)\n"
    "        self.count += count.item()",
    "of the same method": "self.count += self._sum(torch.ones(len(values)))",
}
REDUCED_LATER = "def reduce(self):\n        both = torch.tensor([self.count])\n        dist.all_reduce(both)"


@pytest.mark.parametrize("added", ADDED.values(), ids=ADDED.keys())
@pytest.mark.parametrize("counted", COUNTED)
def test_a_count_of_one_rank_is_found(added: str, counted: str) -> None:
    assert lines(METRIC.format(added=added, counted=counted, method=""), "DW476") == [counted]


@pytest.mark.parametrize("counted", SHARED.values(), ids=SHARED.keys())
def test_a_count_of_all_ranks_is_not(counted: str) -> None:
    assert lines(METRIC.format(added=ADDED["of a method"], counted=counted, method=""), "DW476") == []


def test_a_count_that_another_method_reduces_is_not() -> None:
    assert lines(METRIC.format(added=ADDED["of a method"], counted=COUNTED[0], method=REDUCED_LATER), "DW476") == []


def test_sums_of_one_rank_divided_by_its_count_are_not() -> None:
    assert lines(METRIC.format(added="self.total += values.sum()", counted=COUNTED[0], method=""), "DW476") == []
