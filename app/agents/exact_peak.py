"""Agent: the peak of a user's own model in training, on fake tensors, by torch's own trackers.

Started as ``exact_peak.py REQUEST``, a JSON object (``request`` in ``app/plan/exact.py``). The user's module is
imported, built, wrapped and trained for two steps under FakeTensorMode: no weight takes memory, nothing is computed,
and nothing is sent (a fake process group). The tensors pretend to lie on "cpu", as FSDP's streams need a real GPU for
anything else (torch 2.13); ``gpu_rules`` makes up for what would be otherwise on one. The answer is one JSON object on
the descriptor named by DDPWIZARD_ANSWER_FD; where it fails, ``problem`` says why.
"""

import contextlib
import functools
import importlib
import json
import os
import resource
import sys
import warnings
import weakref
from typing import Any

MEMORY_LIMIT_BYTES = 12 * 2**30
STEPS = 2  # the optimizer has no state before the first has ended
CHUNKS = 8  # of the logits, where the loss is chunked
# Of what autocast computes in fp32 on CUDA, but not on CPU (torch 2.13, autocast_mode.cpp), what trains large models.
WIDE = {"layer_norm", "group_norm", "softmax", "log_softmax", "exp", "pow", "rsqrt", "norm", "sum", "cumsum", "prod"}
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
DROPOUT_AT = 10  # the place of dropout_p among the arguments of multi_head_attention_forward
# The trackers' categories by what they are to a plan.
PARTS = {
    "params": ("Parameter", "Sharded Param", "Buffer"),
    "grads": ("Gradient", "Sharded Grad"),
    "optimizer": ("Optstate", "OptState"),
    "buffers": ("Other", "Inputs", "Unsharded Param", "Unsharded Grad", "All Gather", "Reduce Scatter"),
    "activations": ("Activation", "Temp"),
}


class Refused(Exception):
    """What cannot be tracked, in words for people."""


def called(spec):
    """What ``package.module:function`` returns."""
    module_name, _, path = spec.partition(":")
    function = importlib.import_module(module_name)
    for name in path.split("."):
        function = getattr(function, name)
    return function()  # type: ignore[operator]


def build(request):
    """The user's model: from the factory, or from a config.json by transformers."""
    import torch

    if request["factory"]:
        model = called(request["factory"])
        if not isinstance(model, torch.nn.Module):
            raise TypeError("%s gave a %s, not a torch.nn.Module" % (request["factory"], type(model).__name__))
        return model
    try:
        import transformers
    except ImportError:
        raise Refused("transformers, which builds a config.json, is not installed in " + sys.executable) from None
    if request["config"].startswith("{"):
        config = transformers.AutoConfig.for_model(**json.loads(request["config"]))
    else:
        config = transformers.AutoConfig.from_pretrained(request["config"], local_files_only=True)
    config.use_cache = False
    named = getattr(transformers, (config.architectures or [""])[0], None)
    if named is not None:
        return named._from_config(config, attn_implementation=request["attention"])
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=request["attention"])


