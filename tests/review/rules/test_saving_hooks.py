"""Hooks that Accelerate calls on every rank where it saves the state (DW501)."""

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


@pytest.mark.parametrize("hook", OF_ALL.values(), ids=OF_ALL.keys())
def test_a_hook_in_which_every_rank_writes_is_found(hook: str) -> None:
    assert len(lines(CODE.format(hook), "DW501")) == 1


@pytest.mark.parametrize("hook", OF_ONE.values(), ids=OF_ONE.keys())
def test_a_hook_in_which_one_rank_writes_is_not(hook: str) -> None:
    assert lines(CODE.format(hook), "DW501") == []
