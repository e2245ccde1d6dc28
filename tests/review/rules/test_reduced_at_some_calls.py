"""DW268: results that one place reduces over the ranks, and another one reports as they are."""

import pytest
from helpers.review_snippets import lines

START = """
def validate(model, loader):
    losses = [model(batch) for batch in loader]
    return torch.stack(losses).mean()

def reduced(value):
    dist.all_reduce(value)
    return value / dist.get_world_size()

def fit(model, loader, logger, distributed):
    {}
    for epoch in range(3):
        {}
"""
EACH = "val_loss = validate(model, loader)\n        {}\n        print(epoch, val_loss.item())"
REDUCED = {
    "in place": EACH.format("dist.all_reduce(val_loss)"),
    "a copy": "val_loss = validate(model, loader)\n        shared = val_loss.detach().clone()\n"
    "        dist.all_reduce(shared)\n        print(epoch, shared)",
    "by a helper": EACH.format("val_loss = reduce_tensor(val_loss)"),
    "by Accelerate": EACH.format("val_loss = accelerator.reduce(val_loss, 'mean')"),
}
REPORTED = {
    "in a text": 'val_loss = validate(model, loader)\n    print(f"at the start: {val_loss}")',
    "by a logger": 'val_loss = validate(model, loader)\n    logger.log({"loss": val_loss})',
    "by another name": "first_loss = validate(model, loader)\n    metrics = {'loss': first_loss}\n"
    "    logger.log(metrics)",
    "as a number": "val_loss = validate(model, loader)\n    number = val_loss.item()\n    print(number)",
}
AS_MEANT = {
    "not used": "val_loss = validate(model, loader)",
    "reduced as well": "val_loss = validate(model, loader)\n    dist.all_reduce(val_loss)\n    print(val_loss)",
    "without several ranks": "if not distributed:\n        val_loss = validate(model, loader)\n        print(val_loss)",
    "of one rank": "if dist.get_rank() == 0:\n        val_loss = validate(model, loader)\n        print(val_loss)",
    "another function": "val_loss = measure(model, loader)\n    print(val_loss)",
    "a helper between": "val_loss = reduced(validate(model, loader))\n    print(val_loss)",
}


@pytest.mark.parametrize("reduced", REDUCED.values(), ids=REDUCED.keys())
def test_a_report_of_what_is_reduced_elsewhere_is_found(reduced: str) -> None:
    assert len(lines(START.format(REPORTED["in a text"], reduced), "DW268")) == 1


@pytest.mark.parametrize("reported", REPORTED.values(), ids=REPORTED.keys())
def test_forms_of_the_report(reported: str) -> None:
    assert len(lines(START.format(reported, REDUCED["in place"]), "DW268")) == 1


@pytest.mark.parametrize("code", AS_MEANT.values(), ids=AS_MEANT.keys())
def test_results_that_are_reduced_or_of_one_process_are_not(code: str) -> None:
    assert lines(START.format(code, REDUCED["in place"]), "DW268") == []


def test_a_function_that_reduces_its_result_itself_is_not() -> None:
    code = START.format(REPORTED["in a text"], REDUCED["in place"])
    code = code.replace("return torch.stack(losses).mean()", "return reduce_tensor(torch.stack(losses).mean())")
    assert lines(code, "DW268") == []
