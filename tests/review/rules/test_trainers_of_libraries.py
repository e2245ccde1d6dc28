"""Calls of Lightning and transformers that need every rank, flags of their trainers, and logs of one rank's part."""

import textwrap

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, lines

LIGHTNING = """
import lightning as L
from lightning.pytorch.utilities import rank_zero_only
class Model(L.LightningModule):
    def validation_step(self, batch, index):
        self.outputs.append(self(batch))
{}
class Progress(L.Callback):
{}
trainer = L.Trainer(devices=2, strategy="ddp")
trainer.fit(Model(), callbacks=[Progress()])
"""
OF_MODULE = {
    "under the rank": "if self.global_rank == 0:\n    everything = self.all_gather(self.outputs)",
    "under the trainer's rank": "if self.trainer.is_global_zero:\n    everything = self.all_gather(self.outputs)",
    "behind a return": "if not self.trainer.is_global_zero:\n    return\neverything = self.all_gather(self.outputs)",
    "a log of all ranks": "if self.global_rank == 0:\n    self.log('loss', self.loss, sync_dist=True)",
    "a barrier of the strategy": "if self.trainer.is_global_zero:\n    self.trainer.strategy.barrier()",
}
OF_MODULE_BY_ALL = {
    "by all": "everything = self.all_gather(self.outputs)\nif self.trainer.is_global_zero:\n    print(everything)",
    "a log of one rank": "if self.global_rank == 0:\n    self.log('loss', self.loss, rank_zero_only=True)",
    "a log that is switched off": "if self.global_rank == 0:\n    self.log('loss', self.loss, sync_dist=False)",
    "a list of the module": "if self.global_rank == 0:\n    self.outputs.clear()",
}
OF_CALLBACK = {
    "a checkpoint": "if trainer.is_global_zero:\n    trainer.save_checkpoint('last.ckpt')",
    "a gather of the module": "if trainer.global_rank == 0:\n    print(pl_module.all_gather(pl_module.loss))",
    "a broadcast of the strategy": "if trainer.is_global_zero:\n    trainer.strategy.broadcast('name')",
    "a flag": "if trainer.is_global_zero:\n    trainer.should_stop = True",
}
OF_CALLBACK_BY_ALL = {
    "a checkpoint": "trainer.save_checkpoint('last.ckpt')",
    "a print": "if trainer.is_global_zero:\n    print(trainer.current_epoch)",
    "a flag": "if trainer.current_epoch > 3:\n    trainer.should_stop = True",
}


def findings(module: str = "pass", callback: str = "pass") -> list[str]:
    """Return the rules of the findings in a script for Lightning, by the bodies of two of its methods."""
    in_module = textwrap.indent("def on_validation_epoch_end(self):\n" + textwrap.indent(module, "    "), "    ")
    in_callback = textwrap.indent(
        "def on_train_epoch_end(self, trainer, pl_module):\n" + textwrap.indent(callback, "    "), "    "
    )
    text = LIGHTNING.format(in_module, in_callback)
    return [each.rule for each in review_text(text, "train.py", KNOWLEDGE) if each.severity != "info"]


@pytest.mark.parametrize("code", OF_MODULE.values(), ids=OF_MODULE.keys())
def test_calls_of_a_module_on_one_rank_are_found(code: str) -> None:
    (rule,) = findings(module=code)
    assert rule in ("DW401", "DW403", "DW404", "DW260")


@pytest.mark.parametrize("code", OF_MODULE_BY_ALL.values(), ids=OF_MODULE_BY_ALL.keys())
def test_calls_of_a_module_on_all_ranks_are_not(code: str) -> None:
    assert findings(module=code) == []


@pytest.mark.parametrize("code", OF_CALLBACK.values(), ids=OF_CALLBACK.keys())
def test_calls_of_a_callback_on_one_rank_are_found_once(code: str) -> None:
    (rule,) = findings(callback=code)
    assert rule in ("DW401", "DW260", "DW510")


