"""Patches in functions that get the model with a wrapper around it in one call, and without in another."""

import textwrap

from helpers.review_snippets import found

START = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("nccl")
"""
CLIP = """
def step(model):
    model(data).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
def main():
    model = torch.nn.Linear(2, 2)
    step(FSDP(model))
"""
ALONE = """
if args.distributed:
    main()
else:
    step(torch.nn.Linear(2, 2))
"""
SAVE = """
def save(model):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "last.pt")
def main():
    model = torch.nn.Linear(2, 2)
    other = torch.nn.Linear(2, 2)
    wrapped = DDP(model)
    save(wrapped)
    {}
    again = torch.nn.Linear(2, 2)
    again.load_state_dict(torch.load("last.pt", map_location="cpu"))
    DDP(again)
main()
"""


def fix_of(code: str, rule: str) -> tuple[str, str]:
    """Return the safety of the only fix, and its diff."""
    (finding,) = found(START + textwrap.dedent(code), rule)
    assert finding.fix
    return finding.fix.safety, finding.fix.diff


def test_clip_of_a_model_that_fsdp_always_wraps() -> None:
    safety, diff = fix_of(CLIP + "main()\n", "DW303")
    assert safety == "safe"
    assert "+    model.clip_grad_norm_(1.0)" in diff


def test_clip_of_a_model_that_fsdp_wraps_in_one_call() -> None:
    assert fix_of(CLIP + ALONE, "DW303") == ("display", "")


def test_state_of_a_model_that_is_always_wrapped() -> None:
    _, diff = fix_of(SAVE.format("print(other)"), "DW219")
    assert '+        torch.save(model.module.state_dict(), "last.pt")' in diff
