"""DW218: attributes of a model that methods read from the wrapper which the constructor has put around it."""

import pytest
from helpers.review_snippets import apply_fixes, lines

TRAINER = """
import torch
import torch.distributed as dist
from accelerate import Accelerator
from peft import get_peft_model_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, model, args, accelerator):
        self.args, self.accelerator = args, accelerator
        self.count = torch.cuda.device_count()
        dist.init_process_group("nccl")
        torch.cuda.set_device(args.local_rank)
        self.model, self.ema = model.cuda(), model
        if self.count > 1:
            self.model = DDP(self.model, device_ids=[args.local_rank])
        prepared = list(self.accelerator.prepare(args.other))
        self.other = prepared.pop(0)
        self.adapted = self.accelerator.prepare(args.adapted)

    def unwrap(self, model):
        return model.module if hasattr(model, "module") else model

    def use(self, x):
{}
"""
READ = {
    "a method of the model": "return self.model.generate(x)",
    "an attribute of its configuration": "print(self.model.config.width)",
    "behind a question that the wrapper answers": 'if hasattr(self.model, "draw"):\n    print(self.model.draw(x))',
    "where the model inside may have it": 'if hasattr(self.model, "a") or hasattr(self.model.module, "a"):\n'
    "    self.model.a(x)",
    "the same with the number of GPUs": 'if hasattr(self.model, "a") or (self.count > 1 and hasattr('
    'self.model.module, "a")):\n    self.model.a(x)',
    "of what is unwrapped above": "inner = self.accelerator.unwrap_model(self.other)\ninner.parts = self.other.parts",
    "of what is unwrapped below": "parts = self.other.parts\nself.accelerator.unwrap_model(self.other).parts = parts",
    "by a library": "torch.save(get_peft_model_state_dict(self.adapted), 'adapter.pt')",
}
NOT_READ = {
    "from the model inside": "return self.model.module.generate(x)",
    "by the number of GPUs": "if self.count > 1:\n    return self.model.module.draw(x)\nreturn self.model.draw(x)",
    "by the group": "model = self.model.module if dist.is_initialized() else self.model\nreturn model.generate(x)",
    "through a function": "return self.unwrap(self.model).generate(x)",
    "what DDP has": "self.model.eval()\nif hasattr(self.model, 'join'):\n    self.model.join()",
    "from the model itself": "return self.ema.generate(x)",
    "both are asked": 'if hasattr(self.model, "a"):\n    self.model.a(x)\nelse:\n    self.model.module.a(x)',
    "both are asked in one condition": 'if hasattr(self.model, "a") or hasattr(self.model.module, "a"):\n'
    "    if self.count > 1:\n        self.model.module.a(x)\n    else:\n        self.model.a(x)",
    "only without DDP": 'if not self.args.distributed:\n    if hasattr(self.model, "a"):\n        self.model.a(x)',
    "two models are asked": 'if hasattr(self.ema, "a") or hasattr(self.args, "a"):\n    self.ema.a(x)',
    "in the other arm": "if self.accelerator.num_processes > 1:\n"
    "    return self.accelerator.unwrap_model(self.other).parts\nreturn self.args.parts",
    "of an engine, which saves itself": "state = self.accelerator.unwrap_model(self.other).state_dict()\n"
    "if self.zero:\n    self.other.save_checkpoint('last')\nreturn state, self.other.parts",
    "of one process": "return self.accelerator.unwrap_model(self.other).a if self.count > 1 else self.other.a",
    "by a library from what was unwrapped": "model = self.accelerator.unwrap_model(self.adapted, False)\n"
    "get_peft_model_state_dict(model)",
    "by a library from what is unwrapped under the same name": "adapted = self.adapted\n"
    "adapted = self.accelerator.unwrap_model(adapted)\nget_peft_model_state_dict(adapted)",
    "by a library from the model inside": "get_peft_model_state_dict(self.accelerator.unwrap_model(self.adapted))",
}


def _script(code: str) -> str:
    return TRAINER.format("\n".join(f"        {line}" for line in code.splitlines()))


@pytest.mark.parametrize("code", READ.values(), ids=READ.keys())
def test_a_read_in_a_method_is_found(code: str) -> None:
    assert len(lines(_script(code), "DW218")) == 1


@pytest.mark.parametrize("code", NOT_READ.values(), ids=NOT_READ.keys())
def test_a_read_that_goes_past_the_wrapper_is_not(code: str) -> None:
    assert lines(_script(code), "DW218") == []


def test_a_wrapper_that_another_method_takes_off_is_not_known() -> None:
    code = _script("return self.model.generate(x)") + "\n    def end(self):\n        self.model = self.model.module\n"
    assert lines(code, "DW218") == []


@pytest.mark.parametrize(
    ("code", "patched"),
    [
        (READ["of what is unwrapped above"], "inner.parts = self.accelerator.unwrap_model(self.other).parts"),
        (READ["where the model inside may have it"], 'getattr(self.model, "module", self.model).a(x)'),
    ],
)
def test_the_patch_reads_from_the_model_inside(code: str, patched: str) -> None:
    text, _ = apply_fixes(_script(code))
    assert patched in text
    assert lines(text, "DW218") == []
