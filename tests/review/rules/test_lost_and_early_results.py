"""Results that are read before they are there, that nothing reads, or that are divided by the number of one rank."""

import pytest
from helpers.review_snippets import found, lines

START = """
import threading
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
tensors = [torch.ones(4) * n for n in range(3)]
model = torch.nn.Linear(2, 2)
"""
LAST = (
    START
    + """
for t in tensors:
    work = CALL
    INSIDE
BEHIND
print(tensors)
"""
)
SCALED = (
    START
    + """
works = []
for t in tensors:
    work = dist.all_reduce(t, async_op=True)
    FIRST
    SECOND
for each in works:
    each.wait()
"""
)
BEGIN = "dist.all_reduce(t, async_op=True)"
THREAD = (
    START
    + """
def report(t):
    dist.all_reduce(t)

def run():
    thread = threading.Thread(target=report, args=(torch.ones(3),))
    thread.start()
    MEANWHILE
    thread.join()
    AFTERWARDS
run()
"""
)
COUNTED = (
    START
    + """
def accuracy(dataset):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    correct = torch.zeros(1)
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum()
    dist.all_reduce(correct)
    return correct.item() / COUNT
accuracy(torch.utils.data.TensorDataset(torch.ones(8, 2), torch.zeros(8)))
"""
)
LISTS = START + "t = torch.ones(2)\nparts = LIST\ndist.all_gather(parts, t)\n"
COPIES = (
    START
    + """
for p in model.parameters():
    t = p.data.clone()
    dist.broadcast(t, src=0)
    AFTER
"""
)
LAST_ALONE = {
    "sums": LAST.replace("CALL", BEGIN).replace("INSIDE", "pass").replace("BEHIND", "work.wait()"),
    "messages": LAST.replace("CALL", "dist.isend(t, 1 - rank)")
    .replace("INSIDE", "pass")
    .replace("BEHIND", "work.wait()"),
}
ALL_WAITED_FOR = {
    "each round": LAST.replace("CALL", BEGIN).replace("INSIDE", "work.wait()").replace("BEHIND", "pass"),
    "a list": START
    + f"works = []\nfor t in tensors:\n    work = {BEGIN}\n    works.append(work)\n"
    + "for work in works:\n    work.wait()\n",
    "the one before": START
    + "work = None\nfor t in tensors:\n    if work is not None:\n        work.wait()\n"
    + f"    work = {BEGIN}\nwork.wait()\n",
}


@pytest.mark.parametrize("code", LAST_ALONE.values(), ids=LAST_ALONE)
def test_handles_of_which_the_last_is_waited_for(code: str) -> None:
    assert len(lines(code, "DW415")) == 1


@pytest.mark.parametrize("code", ALL_WAITED_FOR.values(), ids=ALL_WAITED_FOR)
def test_handles_that_are_all_waited_for(code: str) -> None:
    assert lines(code, "DW415") == []


def test_changes_before_the_handle_in_a_list_is_waited_for() -> None:
    keep, change = "works.append(work)", "t /= world"
    assert lines(SCALED.replace("FIRST", keep).replace("SECOND", change), "DW415") == [change]
    assert lines(SCALED.replace("FIRST", keep).replace("SECOND", "print(t.shape)"), "DW415") == []
    assert lines(SCALED.replace("FIRST", "work.wait()").replace("SECOND", change), "DW415") == []


def test_threads_with_collectives() -> None:
    wrong = THREAD.replace("MEANWHILE", "dist.all_reduce(torch.ones(2))").replace("AFTERWARDS", "pass")
    assert len(lines(wrong, "DW448")) == 1
    right = THREAD.replace("MEANWHILE", "print(1)").replace("AFTERWARDS", "dist.all_reduce(torch.ones(2))")
    assert lines(right, "DW448") == []


@pytest.mark.parametrize("count", ["len(loader.sampler)", "len(sampler)", "len(loader)"])
def test_sums_divided_by_the_samples_of_one_rank(count: str) -> None:
    assert lines(COUNTED.replace("COUNT", count), "DW498") == [f"return correct.item() / {count}"]


@pytest.mark.parametrize("count", ["len(dataset)", "(len(loader) * world)", "len(loader.dataset)"])
def test_sums_divided_by_all_samples(count: str) -> None:
    assert lines(COUNTED.replace("COUNT", count), "DW498") == []


@pytest.mark.parametrize("made", ["[torch.zeros(2) for _ in range(4)]", "[torch.zeros(2)] * 8"])
def test_lists_for_a_larger_job(made: str) -> None:
    (finding,) = found(LISTS.replace("LIST", made), "DW417")
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "made", ["[torch.zeros(2) for _ in range(world)]", "[torch.zeros(2) for _ in range(2)]", "[torch.zeros(2)] * world"]
)
def test_lists_for_all_ranks(made: str) -> None:
    assert lines(LISTS.replace("LIST", made), "DW417") == []


def test_lists_of_a_job_whose_size_is_checked() -> None:
    checked = LISTS.replace("parts =", "assert world == 4\nparts =")
    assert lines(checked.replace("LIST", "[torch.zeros(2) for _ in range(4)]"), "DW417") == []


def test_broadcasts_into_a_copy() -> None:
    assert lines(COPIES.replace("AFTER", "pass"), "DW421") == ["dist.broadcast(t, src=0)"]
    assert lines(COPIES.replace("AFTER", "p.data.copy_(t)"), "DW421") == []
    assert lines(COPIES.replace("p.data.clone()", "p.data").replace("AFTER", "pass"), "DW421") == []


def test_sums_of_a_tensor_made_for_the_call() -> None:
    code = START + "loss = torch.tensor(0.5 + rank)\ndist.all_reduce(GIVEN)\nprint(loss.item() / world)\n"
    assert lines(code.replace("GIVEN", "torch.tensor(loss.item())"), "DW421") == [
        "dist.all_reduce(torch.tensor(loss.item()))"
    ]
    assert lines(code.replace("GIVEN", "loss"), "DW421") == []
    assert lines(code.replace("GIVEN", "torch.tensor(1)"), "DW421") == []
