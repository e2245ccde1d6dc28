"""DW487: lists of the layers that FSDP wraps which name one class twice."""

import pytest
from helpers.review_snippets import lines

CODE = """
import functools
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy
dist.init_process_group("nccl")
{}
"""
TWICE = {
    "a set": "policy = ModuleWrapPolicy({Encoder, Decoder, Encoder})",
    "a list": "policy = ModuleWrapPolicy([Encoder, Encoder])",
    "by name": "policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Encoder, Encoder})",
    "in a variable": "layers = {Encoder, Encoder}\npolicy = ModuleWrapPolicy(layers)",
    "of modules": "policy = make_wrapping_policy(model, [models.Encoder, models.Encoder])",
}
ONCE = {
    "two classes": "policy = ModuleWrapPolicy({Encoder, Decoder})",
    "the same name of two modules": "policy = ModuleWrapPolicy({first.Encoder, second.Encoder})",
    "no list of a policy": "layers = [Encoder, Encoder]\nmodel = Stack(layers)\npolicy = ModuleWrapPolicy({Encoder})",
    "sizes": "policy = make_wrapping_policy(model, [size, size])",
}


@pytest.mark.parametrize("code", TWICE.values(), ids=TWICE.keys())
def test_a_class_that_is_listed_twice_is_found(code: str) -> None:
    assert len(lines(CODE.format(code), "DW487")) == 1


@pytest.mark.parametrize("code", ONCE.values(), ids=ONCE.keys())
def test_classes_that_are_listed_once_are_not(code: str) -> None:
    assert lines(CODE.format(code), "DW487") == []
