"""Two training steps: the loss, the optimizer, and what a rank keeps at the end."""

import contextlib

from .protocol import RequestRefused
from .tensors import flatten_tensors, total_bytes

STEPS = 2  # the optimizer has no state before the first step has ended
CHUNKS = 8  # of the logits, for a chunked loss
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}


def make_optimizer(params, request):
    """Return torch's optimizer of that name; foreach, as on a GPU, unless it is fused, which makes no copies in its
    step.
    """
    import torch

    kind = getattr(torch.optim, OPTIMIZERS.get(request["optimizer"], ""), None)
    if kind is None:
        raise RequestRefused("torch.optim has no %s" % request["optimizer"])
    trained = [p for p in params if p.requires_grad]
    return kind(trained, lr=1e-4, foreach=request["optimizer_impl"] != "fused")


def train_two_steps(model, optimizer, tracker, shards, batch, running, request):
    """Train two steps; return the bytes of parameters, gradients and optimizer state of a rank at the end."""
    args, kwargs = batch

    def backward(grad):
        tracker.moment = "backward"

    kept = {}
    for step in range(STEPS):
        last = min(request["grad_accum"], 2) if step else 1
        for micro in range(last):
            tracker.reset_mod_stats()
            syncs = micro == last - 1 or not hasattr(model, "no_sync")
            with contextlib.nullcontext() if syncs else model.no_sync():
                tracker.moment = "loss"
                with running:
                    output = model(*args, **kwargs)
                    loss, logits = compute_loss(output, request)
                if logits is not None and logits.requires_grad:
                    logits.register_hook(backward)
                else:
                    tracker.moment = "backward"
                loss.backward()
            del output, loss, logits
        tracker.moment = "step"
        for param, local in shards:
            local.grad = param.grad.to_local() if param.grad is not None else None
        optimizer.step()
        params = [local for _, local in shards] or list(model.parameters())
        states = [each for each in flatten_tensors(list(optimizer.state.values())) if each.dim()]
        kept = {
            "params": total_bytes(params),
            "grads": total_bytes([p.grad for p in params if p.grad is not None]),
            "optimizer": total_bytes(states),
        }
        optimizer.zero_grad()
        for param, _ in shards:
            param.grad = None
    return kept


def compute_loss(output, request):
    """Return the model's own loss, or cross-entropy over its logits in fp32, or the mean of its output; and the logits
    or None.
    """
    import torch
    from torch.nn import functional

    named = output if isinstance(output, dict) else getattr(output, "__dict__", {})
    logits = named.get("logits", output)
    while isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if isinstance(named.get("loss"), torch.Tensor):
        return named["loss"], logits if isinstance(logits, torch.Tensor) else None
    if not isinstance(logits, torch.Tensor):
        raise RequestRefused("its output is a %s: return a loss, or logits" % type(logits).__name__)
    if logits.dim() == 0:
        return logits, None
    if logits.dim() < 3 or request["batch"]:
        return logits.float().mean(), logits
    flat = logits.reshape(-1, logits.shape[-1])
    target = torch.zeros(flat.shape[0], dtype=torch.int64)
    parts = flat.chunk(CHUNKS if request["loss"] == "chunked" else 1)
    return torch.stack([functional.cross_entropy(some.float(), target[: len(some)]) for some in parts]).mean(), logits
