"""What autograd keeps of transformers' own modules, counted in a process of its own."""

import json
import subprocess
import sys
from typing import Any

SAVED = """
import json, logging, sys
logging.disable(logging.WARNING)
import torch
from transformers import AutoConfig, AutoModel

def saved_bytes(model, **inputs):
    "What autograd keeps for the backward pass, without what the model holds itself."
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
    "Made-up embeddings, which have a gradient."
    size = rows, columns, model.config.hidden_size
    return torch.ones(*size, dtype=model.dtype).requires_grad_()
"""


def answer(script: str, given: object) -> Any:
    """What a script prints, as JSON; ``given`` is on its standard input."""
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
