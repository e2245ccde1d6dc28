"""Causes in scripts that use Accelerate, Lightning, transformers and Weights & Biases, each with look-alikes."""

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, found, lines

PREPARED = """
from accelerate import Accelerator
from torch.utils.data import DataLoader
def main(model, data, tests):
    accelerator = Accelerator({options})
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.{schedule}
    loader, test_loader = DataLoader(data, shuffle=True), DataLoader(tests)
    {given} = accelerator.prepare({given})
    for epoch in range(9):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            {in_batch}
        {in_epoch}
main(torch.nn.Linear(2, 2), [1], [1])
"""
ALL = "model, optimizer, loader, test_loader, schedule"
STEP = "schedule.step()"


def prepared(in_epoch: str = STEP, in_batch: str = "pass", given: str = ALL, **more: str) -> str:
    more = {"options": "", "schedule": "StepLR(optimizer, 20)"} | more
    return PREPARED.format(in_epoch=in_epoch, in_batch=in_batch, given=given, **more)


PER_EPOCH = {
    "in each epoch": {},
    "cosine": {"schedule": "CosineAnnealingLR(optimizer, T_max=9)"},
    "by a loss": {"schedule": "ReduceLROnPlateau(optimizer)", "in_epoch": "schedule.step(0.5)"},
    "in every second epoch": {"in_epoch": "if epoch % 2:\n            schedule.step()"},
    "prepared without the loader for tests": {"given": "model, optimizer, loader, schedule"},
}
FITTING = {
    "in each batch": {"in_batch": STEP, "in_epoch": "pass"},
    "with each step of the optimizer": {"in_batch": "if x.any():\n                schedule.step()"},
    "not prepared": {"given": "model, optimizer, loader, test_loader"},
    "once for all ranks": {"options": "step_scheduler_with_optimizer=False"},
    "split batches": {"options": "split_batches=True"},
    "as long as all ranks step": {"schedule": "StepLR(optimizer, 20 * accelerator.num_processes)"},
    "to a number": {"in_epoch": "schedule.step(epoch)"},
}


@pytest.mark.parametrize("form", PER_EPOCH.values(), ids=PER_EPOCH.keys())
def test_a_prepared_schedule_that_is_stepped_in_each_epoch_is_found(form: dict[str, str]) -> None:
    assert len(found(prepared(**form), "DW477")) == 1


@pytest.mark.parametrize("form", FITTING.values(), ids=FITTING.keys())
def test_a_schedule_that_fits_its_steps_is_not(form: dict[str, str]) -> None:
    assert found(prepared(**form), "DW477") == []


EVALUATED = """
        total, count, shown = 0.0, 0, []
        for x, y in test_loader:
            scores = model(x)
            {added}
            count += 1
            shown.append(accelerator.gather_for_metrics(scores))
        {report}
"""
MEAN = 'accelerator.print("mean {:.3f}".format(total / count))'
OWN_SUMS = {
    "a loss": "total += torch.nn.functional.cross_entropy(scores, y).item()",
    "right answers": "total += (scores.argmax(1) == y).sum().item()",
    "a loss with a name": "loss = torch.nn.functional.cross_entropy(scores, y)\n            total += loss.item()",
}
SUMS_OF_ALL = {
    "a gathered loss": "total += accelerator.gather((scores - y).abs().mean()).mean().item()",
    "gathered scores": "scores = accelerator.gather(scores)\n            total += scores.sum().item()",
    "a reduced loss": "loss = accelerator.reduce(scores.mean())\n            total += loss.item()",
    "a helper": "total += sync_mean(scores).item()",
    "nothing of the batch": "total += 1",
}


def evaluated(added: str, report: str = MEAN) -> str:
    return prepared(in_epoch=EVALUATED.format(added=added, report=report).strip())


@pytest.mark.parametrize("added", OWN_SUMS.values(), ids=OWN_SUMS.keys())
def test_a_sum_of_the_rank_in_a_loop_that_gathers_something_else_is_found(added: str) -> None:
    assert len(found(evaluated(added), "DW434")) == 1
    report = 'if accelerator.is_main_process:\n            print("%d %.2f" % (epoch, total / count))'
    assert len(found(evaluated(added, report), "DW434")) == 1


