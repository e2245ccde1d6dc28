"""DW407: tensors that are gathered although their lengths differ between ranks."""

import ast
import re
from collections.abc import Iterator

from ...training_script.edits import Edit
from ...training_script.model.collective_effects import SAME
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import DIFFERS, LOCAL, Accumulated, Key, parts
from ...training_script.model.reach import Run, alternatives, argument
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

# What a tokenizer returns: as long as the longest text of a batch.
AS_LONG_AS_TEXT = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
PADDED = re.compile(r"""padding\s*=\s*["']max_length["']|pad_to_max_length""")
FILLED_UP = "pad_to_length"  # to a length that may be the same on all ranks
PER_TOKEN = re.compile(r"logits\w*\[[^\]\n]*, ?:-1\b")  # logits for each token: the last one predicts nothing
JOINING = {"torch.cat", "torch.concat", "torch.stack", "torch.tensor"}
PADDING = {"torch.nn.utils.rnn.pad_sequence"}
MOST_INNER = 3  # sequences in each other
# Gathers that need one shape on all ranks, with the place of the tensor.
GATHERS = {
    "torch.distributed.all_gather": (1, "tensor"),
    "torch.distributed.all_gather_into_tensor": (1, "input_tensor"),
    "torch.distributed.gather": (0, "tensor"),
}
FIX = "pad-before-gather"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the gathering of parts of a batch that is padded to its own longest text, and of selected elements."""
    for reach, fact in run.of(*GATHERS):
        given = argument(fact, *GATHERS[fact.name])
        if given and is_selected(given.key) and reach.several:
            yield from violation_at(
                script,
                reach,
                "the ranks gather elements that they select by their values: their number differs between ranks",
                0.8,
            )
        elif given and _is_padded_to_own(given.key) and reach.several:
            yield from violation_at(
                script,
                reach,
                "the ranks gather rows that are padded to the longest one of their own data: their lengths differ",
                0.75,
            )
    text, gathers = script.source.text, list(run.of(".gather", ".gather_for_metrics"))
    if not gathers or script.mentions(PADDED):
        return
    filled_up, per_token = FILLED_UP in text, script.mentions(PER_TOKEN)
    for reach, fact in gathers:
        given = argument(fact, 0, "tensor", "input_data")
        if not given or not fact.owner or "accelerator" not in fact.owner.facts:
            continue
        held = list(_elements(given.key, MOST_INNER))
        if (not filled_up and any(map(_is_of_tokens, held))) or (per_token and any(map(_is_logits, held))):
            yield from violation_at(
                script,
                reach,
                "the ranks gather tensors that are as long as the longest text of their own batch: the lengths differ",
                0.6,
                patch=(lambda fact=fact: _padded(script, fact)) if script.is_here(reach) else None,
            )


def _is_padded_to_own(key: Key) -> bool:
    """Return whether rows are filled up to the longest of a rank's own, by torch or to a maximum of lengths."""
    if key.op != "call" or not key.differs_by & DIFFERS or any(part.op in SAME for part in parts(key)):
        return False
    if key.args[0] in PADDING:
        return True
    made = key.args[1] if key.args[0] in JOINING and len(key.args) > 1 else None
    if made is None or made.op != "built":
        return False
    longest = (part for part in parts(made.args[-1]) if part.op == "max" and part.differs_by & DIFFERS)
    return any(any(inner.op == "length" for inner in parts(each)) for each in longest)


def is_selected(key: Key) -> bool:
    """Return whether a tensor has as many elements as fulfil a condition, or one has that is put together here."""
    match key.op, key.args:
        case "selected", _:
            return True
        case "item", (held, place):
            return is_selected(place) or (place.op == "selected" and held.op != "selected")
        case "call", (name, Key() as held, *_) if name in JOINING:
            if held.accumulated is not None:
                return _collects_selected(held.accumulated)
            return held.op == "sequence" and bool(held.args) and all(map(is_selected, held.args))
        case _:
            return False


def _collects_selected(accumulated: Accumulated) -> bool:
    """Return whether each round of a loop adds selected elements to a list, or an element where its data say so."""
    match accumulated.after.op, accumulated.after.args:
        case "appended", (_, Key() as added):
            return is_selected(added)
        case "if", (test, Key(op="appended"), other):
            return bool(test.differs_by & LOCAL) and other is accumulated.over
        case _:
            return False


def _elements(key: Key, inner: int) -> Iterator[Key]:
    """Yield what a value may be, elements of sequences that functions return and parts of batches looked up."""
    for each in alternatives(key):
        yield each
        if each.op == "item" and inner:
            of, place = each.args
            for owner in _elements(of, inner - 1):
                number = place.value if place.is_constant else None
                if owner.op == "sequence" and isinstance(number, int) and number < len(owner.args):
                    yield from _elements(owner.args[number], inner - 1)
                elif place.op == "slice" and place.args[0].value in (None, 0):
                    yield owner


def _is_logits(key: Key) -> bool:
    while key.op == "item" and _keeps_tokens(key.args[1]):
        key = key.args[0]
    return key.op == "attribute" and key.args[1] == "logits"


def _keeps_tokens(place: Key) -> bool:
    """Return whether an index takes parts of the dimensions, rather than one number of one."""
    return place.op == "slice" or (place.op == "sequence" and all(each.op == "slice" for each in place.args))


def _is_of_tokens(key: Key) -> bool:
    return key.op == "item" and key.args[1].is_constant and key.args[1].value in AS_LONG_AS_TEXT


def _padded(script: Script, fact: Noted) -> Patch:
    call = fact.node
    if len(call.args) != 1 or not isinstance(call.func, ast.Attribute):
        return no_patch(FIX, "pass the tensor through pad_across_processes first, or gather a number made of it")
    first, last = script.source.start(call.args[0]), script.source.end(call.args[0])
    accelerator = script.source.code(call.func.value)
    return Patch(
        id=FIX,
        safety="unsafe",
        why_unsafe="the rows of shorter batches end in zeros then",
        edits=[Edit(first, first, f"{accelerator}.pad_across_processes("), Edit(last, last, ", dim=1)")],
    )
