"""Scripts whose distributed training is switched off in the text: the review is about the runs with it."""

import pytest
from helpers.review_snippets import found

SCRIPT = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

if __name__ == "__main__":
    SWITCH
    model = torch.nn.Linear(2, 1)
    sampler = None
    if distributed:
        dist.init_process_group("nccl")
        model = DDP(model)
        sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, shuffle=sampler is None, sampler=sampler)
    for epoch in range(10):
        EPOCH
        for batch in loader:
            model(batch).sum().backward()
"""
OFF = "distributed = False"


def script(switch: str, epoch: str = "pass") -> str:
    return SCRIPT.replace("SWITCH", switch).replace("EPOCH", epoch)


@pytest.mark.parametrize("switch", [OFF, "distributed = True", 'distributed = "RANK" in os.environ'])
def test_epochs_are_missed_with_distributed_training_switched_on(switch: str) -> None:
    (finding,) = found(script(switch), "DW203")
    assert "epoch" in finding.message


def test_epochs_that_are_set_in_a_run_of_several_ranks_are_right() -> None:
    assert found(script(OFF, "if distributed:\n            sampler.set_epoch(epoch)"), "DW203") == []


def test_setting_of_something_else_is_as_it_says() -> None:
    code = """
dist.init_process_group("nccl")
overwrite = False
if overwrite:
    os.remove("last.pt")
"""
    assert found(code, "DW412") == []
