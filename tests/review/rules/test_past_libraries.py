"""Calls that go past Accelerate, Fabric and DeepSpeed: backward passes, steps, clipping, schedules, states, devices."""

import pytest
from helpers.review_snippets import lines

ACCELERATE = """
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM, get_scheduler
accelerator = Accelerator({options})
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2)
{before}
model, {prepared} = accelerator.prepare(model, {prepared})
{after}
for batch, in loader:
    loss = model(batch).sum()
    {step}
"""
GOOD_STEP = "accelerator.backward(loss); optimizer.step(); optimizer.zero_grad()"


def accelerate(
    step: str = GOOD_STEP,
    *,
    options: str = "",
    model: str = "torch.nn.Linear(2, 2)",
    before: str = "",
    prepared: str = "optimizer, loader",
    after: str = "",
) -> str:
    """Return a script for Accelerate."""
    parts = {"options": options, "model": model, "before": before, "prepared": prepared, "after": after, "step": step}
    return ACCELERATE.format(**parts)


def test_a_backward_pass_past_accelerate_is_found() -> None:
    step = "loss.backward(); optimizer.step()"
    assert lines(accelerate(step, options="mixed_precision='fp16'"), "DW499") == [step]
    assert lines(accelerate(step, options="gradient_accumulation_steps=2"), "DW499") == [step]
    assert lines(accelerate(step), "DW499") == []  # plain DDP reduces the gradients in any backward pass
    assert lines(accelerate(), "DW499") == []
    inner = "accelerator.unwrap_model(model)(batch).sum().backward()"
    assert lines(accelerate(inner, options="gradient_accumulation_steps=2"), "DW499") == []


def test_an_optimizer_that_prepare_has_not_got_is_found_where_it_accumulates() -> None:
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    bad = accelerate(options="gradient_accumulation_steps=4", prepared="loader", after=made)
    assert lines(bad, "DW499") == [GOOD_STEP]
    assert lines(bad.replace("=4", "=1"), "DW499") == []  # plain DDP needs no wrapper of the optimizer
    later = accelerate(
        options="gradient_accumulation_steps=4",
        prepared="loader",
        after=f"{made}\noptimizer = accelerator.prepare(optimizer)",
    )
    assert lines(later, "DW499") == []


def test_clipping_of_gradients_that_accelerate_has_scaled_is_found() -> None:
    step = "accelerator.backward(loss); {}; optimizer.step()"
    clip = step.format("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)")
    assert lines(accelerate(clip, options="mixed_precision='fp16'"), "DW221") == [clip]
    assert lines(accelerate(clip, options="mixed_precision='bf16'"), "DW221") == []
    own = step.format("accelerator.clip_grad_norm_(model.parameters(), 1.0)")
    assert lines(accelerate(own, options="mixed_precision='fp16'"), "DW221") == []


def test_a_schedule_as_long_as_the_loader_before_prepare_is_found_unless_prepare_gets_it() -> None:
    made = "schedule = get_scheduler('linear', optimizer, num_training_steps=len(loader) * 3)"
    step = GOOD_STEP + "; schedule.step()"
    assert lines(accelerate(step, before=made), "DW496") == [made]
    assert lines(accelerate(step, before=made, prepared="optimizer, loader, schedule"), "DW496") == []
    assert lines(accelerate(step, after=made), "DW496") == []
    divided = made.replace("len(loader) * 3", "len(loader) // accelerator.num_processes")
    assert lines(accelerate(step, before=divided), "DW496") == []


def test_data_on_gpu_0_is_found_under_accelerate() -> None:
    step = "batch = batch.to('cuda:0'); " + GOOD_STEP
    assert lines(accelerate(step), "DW104") == [step]
    assert lines(accelerate(step.replace("'cuda:0'", "accelerator.device")), "DW104") == []


def test_a_method_of_transformers_on_what_prepare_returns_is_found() -> None:
    model = "AutoModelForCausalLM.from_pretrained('gpt2')"
    step = GOOD_STEP + "; model.generate(batch)"
    assert lines(accelerate(step, model=model), "DW218") == [step]
    inner = step.replace("model.generate", "accelerator.unwrap_model(model).generate")
    assert lines(accelerate(inner, model=model), "DW218") == []
    assert lines(accelerate(GOOD_STEP + "; model.eval()", model=model), "DW218") == []
    assert lines(accelerate(step, model=model, options="fsdp_plugin=plugin"), "DW218") == []


