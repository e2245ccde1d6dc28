"""DW407: tensors that are gathered although their lengths differ between ranks."""

import ast
import re
from collections.abc import Iterator

from ...training_script.edits import Edit
from ...training_script.model.items import Noted
from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

# What a tokenizer returns: as long as the longest text of a batch.
AS_LONG_AS_TEXT = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
PADDED = re.compile(r"""padding\s*=\s*["']max_length["']|pad_to_max_length|pad_to_length""")
FIX = "pad-before-gather"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the gathering of parts of a batch that is padded to its own longest text."""
    if PADDED.search(script.source.text):
        return
    for reach, fact in run.of(".gather", ".gather_for_metrics"):
        given = argument(fact, 0, "tensor", "input_data")
        if given and fact.owner and "accelerator" in fact.owner.facts and _is_as_long_as_text(given.key):
            yield from violation_at(
                script,
                reach,
                "the ranks gather tensors that are as long as the longest text of their own batch: the lengths differ",
                0.6,
                patch=(lambda fact=fact: _padded(script, fact)) if script.is_here(reach) else None,
            )


def _is_as_long_as_text(key: Key) -> bool:
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