@pytest.mark.parametrize("added", SUMS_OF_ALL.values(), ids=SUMS_OF_ALL.keys())
def test_a_sum_of_what_all_ranks_have_is_not(added: str) -> None:
    assert found(evaluated(added), "DW434") == []


SAVED = """
import time
import uuid
import deepspeed
from datetime import datetime
from accelerate import Accelerator
from transformers import Trainer, TrainingArguments
accelerator = Accelerator()
engine, _, _, _ = deepspeed.initialize(model=torch.nn.Linear(2, 2), config="stage3.json")
"""
SAVES = (
    'accelerator.save_state(f"runs/{name}")',
    'engine.save_checkpoint("runs/{}".format(name))',
    'Trainer(None, TrainingArguments(output_dir=os.path.join("runs", name), deepspeed="stage3.json")).train()',
)
OWN_NAMES = (
    'name = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")',
    'name = "run-{}".format(int(time.time()))',
    "name = uuid.uuid4().hex[:6]",
    'name = f"{datetime.now():%d%H%M%S}"',
)
COMMON_NAMES = ('name = "last"', 'name = datetime.now().strftime("%Y-%m-%d")', 'name = f"{datetime.now():%d-%H-%M}"')


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_checkpoint_of_all_ranks_under_a_name_of_each_is_found(name: str, save: str) -> None:
    assert lines(f"{SAVED}{name}\n{save}\n", "DW507") == [name]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("name", COMMON_NAMES)
def test_a_checkpoint_under_a_common_name_is_not(name: str, save: str) -> None:
    assert found(f"{SAVED}{name}\n{save}\n", "DW507") == []


def test_a_name_that_rank_0_has_sent_is_not() -> None:
    sent = "box = [str(time.time())]\ndist.broadcast_object_list(box, src=0)\nname = box[0]"
    assert found(f"{SAVED}{sent}\n{SAVES[0]}\n", "DW507") == []


CURVES = """
from datetime import datetime
from torch.utils.tensorboard import SummaryWriter
dist.init_process_group("nccl")
writer = SummaryWriter("runs/" + {name})
for step in range(9):
    writer.add_scalar("loss", 0.1, step)
"""


@pytest.mark.parametrize("form", ["%m-%d_%H-%M", "%Y%m%d"])
def test_curves_of_all_ranks_in_a_directory_of_the_minute_are_found(form: str) -> None:
    assert len(found(CURVES.format(name=f'datetime.now().strftime("{form}")'), "DW412")) == 1
    assert len(found(CURVES.format(name="str(datetime.now().date())"), "DW412")) == 1


@pytest.mark.parametrize("name", ['datetime.now().strftime("%H%M%S")', "str(datetime.now())", "str(dist.get_rank())"])
def test_curves_in_a_directory_of_each_rank_are_not(name: str) -> None:
    assert found(CURVES.format(name=name), "DW412") == []


LOGGED = """
import wandb
dist.init_process_group("nccl")
if dist.get_rank() == 0:
    wandb.init(project="p")
for step in range(3):
    if {test}:
        wandb.log({{"step": step}})
"""


@pytest.mark.parametrize("test", ["wandb.run is not None", "wandb.run", "wandb.run is not None and step > 1"])
def test_a_log_where_a_run_of_the_experiment_is_there_is_not_found(test: str) -> None:
    assert found(LOGGED.format(test=test), "DW412") == []
    assert len(found(LOGGED.format(test="step > 1"), "DW412")) == 1


SPREAD = """
from peft import get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import SFTTrainer
rank = int(os.environ.get("LOCAL_RANK", 0))
{places}
model = AutoModelForCausalLM.from_pretrained("m", device_map={device_map})
{wrapped}
"""
TRAINED = 'Trainer(model=model, args=TrainingArguments("out"{options})).train()'
SEVERAL = TRAINED.format(options=', deepspeed="stage2.json"')


def spread(device_map: str, wrapped: str = SEVERAL, places: str = "pass") -> str:
    return SPREAD.format(device_map=device_map, wrapped=wrapped, places=places)


@pytest.mark.parametrize("device_map", ['"auto"', '{"": 0}', '{"embed": "cuda:0", "head": "cuda:1"}', "places"])
def test_a_map_of_devices_that_is_one_for_all_ranks_is_found_in_a_trainer(device_map: str) -> None:
    places = 'places = {"a": 0, "b": 1}'
    line = f'model = AutoModelForCausalLM.from_pretrained("m", device_map={device_map})'
    assert lines(spread(device_map, places=places), "DW509") == [line]
    inner = "model = get_peft_model(model, None)\n" + SEVERAL.replace("Trainer(", "SFTTrainer(", 1)
    assert lines(spread(device_map, inner, places), "DW509") == [line]