EVALUATION = """
right = total = 0
for batch, in loader:
    {counted}
    total += len(batch)
accelerator.print(f'{{right / total}}')
"""


def test_a_count_of_one_rank_that_accelerate_prints_is_found() -> None:
    own = "right += (model(batch).argmax(-1) == 0).sum().item()"
    assert lines(accelerate() + EVALUATION.format(counted=own), "DW434")
    gathered = "batch = accelerator.gather_for_metrics(batch)\n    right += (batch > 0).sum().item()"
    assert lines(accelerate() + EVALUATION.format(counted=gathered), "DW434") == []


SPREAD = """
from transformers import AutoModelForCausalLM
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = AutoModelForCausalLM.from_pretrained("gpt2", device_map={})
model = DDP(model, device_ids=[rank])
"""


def test_a_model_that_each_rank_spreads_is_found() -> None:
    assert len(lines(SPREAD.format('"auto"'), "DW509")) == 1
    assert lines(SPREAD.format('{"": rank}'), "DW509") == []
    assert (
        lines(SPREAD.format('"auto"').replace("model = DDP", "other = DDP").replace("DDP(model", "DDP(net"), "DW509")
        == []
    )


DEEPSPEED = """
import deepspeed
deepspeed.init_distributed()
model = torch.nn.Linear(2, 2)
config = {config}
engine, {rest} = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for step in range(8):
    loss = engine(torch.ones(2, 2)).sum()
    {step}
{end}
"""
ENGINE_STEP = "engine.backward(loss); engine.step()"


def deepspeed(step: str = ENGINE_STEP, *, config: str = "{}", rest: str = "optimizer, _, _", end: str = "") -> str:
    """Return a script for DeepSpeed."""
    return DEEPSPEED.format(config=config, rest=rest, step=step, end=end)


@pytest.mark.parametrize("rest", ["optimizer, _, _", "*_"])
def test_a_step_past_the_engine_is_found(rest: str) -> None:
    assert lines(deepspeed("loss.backward(); engine.optimizer.zero_grad()", rest=rest), "DW499")
    assert lines(deepspeed(rest=rest), "DW499") == []


def test_a_step_of_the_optimizer_of_an_engine_is_found() -> None:
    step = "engine.backward(loss); optimizer.step()"
    assert lines(deepspeed(step), "DW499") == [step]


def test_a_step_of_the_engine_in_some_rounds_is_found_where_it_counts_them() -> None:
    counts = '{"gradient_accumulation_steps": 4}'
    rare = "engine.backward(loss)\n    if (step + 1) % 4 == 0:\n        engine.step()"
    assert lines(deepspeed(rare, config=counts), "DW499") == ["engine.step()"]
    assert lines(deepspeed(config=counts), "DW499") == []
    assert lines(deepspeed(rare), "DW499") == []


def test_a_state_of_zero_3_that_one_rank_saves_is_found() -> None:
    stage = '{{"zero_optimization": {{"stage": {}}}}}'
    saves = "if dist.get_rank() == 0:\n    torch.save(engine.module.state_dict(), 'model.pt')"
    assert lines(deepspeed(config=stage.format(3), end=saves), "DW306")
    assert lines(deepspeed(config=stage.format(2), end=saves), "DW306") == []
    by_engine = "engine.save_16bit_model('out')"
    assert lines(deepspeed(config=stage.format(3), end=by_engine), "DW306") == []


FABRIC = """
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset
fabric = Fabric(devices=2)
fabric.launch()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = fabric.setup(model, optimizer)
loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2, shuffle=True)
{}
for batch, in loader:
    fabric.backward(model(batch).sum())
    optimizer.step()
"""


def test_a_loader_that_fabric_has_not_got_is_found() -> None:
    assert lines(FABRIC.format(""), "DW202")
    assert lines(FABRIC.format("loader = fabric.setup_dataloaders(loader)"), "DW202") == []


CHOSEN = """
import deepspeed
def start(options, model, loader, optimizer):
    model, _, _, _ = deepspeed.initialize(model=model, config="stage2.json")
    for batch in loader:
        loss = model(batch).sum()
        if options.engine == "deepspeed":
            model.backward(loss)
            model.step()
        {}:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
"""


def test_clipping_in_the_branch_without_the_engine_is_not() -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    assert lines(CHOSEN.format("else"), "DW499") == []
    assert lines(CHOSEN.format("if options.clips"), "DW499") == [clip]
