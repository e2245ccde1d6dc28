"""Effects on every rank of callbacks, methods and scripts around the trainers of transformers, trl and Lightning."""

import textwrap

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, lines

CALLBACK = """
import os
import torch
from transformers import TrainerCallback
from transformers.integrations import is_deepspeed_zero3_enabled
class Keep(TrainerCallback):
    def {}(self, args, state, control, model=None, **kwargs):
        folder = os.path.join(args.output_dir, f"step-{{state.global_step}}")
{}
"""
WRITTEN_BY_ALL = {
    "adapters with a checkpoint": ("on_save", "model.save_pretrained(folder)", "DW501"),
    "weights after a step": ("on_step_end", "torch.save(model.state_dict(), folder + '.pt')", "DW501"),
    "a model that stage 3 has not divided": (
        "on_epoch_end",
        "if not is_deepspeed_zero3_enabled():\n    model.save_pretrained(folder)",
        "DW501",
    ),
    "what is left of a checkpoint": (
        "on_save",
        "rest = os.path.join(folder, 'pytorch_model.bin')\nif os.path.exists(rest):\n    os.remove(rest)",
        "DW412",
    ),
}
WRITTEN_BY_ONE = {
    "the first of all": ("on_save", "if state.is_world_process_zero:\n    model.save_pretrained(folder)"),
    "the one that saves": ("on_save", "if args.should_save:\n    model.save_pretrained(folder)"),
    "behind a return": ("on_save", "if args.process_index != 0:\n    return\nmodel.save_pretrained(folder)"),
    "a file of each rank": ("on_step_end", "torch.save(model.state_dict(), f'{folder}-{args.process_index}.pt')"),
}


def in_callback(hook: str, code: str) -> str:
    return CALLBACK.format(hook, textwrap.indent(code, "        "))


def rules_in(text: str) -> set[str]:
    return {each.rule for each in review_text(text, "train.py", KNOWLEDGE) if each.severity != "info"}


@pytest.mark.parametrize(("hook", "code", "rule"), WRITTEN_BY_ALL.values(), ids=WRITTEN_BY_ALL.keys())
def test_a_file_that_a_callback_writes_on_every_rank_is_found(hook: str, code: str, rule: str) -> None:
    assert rule in rules_in(in_callback(hook, code))


@pytest.mark.parametrize(("hook", "code"), WRITTEN_BY_ONE.values(), ids=WRITTEN_BY_ONE.keys())
def test_a_file_that_a_callback_writes_on_one_rank_is_not(hook: str, code: str) -> None:
    assert rules_in(in_callback(hook, code)) == set()


TRAINER = """
import os
import torch
import deepspeed
from {library} import {base}
class Own({base}):
    def {method}(self, model, trial):
        torch.save(self.optimizer_groups, os.path.join(self.args.output_dir, "groups.bin"))
"""


@pytest.mark.parametrize(
    ("library", "base", "method"),
    [("transformers", "Trainer", "_save_checkpoint"), ("trl", "DPOTrainer", "_save_checkpoint")],
)
def test_a_file_that_a_method_of_a_trainer_writes_on_every_rank_is_found(library: str, base: str, method: str) -> None:
    assert lines(TRAINER.format(library=library, base=base, method=method), "DW501") == [
        'torch.save(self.optimizer_groups, os.path.join(self.args.output_dir, "groups.bin"))'
    ]


def test_a_method_that_the_trainer_calls_on_the_first_rank_is_not() -> None:
    assert rules_in(TRAINER.format(library="transformers", base="Trainer", method="_save")) == set()


SCRIPT = """
import os
from datasets import load_dataset
from transformers import AutoModel, AutoTokenizer, Trainer, TrainingArguments
def main():
    arguments = TrainingArguments("out"{options})
    model, tokenizer = AutoModel.from_pretrained("m"), AutoTokenizer.from_pretrained("m")
    data = load_dataset("json", data_files="a.json")["train"]
    {data}
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.train()
    {end}
if __name__ == "__main__":
    main()
"""
SEVERAL = ', deepspeed="stage2.json"'


def in_script(data: str = "pass", end: str = "pass", options: str = SEVERAL) -> str:
    return SCRIPT.format(data=data, end=end, options=options)


@pytest.mark.parametrize("end", ["model.save_pretrained('out')", "tokenizer.save_pretrained('out/final')"])
def test_a_file_that_a_script_writes_after_the_training_is_found(end: str) -> None:
    assert lines(in_script(end=end), "DW501") == [end]


