"""DW121: the global rank that is passed to a parameter for the local rank."""

import pytest
from helpers.review_snippets import lines

CODE = """
rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")

def evaluate(model, batches, local_rank):
    for batch in batches:
        model(batch.to(local_rank))

def place(model, gpu_id):
    torch.cuda.set_device(gpu_id)
    return model.to(gpu_id)

def report(loss, local_rank):
    if local_rank == 0:
        print(loss)

class Trainer:
    def __init__(self, model, local_rank, rank):
        self.model = self.put(model, {0})

    def put(self, model, local_rank):
        return model.to(f"cuda:{{local_rank}}")

{1}
"""
WRONG = {
    "by place": ("local_rank", "evaluate(model, batches, rank)"),
    "by name": ("local_rank", "evaluate(model, batches, local_rank=rank)"),
    "to set_device": ("local_rank", "place(model, rank)"),
    "of options": ("local_rank", "evaluate(model, batches, args.rank)"),
    "in a method": ("rank", "evaluate(model, batches, local_rank)"),
}
RIGHT = {
    "the local rank": ("local_rank", "evaluate(model, batches, local_rank)"),
    "a function without a device": ("local_rank", "report(loss, rank)"),
    "the rank on its node": ("local_rank", "place(model, rank % torch.cuda.device_count())"),
}


@pytest.mark.parametrize(("inside", "call"), WRONG.values(), ids=WRONG.keys())
def test_a_global_rank_for_a_gpu_is_found(inside: str, call: str) -> None:
    assert len(lines(CODE.format(inside, call), "DW121")) == 1


@pytest.mark.parametrize(("inside", "call"), RIGHT.values(), ids=RIGHT.keys())
def test_a_local_rank_is_not(inside: str, call: str) -> None:
    assert lines(CODE.format(inside, call), "DW121") == []


def test_a_script_that_knows_one_rank_only_is_not() -> None:
    code = """
dist.init_process_group("nccl")
def evaluate(model, local_rank):
    return model.to(local_rank)
def main(rank):
    evaluate(model, rank)
"""
    assert lines(code, "DW121") == []
