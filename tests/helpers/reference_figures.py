"""Reference figures that torch and transformers give: measured in child processes, and recorded in JSON files.

`make test` compares the formulas with the recorded figures, `make test-calibration` with figures that it measures.
`RECORD_REFERENCES=1 make test-calibration` measures and records them again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORDED, MEASURED = "recorded", "measured"
BOTH = [RECORDED, pytest.param(MEASURED, marks=[pytest.mark.calibration, pytest.mark.slow])]  # for pytest.fixture
FOLDER = Path(__file__).parents[1] / "plan" / "references"

SAVED = """
import json, logging, sys
logging.disable(logging.WARNING)
import torch
from transformers import AutoConfig, AutoModel

def saved_bytes(model, **inputs):
    "Bytes that autograd saves for the backward pass, without parameters and buffers of the model."
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    seen = {}
    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            seen[storage._cdata] = storage.nbytes(), tensor
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(**inputs)
    return sum(size for size, _ in seen.values())

def embedded(model, rows, columns):
    "Constant embeddings that require a gradient."
    size = rows, columns, model.config.hidden_size
    return torch.ones(*size, dtype=model.dtype).requires_grad_()
"""


def figures(name: str, source: str, measure: Callable[[], Any]) -> Any:
    """Return the figures ``name``: recorded ones, or measured ones (which are recorded on request)."""
    path = FOLDER / f"{name}.json"
    if source == RECORDED:
        return json.loads(path.read_text(encoding="utf-8"))
    measured = measure()
    if os.environ.get("RECORD_REFERENCES"):
        path.write_text(_one_line_each(measured), encoding="utf-8")
    return measured


def _one_line_each(measured: Any) -> str:
    if not isinstance(measured, dict):
        return json.dumps(measured) + "\n"
    lines = (f"{json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in sorted(measured.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def run_script(script: str, given: object) -> Any:
    """Return what a script prints, parsed as JSON; ``given`` is its standard input."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
