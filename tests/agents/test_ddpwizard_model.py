"""The parts of the agents that build a user's model, called in this process; tests of the planner run the agents."""

from pathlib import Path

import pytest
import torch
from ddpwizard.app.agents.ddpwizard_model import building, protocol


def test_an_error_is_described_in_one_line() -> None:
    assert protocol.one_line(RuntimeError("no weights\nhere")) == "RuntimeError: no weights"


def test_a_factory_must_return_a_module() -> None:
    model = torch.nn.Linear(2, 2)
    assert protocol.require_module(model, "models:linear") is model
    with pytest.raises(TypeError, match=r"models:number returned int, not a torch\.nn\.Module"):
        protocol.require_module(7, "models:number")


def test_a_function_is_imported_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text("class Factory:\n    def build(): return 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert protocol.import_function("own_models:Factory.build")() == 7
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        protocol.import_function("own_models:absent")
    with pytest.raises(ModuleNotFoundError):
        protocol.import_function("own_modules:build")


def test_a_model_without_an_embedding_needs_a_batch_of_its_own() -> None:
    request = {"batch": None, "config": None, "micro_batch": 2, "seq_len": 8}
    with pytest.raises(protocol.RequestRefused, match=r"--batch PKG\.MOD:FN"):
        building.make_batch(torch.nn.Linear(2, 2), request)
    positional, named = building.make_batch(torch.nn.Embedding(4, 2), request)
    assert ([each.shape for each in positional], named) == ([(2, 8)], {})
