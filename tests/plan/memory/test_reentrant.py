"""Recomputation with re-entering under FSDP1: what torch keeps until the end of the backward pass, and the formula."""

import functools
import weakref
from typing import Any

import pytest
import torch.utils.checkpoint
from ddpwizard.app.plan.memory.activations import kept_input_terms
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.types import Lora, Model, Strategy, TrainingOptions, TrainingSetup
from torch import Tensor, distributed, nn

LAYERS, TOKENS, HIDDEN = 4, 8, 16


class Block(nn.Module):
    """A frozen layer, and an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(HIDDEN, HIDDEN).requires_grad_(False)
        self.adapter = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.base(inputs) + self.adapter(inputs)


class Blocks(nn.Module):
    """Recomputed blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, inputs: Tensor) -> Tensor:
        for block in self.blocks:
            inputs = torch.utils.checkpoint.checkpoint(block.__call__, inputs, use_reentrant=True)
        return inputs.sum()


def is_unit(module: nn.Module, adapters_apart: bool) -> bool:
    apart = adapters_apart and isinstance(module, nn.Linear) and module.weight.requires_grad
    return isinstance(module, Block) or apart


@pytest.mark.parametrize(("adapters_apart", "kept"), [(False, 0), (True, 2)])
def test_frozen_units_keep_inputs_and_their_gradients(
    adapters_apart: bool, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel  # takes a second, which not every worker needs
    from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
    from torch.testing._internal.distributed.fake_pg import FakeStore

    copies: list[weakref.ref[Tensor]] = []
    detach = torch.utils.checkpoint.detach_variable

    def detach_and_note(inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        found = detach(inputs)
        copies.extend(weakref.ref(each) for each in found if isinstance(each, Tensor))
        return found

    monkeypatch.setattr(torch.utils.checkpoint, "detach_variable", detach_and_note)
    seen: list[float] = []

    def count_bytes(_: Tensor) -> None:
        alive = [copy for each in copies if (copy := each()) is not None]
        held = [*alive, *(copy.grad for copy in alive if copy.grad is not None)]
        seen.append(float(sum(each.nbytes for each in held)))

    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        policy = functools.partial(
            lambda_auto_wrap_policy, lambda_fn=functools.partial(is_unit, adapters_apart=adapters_apart)
        )
        model = FullyShardedDataParallel(
            Blocks(), auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=not adapters_apart
        )
        inputs = torch.randn(1, TOKENS, HIDDEN, requires_grad=True)
        inputs.register_hook(count_bytes)
        model(inputs).backward()
    finally:
        distributed.destroy_process_group()
    setting = TrainingSetup(
        model=Model(params=1e4, layers=LAYERS, hidden=HIDDEN),
        train=TrainingOptions(
            dtype="fp32", micro_batch=1, seq_len=TOKENS, act_ckpt="full", reentrant=True, lora=Lora(r=HIDDEN)
        ),
        gpus=2,
        strategy=Strategy(kind="fsdp1"),
    )
    assert seen == [kept / 2 * total_bytes(kept_input_terms(setting))]
    assert total_bytes(kept_input_terms(setting)) == 2 * LAYERS * TOKENS * HIDDEN * 4