@pytest.mark.parametrize("device_map", ["None", '{"": rank}', '{"": "cpu"}', "places", "places if rank < 0 else None"])
def test_a_map_of_devices_of_each_rank_is_not(device_map: str) -> None:
    places = 'places = "auto"\nif "LOCAL_RANK" in os.environ:\n    places = {"": rank}'
    assert found(spread(device_map, places=places), "DW509") == []


def test_a_map_of_devices_in_a_script_of_one_process_is_not() -> None:
    code = spread('"auto"', TRAINED.format(options="")).replace('rank = int(os.environ.get("LOCAL_RANK", 0))\n', "")
    assert found(code, "DW509") == []


SKIPPED = """
import lightning as L
class Model(L.LightningModule):
    def training_step(self, batch, batch_idx):
        {skips}
        loss = self.net(batch).mean()
        {later}
        return loss
trainer = L.Trainer(devices={devices})
"""
SKIPS = (
    "if torch.isnan(batch).any(): return None",
    "if len(batch) == 0: return",
    "if batch is None: return None",
    "if batch.numel() < 3: return None",
)


def skipped(skips: str = "pass", later: str = "pass", devices: str = "4") -> str:
    return SKIPPED.format(skips=skips, later=later, devices=devices)


@pytest.mark.parametrize("skips", SKIPS)
def test_a_step_of_lightning_that_a_rank_skips_by_its_batch_is_found(skips: str) -> None:
    assert lines(skipped(skips), "DW491") == [skips]
    assert found(skipped(skips, devices="1"), "DW491") == []


def test_a_step_that_a_rank_skips_by_its_loss_is_found() -> None:
    later = "if not torch.isfinite(loss): return None"
    assert lines(skipped(later=later), "DW491") == [later]


@pytest.mark.parametrize(
    "skips",
    [
        "if self.global_step < 9: return None",
        "if batch_idx == 0: return None",
        "if self.hparams.frozen: return None",
        "if torch.isnan(batch).any(): return self.net.weight.sum() * 0.0",
        "if self.all_gather(torch.isnan(batch).any()).any(): return None",
        "if torch.isnan(batch).any(): raise ValueError",
    ],
)
def test_a_step_that_all_ranks_skip_or_none_is_not(skips: str) -> None:
    assert found(skipped(skips), "DW491") == []


CALLED = {
    "a strategy": ("DDPStrategy", "trainer = L.Trainer(strategy=DDPStrategy() if gpus > 1 else 'auto')"),
    "a group": ("dist", "if gpus > 1:\n    dist.init_process_group('nccl')"),
    "a wrapper": ("DDP", "net = torch.nn.Linear(2, 2)\nif gpus > 1:\n    net = DDP(net)"),
    "a sampler": ("DistributedSampler", "def loader(data):\n    return DistributedSampler(data) if gpus > 1 else None"),
}


@pytest.mark.parametrize(("name", "code"), CALLED.values(), ids=CALLED.keys())
def test_a_name_for_several_ranks_that_nothing_imports_is_found(name: str, code: str) -> None:
    import_of = f"import {name}\n" if name == "dist" else f"from somewhere import {name}\n"
    program = f"import lightning as L\nimport torch\ngpus = torch.cuda.device_count()\n{code}\n"
    assert len(_unbound(program)) == 1
    for bound in (
        import_of,
        f"from somewhere import *\n{name}\n",
        f"try:\n    {import_of}except ImportError:\n    {name} = None\n",
        f"def {name}(*args, **options): ...\n",
        f"def prepare():\n    global {name}\n    {import_of}",
    ):
        assert _unbound(bound + program) == []


def _unbound(program: str) -> list[int]:
    return [finding.line for finding in review_text(program, "train.py", KNOWLEDGE, ["DW479"])]