def test_a_file_that_a_script_writes_after_the_training_by_trl_is_found() -> None:
    code = (
        in_script(end="model.save_pretrained('out')").replace("Trainer, T", "T").replace("Trainer(", "trl.SFTTrainer(")
    )
    assert lines("import trl" + code, "DW501") == ["model.save_pretrained('out')"]


@pytest.mark.parametrize(
    "end",
    [
        "if trainer.is_world_process_zero():\n        tokenizer.save_pretrained('out')",
        "if arguments.process_index == 0:\n        model.save_pretrained('out')",
        "trainer.save_model('out')",
        "trainer.push_to_hub('out')",
    ],
    ids=["the first rank", "its number", "the trainer saves", "the trainer uploads"],
)
def test_what_one_rank_writes_after_the_training_is_not(end: str) -> None:
    assert rules_in(in_script(end=end)) == set()


@pytest.mark.parametrize("options", ["", ", ddp_find_unused_parameters=False"])
def test_a_script_that_says_nothing_of_several_ranks_is_not(options: str) -> None:
    assert rules_in(in_script(end="model.save_pretrained('out')", options=options)) == set()


UNSEEDED = {
    "a split": "data = data.train_test_split(test_size=0.1)['train']",
    "a shuffled split": "data = data.train_test_split(0.1, shuffle=True)['train']",
    "an order": "data = data.shuffle()",
    "an order of a split": "data = data.train_test_split(0.1, seed=1)['train'].shuffle().map(len)",
}
SEEDED = {
    "a seed": "data = data.train_test_split(test_size=0.1, seed=42)['train']",
    "no order": "data = data.train_test_split(test_size=0.1, shuffle=False)['train']",
    "a generator": "data = data.shuffle(generator=make())",
    "a seed of all": "from transformers import set_seed\n    set_seed(7)\n    data = data.shuffle()",
}


@pytest.mark.parametrize("data", UNSEEDED.values(), ids=UNSEEDED.keys())
def test_data_that_nothing_seeds_are_found(data: str) -> None:
    assert lines(in_script(data), "DW227") == [data]


@pytest.mark.parametrize("data", SEEDED.values(), ids=SEEDED.keys())
def test_data_by_one_seed_are_not(data: str) -> None:
    assert rules_in(in_script(data)) == set()


HOOK = """
import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
class Keep(pl.Callback):
    {}
    def on_train_batch_end(self, {}) -> None:
        trainer = {}
        trainer.save_checkpoint(f"step-{{trainer.global_step}}.ckpt")
"""


def test_a_checkpoint_of_the_first_rank_in_a_hook_that_takes_any_arguments_is_found() -> None:
    for given, trainer in (("*args, **kwargs", "args[0]"), ("trainer, *rest", "trainer")):
        assert rules_in(HOOK.format("@rank_zero_only", given, trainer)) == {"DW403"}


def test_a_checkpoint_of_all_ranks_in_such_a_hook_is_not() -> None:
    assert rules_in(HOOK.format("", "*args, **kwargs", "args[0]")) == set()


SCALED = """
import os
import torch
import lightning.pytorch as pl
class Model(pl.LightningModule):
    def {}:
        torch.save(self.scaler, os.path.join(self.folder, "scaler.pt"))
trainer = pl.Trainer(devices=2, strategy="ddp")
trainer.fit(Model("out"))
"""


def test_a_file_that_a_hook_of_a_module_writes_on_every_rank_is_found() -> None:
    assert lines(SCALED.format("on_train_start(self)"), "DW501")
    assert lines(SCALED.format("validation_step(self, batch, index)"), "DW501")


def test_what_is_written_where_a_module_is_made_or_prepares_its_data_is_not() -> None:
    assert lines(SCALED.format("__init__(self, folder)"), "DW501") == []
    assert lines(SCALED.format("prepare_data(self)"), "DW501") == []


def test_a_place_in_a_row_that_a_table_may_lack_is_evaluated() -> None:
    code = """
import sys
import torch.distributed as dist
SIZES = {"small": (1, 2), "large": (3, 4)}
dist.init_process_group("gloo")
if SIZES.get(sys.argv[1], (0, 0))[0] > 1:
    dist.barrier()
"""
    assert rules_in(code) == set()
