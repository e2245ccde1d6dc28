"""States of models in DDP that are loaded through comprehensions and merged mappings, with those that are renamed."""

import pytest
from helpers.review_snippets import lines

STATES = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
net = nn.Linear(2, 2)
model = DDP(net)
extra = load_settings()
torch.save(SAVED, "model.pt")
state = torch.load("model.pt")READ
LOADED
"""
ENTRY = '{"model": model.state_dict(), **extra}'


def states(saved: str, read: str, loaded: str) -> str:
    return STATES.replace("SAVED", saved).replace("READ", read).replace("LOADED", loaded)


FOUND = {
    "merged": states(ENTRY, '["model"]', "net.load_state_dict(state, strict=False)"),
    "merged first": states('{**extra, "model": model.state_dict()}', '["model"]', "net.load_state_dict(state)"),
    "some names": states(
        "model.state_dict()",
        "",
        'net.load_state_dict({k: v for k, v in state.items() if "head" not in k}, strict=False)',
    ),
    "a comprehension of an entry": states(
        '{"model": model.state_dict()}', '["model"]', "net.load_state_dict({k: v.float() for k, v in state.items()})"
    ),
    "merged and a comprehension": states(
        ENTRY,
        '["model"]',
        'state = {k: v for k, v in state.items() if k != "x"}\nnet.load_state_dict(state, strict=False)',
    ),
}
HEALTHY = {
    "without its prefix": states(
        ENTRY,
        '["model"]',
        'net.load_state_dict({k.removeprefix("module."): v for k, v in state.items()}, strict=False)',
    ),
    "a part of its name": states(ENTRY, '["model"]', "net.load_state_dict({k[7:]: v for k, v in state.items()})"),
    "a loop": states(
        ENTRY, '["model"]', "new = {}\nfor k, v in state.items():\n    new[k[7:]] = v\nnet.load_state_dict(new)"
    ),
    "consumed": states(
        ENTRY,
        '["model"]',
        'nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")\nmodel.load_state_dict(state)',
    ),
    "the inner model": states('{"model": net.state_dict(), **extra}', '["model"]', "net.load_state_dict(state)"),
    "the wrapped model": states(ENTRY, '["model"]', "model.load_state_dict({k: v for k, v in state.items()})"),
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND)
def test_found(code: str) -> None:
    assert lines(code, "DW219")


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_look_alikes(code: str) -> None:
    assert lines(code, "DW219") == []