def repeated_blocks(model):
    """The modules of one class that a list or a sequence of the model repeats and that hold most; empty for none."""
    import torch

    best, held = [], 0
    for holder in model.modules():
        if not isinstance(holder, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        kinds = {}
        for child in holder.children():
            kinds.setdefault(type(child), []).append(child)
        for children in kinds.values():
            size = sum(p.numel() for child in children for p in child.parameters())
            if len(children) > 1 and size > held:
                best, held = children, size
    return best


def converted(module, fn, recurse=True, done=None):
    """``Module._apply`` for fake tensors, which cannot be swapped in place (torch 2.13): a conversion makes new
    parameters; those that are shared stay so."""
    import torch

    done = {} if done is None else done
    for child in module.children() if recurse else ():
        converted(child, fn, True, done)
    for name, param in module._parameters.items():
        if param is not None:
            new = done.setdefault(id(param), (param, torch.nn.Parameter(fn(param.detach()), param.requires_grad)))[1]
            module._parameters[name] = new
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def undrawn(tensor, *_given, **_named):
    """In place of what draws start values: fake tensors have none."""
    return tensor


def batch_of(model, request):
    """One micro-batch, as positional and named arguments: the user's own, or token ids."""
    import torch

    if request["batch"]:
        given = called(request["batch"])
        if isinstance(given, dict):
            return (), given
        return (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}
    if not any(isinstance(module, torch.nn.Embedding) for module in model.modules()):
        raise Refused("it takes no tokens: give a function that returns its inputs with --batch PKG.MOD:FN")
    tokens = torch.zeros(request["micro_batch"], request["seq_len"], dtype=torch.int64)
    return ((), {"input_ids": tokens, "labels": tokens}) if request["config"] else ((tokens,), {})


def loss_of(output, request):
    """The model's own loss, else cross-entropy over its logits in fp32, else the mean of its output; and the logits,
    None where there are none."""
    import torch
    from torch.nn import functional

    named = output if isinstance(output, dict) else getattr(output, "__dict__", {})
    logits = named.get("logits", output)
    while isinstance(logits, (tuple, list)) and logits:
        logits = logits[0]
    if isinstance(named.get("loss"), torch.Tensor):
        return named["loss"], logits if isinstance(logits, torch.Tensor) else None
    if not isinstance(logits, torch.Tensor):
        raise Refused("its output is a %s: return a loss, or logits" % type(logits).__name__)
    if logits.dim() == 0:
        return logits, None
    if logits.dim() < 3 or request["batch"]:
        return logits.float().mean(), logits
    flat = logits.reshape(-1, logits.shape[-1])
    target = torch.zeros(flat.shape[0], dtype=torch.int64)
    parts = flat.chunk(CHUNKS if request["loss"] == "chunked" else 1)
    return torch.stack([functional.cross_entropy(some.float(), target[: len(some)]) for some in parts]).mean(), logits


def optimizer_of(params, request):
    """torch's optimizer of that name; foreach, as on a GPU, unless it is fused, which makes no copies in its step."""
    import torch

    kind = getattr(torch.optim, OPTIMIZERS.get(request["optimizer"], ""), None)
    if kind is None:
        raise Refused("torch.optim has no %s" % request["optimizer"])
    trained = [p for p in params if p.requires_grad]
    return kind(trained, lr=1e-4, foreach=request["optimizer_impl"] != "fused")


def checkpointed(model, blocks, autocast):
    """Let each of the blocks be computed again in the backward pass, where modes of functions are off."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    if not blocks:
        raise Refused("it has no repeated blocks to compute again")
    chosen = {id(block) for block in blocks}
    again = functools.partial(
        checkpoint_wrapper,
        preserve_rng_state=False,
        context_fn=lambda: (contextlib.nullcontext(), gpu_rules(autocast)),
    )
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=again, check_fn=lambda module: id(module) in chosen)


class SameBuckets:
    """DDP's reducer with the buckets that it made at first: to make new ones it would read what a rank was sent, and
    nothing is sent here. New ones hold as many bytes, in another order."""

    def __init__(self, reducer):
        self._reducer = reducer

    def __getattr__(self, name):
        return getattr(self._reducer, name)

    def _rebuild_buckets(self):
        return False


def ddp(model, request):
    """The model under DDP, and the tensors that it made for itself: its buckets."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    made = []

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            made.extend(weakref.ref(each) for each in tensors(result))
            return result

    def nothing_sent(state, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with Made():
        wrapped = torch.nn.parallel.DistributedDataParallel(
            model, init_sync=False, gradient_as_bucket_view=request["bucket_view"]
        )
    setattr(wrapped, "reducer", SameBuckets(wrapped.reducer))  # noqa: B010 (it takes another type of reducer)
    wrapped.register_comm_hook(None, nothing_sent)
    return wrapped, [each for each in (ref() for ref in made) if each is not None]


def fsdp2(model, blocks, mesh, request):
    """Each block and the rest sharded over the mesh. Unless told otherwise, the rest is whole from forward to backward:
    fully_shard's default for the root."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mixed = request["dtype"].endswith("-mixed")
    policy = MixedPrecisionPolicy(param_dtype=low(request), reduce_dtype=torch.float32) if mixed else None
    shard = functools.partial(fully_shard, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    for block in blocks:
        shard(block, reshard_after_forward=request["reshard"])
    return shard(model) if request["reshard"] else shard(model, reshard_after_forward=False)


def mesh_of(request):
    """The ranks, in one row, or for hybrid sharding in rows that share one copy."""
    from torch.distributed.device_mesh import init_device_mesh

    ranks, size = request["ranks"], request["shard_size"]
    if request["kind"] != "hsdp":
        return init_device_mesh("cpu", (ranks,))
    return init_device_mesh("cpu", (ranks // size, size), mesh_dim_names=("replicate", "shard"))


def low(request):
    """The 16-bit type it computes in."""
    import torch

    return torch.float16 if request["dtype"].startswith("fp16") else torch.bfloat16


def tensors(tree):
    """The tensors in containers of any depth."""
    import torch
    from torch.utils._pytree import tree_flatten

    return [each for each in tree_flatten(tree)[0] if isinstance(each, torch.Tensor)]


def gpu_rules(autocast):
    """A mode in which functions keep on "cpu" what they keep on a GPU: autocast's longer list of what is computed in
    fp32, dropout with masks of one byte, attention that stays fused with dropout in it, and devices that the model's
    code names."""
    import torch
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value).partition(":")[0] in ("cuda", "meta")
        return torch.device("cpu") if named else value

    def wide(value):
        is_low = isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)
        return value.float() if is_low else value

    def dropped(input, p=0.5, training=True, inplace=False, train=True):
        return torch.native_dropout(input, p, True)[0] if p and training and train else input

    class Rules(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", "").strip("_")
            args, kwargs = tuple(map(here, args)), {key: here(value) for key, value in (kwargs or {}).items()}
            if name == "cuda" and args:
                return args[0]
            if name == "grouped_mm" and args[0].dtype == torch.float32 and "offs" in kwargs:
                # Torch has no sizes of it outside of bf16 (2.13): transformers' own operation keeps as much.
                fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
                if fallback is not None and kwargs.get("bias") is None:
                    return fallback(*args[:2], kwargs["offs"])
            if name == "scaled_dot_product_attention":
                args = args[:4] + (0.0,) * (len(args) > 4) + args[5:]
                kwargs.pop("dropout_p", None)
            elif name == "multi_head_attention_forward":  # calls it itself, where no mode is asked
                args = (*args[:DROPOUT_AT], 0.0, *args[DROPOUT_AT + 1 :])
            elif name == "dropout":
                return dropped(*args, **kwargs)
            elif autocast and name in WIDE and torch.is_autocast_enabled("cpu"):
                args, kwargs = tuple(map(wide, args)), {key: wide(value) for key, value in kwargs.items()}
            return func(*args, **kwargs)

    return Rules()


def tracker_class(base):
    """A tracker of torch's that keeps the highest of each moment (those of ``Candidate.peak_phase``: the loss with the
    forward pass before it), and sets autocast's 16-bit copies of weights apart. It has no figures for each module,
    which would take most of its time."""
    import torch

    class Tracker(base):
        def __init__(self, *known, copies=None):
            super().__init__(*known)
            self.highest, self.moment = {}, "loss"
            self.copies = copies  # the category of copies of weights

        def _update_peak_stats(self, peak_state):
            for now in self._curr_mem_snap.values():  # of one device: all tensors lie on "cpu"
                if now["Total"] > self.highest.get(self.moment, {}).get("Total", 0):
                    self.highest[self.moment] = dict(now)

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = super().__torch_dispatch__(func, types, args, kwargs or {})
            if self.copies and func is torch.ops.aten._to_copy.default and isinstance(args[0], torch.nn.Parameter):
                self._update_and_maybe_create_winfos(result, self.copies)
            return result

    return Tracker


def track(request):
    """The peak of two steps by category, and what a rank keeps between two steps."""
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode

    if request["kind"] != "single":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=request["ranks"], store=FakeStore())
    mesh = mesh_of(request) if request["kind"] in ("fsdp2", "hsdp") else None
    autocast = mesh is None and request["dtype"].endswith("-mixed")
    setattr(torch.nn.Module, "_apply", converted)  # noqa: B010 (with one argument more)
    setattr(torch.nn.init, "_no_grad_trunc_normal_", undrawn)  # noqa: B010 (2.13 reads the values it draws)
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_rules(autocast):
        model = build(request).train()
        if request["dtype"].endswith("-pure"):
            model.to(low(request))
        batch = batch_of(model, request)
        blocks = repeated_blocks(model)
        block = type(blocks[0]).__name__ if blocks else ""
        if request["recompute"]:
            checkpointed(model, blocks, autocast)
            blocks = repeated_blocks(model)
        if mesh is None:
            model, optimizer, tracker, shards = whole(model, batch, request)
        else:
            model, optimizer, tracker, shards = sharded(model, blocks, mesh, batch, request)
        running = torch.autocast("cpu", dtype=low(request)) if autocast else contextlib.nullcontext()
        with tracker:
            kept = train(model, optimizer, tracker, shards, batch, running, request)
    return {"moments": told(tracker.highest, kept["optimizer"]), "kept": kept, "block": block, "blocks": len(blocks)}


class NoHook:
    """In place of the handle of a hook."""

    def remove(self):
        pass


def whole(model, batch, request):
    """The model on each rank, its optimizer, and a tracker that knows both."""
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType

    buckets = []
    if request["kind"] == "ddp":
        model, buckets = ddp(model, request)
    optimizer = optimizer_of(model.parameters(), request)
    tracker = tracker_class(MemTracker)(copies=_MemRefType.OTH)
    for param in model.parameters():
        if not param.requires_grad:  # MemTracker would put a hook on its gradient
            tracker._param_to_grad_hook_handles[param] = (NoHook(), NoHook())
    tracker.track_external(model, optimizer, *buckets, *tensors(batch))
    return model, optimizer, tracker, []


def sharded(model, blocks, mesh, batch, request):
    """The model in shards, an optimizer of its local tensors, and a tracker that knows both.

    The local tensors are the shards' own memory. Stepped as DTensors, the trackers count copies that are never made
    (torch 2.13, foreach and fused).
    """
    import torch
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    model = fsdp2(model, blocks, mesh, request)
    shards = [(p, torch.nn.Parameter(p.to_local(), p.requires_grad)) for p in model.parameters()]
    optimizer = optimizer_of([local for _, local in shards], request)
    tracker = tracker_class(FSDPMemTracker)(model, optimizer)
    tracker.track_inputs(batch)
    return model, optimizer, tracker, shards


def train(model, optimizer, tracker, shards, batch, running, request):
    """Two steps; bytes of parameters, gradients and optimizer state of a rank at the end."""
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
                    loss, logits = loss_of(output, request)
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
        states = [each for each in tensors(list(optimizer.state.values())) if each.dim()]
        kept = {
            "params": bytes_of(params),
            "grads": bytes_of([p.grad for p in params if p.grad is not None]),
            "optimizer": bytes_of(states),
        }
        optimizer.zero_grad()
        for param, _ in shards:
            param.grad = None
    return kept


def bytes_of(some):
    """The bytes of tensors' elements."""
    return sum(each.numel() * each.element_size() for each in some)


def told(highest, state_bytes):
    """The highest of each moment as the tracker saw it, by its own categories and by what they are to a plan."""
    moments = {}
    for moment, seen in highest.items():
        sizes = {getattr(kind, "value", kind): size for kind, size in seen.items()}
        total = sizes.pop("Total")
        parts = {part: sum(sizes.get(name, 0) for name in names) for part, names in PARTS.items()}
        parts["temporaries"] = max(0, parts["optimizer"] - state_bytes)  # a step's own are tracked as states
        parts["optimizer"] -= parts["temporaries"]
        moments[moment] = {"total": total, "categories": sizes, "parts": parts}
    return moments


def no_network(event, args):
    """An audit hook that says what was asked for instead of letting it be fetched."""
    if event == "socket.getaddrinfo" or (event == "socket.connect" and not isinstance(args[1], (str, bytes))):
        raise Refused("it asks for %s over the network" % (args[0] if event == "socket.getaddrinfo" else args[1][0]))


def problem(error):
    """One line on what went wrong."""
    line = "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[0][:300])
    if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return "its code reads a value or a size that only real tensors have (%s)" % line
    if isinstance(error, ImportError) and "torch" in str(error):
        return "this torch lacks what tracking needs, 2.13 has it (%s)" % line
    return line


def main():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    warnings.simplefilter("ignore")
    sys.path.insert(0, os.getcwd())
    sys.addaudithook(no_network)
    answer = {}
    try:
        answer.update(track(json.loads(sys.argv[1])))
    except Refused as refusal:
        answer["problem"] = str(refusal)
    except BaseException as error:  # whatever the user's code does, sys.exit too
        answer["problem"] = problem(error)
    answer["used"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with os.fdopen(int(os.environ["DDPWIZARD_ANSWER_FD"]), "w") as out:
        json.dump(answer, out)


if __name__ == "__main__":
    main()
