"""Train a model under torch's memory trackers: the highest peak of each phase, by category."""

import contextlib

from .building import build_model, make_batch, repeated_blocks
from .fake_tensors import apply_to_fakes, gpu_rules, skip_init
from .tensors import autocast_dtype, flatten_tensors
from .training import make_optimizer, train_two_steps
from .wrapping import apply_checkpointing, make_mesh, wrap_ddp, wrap_fsdp2

# The trackers' categories by their names in a plan.
PARTS = {
    "params": ("Parameter", "Sharded Param", "Buffer"),
    "grads": ("Gradient", "Sharded Grad"),
    "optimizer": ("Optstate", "OptState"),
    "buffers": ("Other", "Inputs", "Unsharded Param", "Unsharded Grad", "All Gather", "Reduce Scatter"),
    "activations": ("Activation", "Temp"),
}


def track(request):
    """Return the peak of two steps by category, and what a rank keeps between two steps."""
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode

    if request["kind"] != "single":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=request["ranks"], store=FakeStore())
    mesh = make_mesh(request) if request["kind"] in ("fsdp2", "hsdp") else None
    autocast = mesh is None and request["dtype"].endswith("-mixed")
    setattr(torch.nn.Module, "_apply", apply_to_fakes)  # noqa: B010 (with one more argument)
    setattr(torch.nn.init, "_no_grad_trunc_normal_", skip_init)  # noqa: B010 (2.13 reads the values it draws)
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_rules(autocast):
        model = build_model(request).train()
        if request["dtype"].endswith("-pure"):
            model.to(autocast_dtype(request))
        batch = make_batch(model, request)
        blocks = repeated_blocks(model)
        block = type(blocks[0]).__name__ if blocks else ""
        if request["act_ckpt"] == "full":
            apply_checkpointing(model, blocks, autocast)
            blocks = repeated_blocks(model)
        if mesh is None:
            model, optimizer, tracker, shards = replicated(model, batch, request)
        else:
            model, optimizer, tracker, shards = sharded(model, blocks, mesh, batch, request)
        running = torch.autocast("cpu", dtype=autocast_dtype(request)) if autocast else contextlib.nullcontext()
        with tracker:
            kept = train_two_steps(model, optimizer, tracker, shards, batch, running, request)
    return {
        "moments": peak_by_category(tracker.highest, kept["optimizer"]),
        "kept": kept,
        "block": block,
        "blocks": len(blocks),
    }


def replicated(model, batch, request):
    """Return the model as each rank holds it, its optimizer, and a tracker of both."""
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType

    buckets = []
    if request["kind"] == "ddp":
        model, buckets = wrap_ddp(model, request)
    optimizer = make_optimizer(model.parameters(), request)
    tracker = tracker_class(MemTracker)(copies=_MemRefType.OTH)
    for param in model.parameters():
        if not param.requires_grad:  # MemTracker would register a hook on its gradient
            tracker._param_to_grad_hook_handles[param] = (NoHook(), NoHook())
    tracker.track_external(model, optimizer, *buckets, *flatten_tensors(batch))
    return model, optimizer, tracker, []


class NoHook:
    """Replacement for the handle of a hook."""

    def remove(self):
        pass


def sharded(model, blocks, mesh, batch, request):
    """Return the sharded model, an optimizer of its local tensors, and a tracker of both.

    The local tensors are the shards' own memory. With DTensors the trackers count copies in the optimizer step that do
    not exist (torch 2.13, foreach and fused).
    """
    import torch
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    model = wrap_fsdp2(model, blocks, mesh, request)
    shards = [(p, torch.nn.Parameter(p.to_local(), p.requires_grad)) for p in model.parameters()]
    optimizer = make_optimizer([local for _, local in shards], request)
    tracker = tracker_class(FSDPMemTracker)(model, optimizer)
    tracker.track_inputs(batch)
    return model, optimizer, tracker, shards


def tracker_class(base):
    """Return a subclass of torch's tracker that records the highest peak of each phase.

    Phases are those of ``Candidate.peak_phase`` (the loss includes the forward pass). Autocast's 16-bit copies of
    weights are a category of their own. There are no figures per module, which would take most of the time.
    """
    import torch

    class Tracker(base):
        def __init__(self, *known, copies=None):
            super().__init__(*known)
            self.highest, self.moment = {}, "loss"
            self.copies = copies  # the category of copies of weights

        def _update_peak_stats(self, peak_state):
            for now in self._curr_mem_snap.values():  # of one device: all tensors are on "cpu"
                if now["Total"] > self.highest.get(self.moment, {}).get("Total", 0):
                    self.highest[self.moment] = dict(now)

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = super().__torch_dispatch__(func, types, args, kwargs or {})
            if self.copies and func is torch.ops.aten._to_copy.default and isinstance(args[0], torch.nn.Parameter):
                self._update_and_maybe_create_winfos(result, self.copies)
            return result

    return Tracker


def peak_by_category(highest, state_bytes):
    """Return the highest peak of each phase by the tracker's categories and by those of a plan."""
    moments = {}
    for moment, seen in highest.items():
        sizes = {getattr(kind, "value", kind): size for kind, size in seen.items()}
        total = sizes.pop("Total")
        parts = {part: sum(sizes.get(name, 0) for name in names) for part, names in PARTS.items()}
        parts["temporaries"] = max(0, parts["optimizer"] - state_bytes)  # temporaries of a step are tracked as states
        parts["optimizer"] -= parts["temporaries"]
        moments[moment] = {"total": total, "categories": sizes, "parts": parts}
    return moments