CLIPPED = """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
dist.init_process_group("nccl")
def wrap(model, config):
    if not config.fsdp:
        return model
    return FSDP(model{options})
def train(config, data):
    model = wrap(torch.nn.Linear(2, 2).cuda(), config)
    if config.compile:
        model = torch.compile(model)
    for x in data:
        model(x).sum().backward()
        {clip}
"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
CHOSEN = f"if isinstance(model, FSDP):\n            model.clip_grad_norm_(1.0)\n        else:\n            {CLIP}"


@pytest.mark.parametrize("options", ["", ", use_orig_params=True", ", sharding_strategy=ShardingStrategy.FULL_SHARD"])
def test_a_clip_of_a_model_that_a_helper_may_shard_is_found(options: str) -> None:
    assert lines(CLIPPED.format(options=options, clip=CLIP), "DW303") == [CLIP]


@pytest.mark.parametrize(
    ("options", "clip"),
    [
        (", sharding_strategy=ShardingStrategy.NO_SHARD", CLIP),
        (", sharding_strategy=strategy_of(config)", CLIP),
        ("", "model.clip_grad_norm_(1.0)"),
        ("", CHOSEN),
    ],
    ids=["whole gradients", "a strategy that is not known", "by FSDP", "by the kind of the model"],
)
def test_a_clip_of_a_model_that_may_be_whole_is_not(options: str, clip: str) -> None:
    assert found(CLIPPED.format(options=options, clip=clip), "DW303") == []


MEASURED = """
import collections
import numpy as np
import sklearn.metrics
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
dist.init_process_group("nccl")
rank = dist.get_rank()
tests = DataLoader(data, sampler={sampler})
model = DDP(torch.nn.Linear(2, 2))
def evaluate(loader):
    {made}
    for x, y in loader:
        scores = model(x)
        loss = torch.nn.functional.cross_entropy(scores, y)
        {added}
    {gathered}
    return {returned}
result = evaluate(tests)
if rank == 0:
    {report}
"""
COLLECTS = {
    "a mean of losses": ("found = []", "found.append(loss.item())", "sum(found) / len(found)"),
    "a mean of numpy": ("found = []", "found.append(loss.item())", "np.mean(found)"),
    "stacked losses": ("found = []", "found.append(loss)", "torch.stack(found).mean().item()"),
    "sums with names": ("found = collections.defaultdict(float)", "found['loss'] += loss.item()", "dict(found)"),
    "a score of sklearn": (
        "found, right = [], []",
        "found.extend(scores.argmax(1).tolist()); right.extend(y.tolist())",
        "sklearn.metrics.f1_score(right, found)",
    ),
    "joined lists": ("found = []", "found += (scores.argmax(1) == y).tolist()", "np.mean(found)"),
}
OF_RANK = "DistributedSampler(data, shuffle=False)"


def measured(made: str, added: str, returned: str, **more: str) -> str:
    more = {"sampler": OF_RANK, "gathered": "pass", "report": 'print(f"score {result}")'} | more
    return MEASURED.format(made=made, added=added, returned=returned, **more)


@pytest.mark.parametrize("form", COLLECTS.values(), ids=COLLECTS.keys())
def test_results_that_a_rank_collects_of_its_part_and_reports_are_found(form: tuple[str, str, str]) -> None:
    assert len(found(measured(*form), "DW492")) == 1
    saved = 'torch.save({"score": result}, "best.pt")'
    assert len(found(measured(*form, report=saved), "DW492")) == 1


@pytest.mark.parametrize("form", COLLECTS.values(), ids=COLLECTS.keys())
def test_results_that_all_ranks_have_given_are_not(form: tuple[str, str, str]) -> None:
    every = "every = [None] * dist.get_world_size(); dist.all_gather_object(every, found)"
    for more in (
        {"gathered": every},
        {"gathered": "found = gathered_lists(found)"},
        {"sampler": "None"},
        {"report": "pass"},
    ):
        assert found(measured(*form, **more), "DW492") == []
    mean = measured(*form).replace("result = evaluate(tests)", "result = reduce_mean(evaluate(tests))")
    assert found(mean, "DW492") == []


def test_examples_of_one_rank_that_it_shows_are_not() -> None:
    assert found(measured("shown = []", "shown.append(scores[0])", "shown[:3]"), "DW492") == []
    losses = COLLECTS["a mean of losses"]
    trained = measured(*losses).replace("return", "loss.backward()\n    return")
    assert len(found(trained, "DW492")) == 1
    assert found(measured(losses[0], losses[1] + "; loss.backward()", losses[2]), "DW492") == []