@pytest.mark.parametrize("code", OF_CALLBACK_BY_ALL.values(), ids=OF_CALLBACK_BY_ALL.keys())
def test_calls_of_a_callback_on_all_ranks_are_not(code: str) -> None:
    assert findings(callback=code) == []


def test_a_method_for_rank_0_that_gathers_is_found() -> None:
    code = "pass\n@rank_zero_only\ndef report(self):\n    print(self.all_gather(self.loss))"
    text = LIGHTNING.format(textwrap.indent(code.removeprefix("pass\n"), "    "), "    pass")
    assert "DW401" in {each.rule for each in review_text(text, "train.py", KNOWLEDGE)}


CALLBACK = """
from transformers import Trainer, TrainerCallback
class Control(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
{}
        return control
trainer = Trainer(callbacks=[Control()])
trainer.train()
"""
OF_SOME = {
    "the end of the training": "if state.is_world_process_zero and logs['loss'] < 1:\n"
    "    control.should_training_stop = True",
    "a checkpoint": "if args.process_index == 0:\n    control.should_save = True",
    "behind a return": "if not state.is_world_process_zero:\n    return control\ncontrol.should_evaluate = True",
}
OF_ALL = {
    "by a step": "if state.global_step > 9:\n    control.should_training_stop = True",
    "by a loss of all ranks": "if logs['loss'] < 1:\n    control.should_training_stop = True",
    "a log": "if state.is_world_process_zero:\n    control.should_log = True",
}


@pytest.mark.parametrize("code", OF_SOME.values(), ids=OF_SOME.keys())
def test_a_flag_that_some_ranks_set_is_found(code: str) -> None:
    (line,) = lines(CALLBACK.format(textwrap.indent(code, "        ")), "DW510")
    assert line.startswith("control.")


@pytest.mark.parametrize("code", OF_ALL.values(), ids=OF_ALL.keys())
def test_a_flag_of_all_ranks_is_not(code: str) -> None:
    assert lines(CALLBACK.format(textwrap.indent(code, "        ")), "DW510") == []


def test_an_evaluation_of_a_trainer_on_one_rank_is_found_in_a_script_without_other_words_of_ranks() -> None:
    code = """
from transformers import Trainer
def main():
    trainer = Trainer()
    trainer.train()
    if trainer.is_world_process_zero():
        print(trainer.evaluate())
main()
"""
    assert lines(code, "DW403") == ["print(trainer.evaluate())"]


LOGS = """
import pytorch_lightning as pl
class Model(pl.LightningModule):
    def {}(self, batch, index):
        loss = self.criterion(self(batch))
        {}
trainer = pl.Trainer({})
"""
SEVERAL = {"devices": "devices=2", "all GPUs": "gpus=-1", "a strategy": 'strategy="ddp"', "a list": "devices=[0, 1]"}


@pytest.mark.parametrize("trainer", SEVERAL.values(), ids=SEVERAL.keys())
def test_a_log_of_one_rank_is_found(trainer: str) -> None:
    assert lines(LOGS.format("validation_step", "self.log('loss', loss)", trainer), "DW508") == [
        "self.log('loss', loss)"
    ]


@pytest.mark.parametrize(
    ("method", "log", "trainer"),
    [
        ("training_step", "self.log('loss', loss)", "devices=2"),
        ("validation_step", "self.log('loss', loss, sync_dist=True)", "devices=2"),
        ("validation_step", "self.log('loss', loss, rank_zero_only=True)", "devices=2"),
        ("validation_step", "self.log('loss', loss)", "devices=1"),
        ("validation_step", "self.log('accuracy', self.accuracy)", "devices=2"),
        ("validation_step", "self.log('loss', self.all_gather(loss).mean())", "devices=2"),
    ],
    ids=["a training step", "synchronised", "of rank 0 on purpose", "one device", "a metric", "gathered"],
)
def test_a_log_of_all_ranks_is_not(method: str, log: str, trainer: str) -> None:
    assert lines(LOGS.format(method, log, trainer), "DW508") == []
