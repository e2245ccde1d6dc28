"""Hooks that Accelerate calls where it saves the state, on the ranks that get there (DW501)."""

import pytest
from helpers.review_snippets import lines

CODE = """
from accelerate import Accelerator
accelerator = Accelerator()
{}
model, loader = accelerator.prepare(model, loader)
accelerator.save_state("state")
"""
OF_ALL = {
    "another model": """
def save(models, weights, output_dir):
    ema.save_pretrained(os.path.join(output_dir, "ema"))
accelerator.register_save_state_pre_hook(save)""",
    "each model": """
def save(models, weights, output_dir):
    for each in models:
        each.save_pretrained(os.path.join(output_dir, "unet"))
        weights.pop()
accelerator.register_save_state_pre_hook(save)""",
    "a file": """
def save(models, weights, output_dir):
    torch.save(ema.state_dict(), os.path.join(output_dir, "ema.pt"))
accelerator.register_save_state_pre_hook(save)""",
    "a function inside": """
def hook_of(ema):
    def save(models, weights, output_dir):
        torch.save(ema.state_dict(), os.path.join(output_dir, "ema.pt"))
    return save
accelerator.register_save_state_pre_hook(hook_of(ema))""",
    "a method": """
class Average:
    def save(self, models, weights, output_dir):
        torch.save(self.weights, os.path.join(output_dir, "ema.pt"))
accelerator.register_save_state_pre_hook(Average().save)""",
}
OF_ONE = {
    "the main process": """
def save(models, weights, output_dir):
    if accelerator.is_main_process:
        ema.save_pretrained(os.path.join(output_dir, "ema"))
accelerator.register_save_state_pre_hook(save)""",
    "an early return": """
def save(models, weights, output_dir):
    if not accelerator.is_main_process:
        return
    torch.save(ema.state_dict(), os.path.join(output_dir, "ema.pt"))
accelerator.register_save_state_pre_hook(save)""",
    "a file of each rank": """
def save(models, weights, output_dir):
    torch.save(ema.state_dict(), os.path.join(output_dir, f"ema{accelerator.process_index}.pt"))
accelerator.register_save_state_pre_hook(save)""",
}
FIRST = 'accelerator.save_state("state")'
WHERE = {
    "under a condition": ("if accelerator.is_main_process:\n    " + FIRST, 0),
    "in a function for the main process": (
        "@accelerator.on_main_process\ndef keep():\n    " + FIRST + "\nkeep()",
        0,
    ),
    "behind a return": ("def keep():\n    if accelerator.process_index:\n        return\n    " + FIRST + "\nkeep()", 0),
    "every hundred steps": ("for step in range(1000):\n    if step % 100 == 0:\n        " + FIRST, 1),
    "in a function for all": ("def keep(number):\n    " + FIRST + "\nkeep(0)", 1),
    "once by the main process, once by all": (
        "if accelerator.is_main_process:\n    accelerator.save_state('best')\n" + FIRST,
        1,
    ),
    "nowhere": ("", 0),
}


@pytest.mark.parametrize("hook", OF_ALL.values(), ids=OF_ALL.keys())
def test_a_hook_in_which_every_rank_writes_is_found(hook: str) -> None:
    assert len(lines(CODE.format(hook), "DW501")) == 1


@pytest.mark.parametrize("hook", OF_ONE.values(), ids=OF_ONE.keys())
def test_a_hook_in_which_one_rank_writes_is_not(hook: str) -> None:
    assert lines(CODE.format(hook), "DW501") == []


@pytest.mark.parametrize(("saves", "count"), WHERE.values(), ids=WHERE.keys())
def test_a_hook_is_reached_by_the_ranks_that_save_a_state(saves: str, count: int) -> None:
    assert FIRST in CODE
    code = CODE.replace(FIRST, saves).format(OF_ALL["a file"])
    assert len(lines(code, "DW501")) == count
