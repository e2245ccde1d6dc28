"""The signatures of calls are those of the torch that is installed."""

import importlib
import inspect

import pytest
from ddpwizard.app.training_script.model.signatures import WHOLE, parameters_of

IN_C = {"torch.distributed.TCPStore", "torch.distributed.FileStore"}  # without a signature that Python knows


@pytest.mark.parametrize("name", sorted(WHOLE - IN_C))
def test_a_signature_is_that_of_torch(name: str) -> None:
    module, _, function = name.rpartition(".")
    made = getattr(importlib.import_module(module), function)
    signature = inspect.signature(made.__new__ if inspect.isclass(made) else made)
    known = [each for each in signature.parameters.values() if each.name != "cls"]
    assert [each.name for each in parameters_of(name)] == [each.name for each in known]
    by_name = {each.name for each in known if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert {each.name for each in parameters_of(name) if each.by_name} == by_name
    needed = {each.name for each in known if each.default is inspect.Parameter.empty}
    assert {each.name for each in parameters_of(name) if each.needed} == needed
