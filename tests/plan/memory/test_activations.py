"""Formulas of saved tensors, logits and temporaries against bytes that autograd saves for blocks of transformers, and
against what losses and optimizer steps allocate in torch.
"""

from typing import Any, NamedTuple

import msgspec
import pytest
from ddpwizard.app.plan.memory import activations, block_tensors, temporaries
from ddpwizard.app.plan.memory.formula import total_bytes
from ddpwizard.app.plan.memory.model_states import model_states, unsharded_grad_bytes
from ddpwizard.app.plan.model import hf_config
from ddpwizard.app.plan.spec import fill_defaults
from ddpwizard.app.plan.types import Lora, Model, Strategy, TrainingOptions, TrainingSetup
from helpers.reference_figures import BOTH, SAVED, figures, run_script

HIDDEN, TOKENS, SEQ_LEN = 512, 1024, 512
SIZES = {"hidden_size": HIDDEN, "num_attention_heads": 8, "vocab_size": 64}
GATED = {"intermediate_size": 1408, "num_key_value_heads": 8}
PLAIN = {"intermediate_size": 2048, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LLAMA = {"model_type": "llama", **SIZES, **GATED}
QUERY_VALUE = ["q_proj", "v_proj"]
ALL = [*QUERY_VALUE, "k_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class Case(NamedTuple):
    """A block: transformers' config, and how it is trained."""

    config: dict[str, Any]
    train: TrainingOptions
    adapted: tuple[str, ...] = ()


def _trained(**given: Any) -> TrainingOptions:
    return TrainingOptions(
        **{"dtype": "bf16-pure", "micro_batch": TOKENS // SEQ_LEN, "seq_len": SEQ_LEN, "dropout": 0.0} | given
    )


CASES = {
    "llama": Case(LLAMA, _trained()),
    "llama in fp32": Case(LLAMA, _trained(dtype="fp32")),
    "llama, eager attention": Case(LLAMA, _trained(attention="eager")),
    "llama, eager attention in fp32": Case(LLAMA, _trained(attention="eager", dtype="fp32")),
    "qwen": Case(LLAMA | {"model_type": "qwen2"}, _trained()),
    "mixtral": Case(LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}, _trained()),
    "adapters on queries and values": Case(LLAMA, _trained(lora=Lora(r=8)), tuple(QUERY_VALUE)),
    "adapters on all": Case(LLAMA, _trained(lora=Lora(r=8, target="all-linear")), tuple(ALL)),
    "adapters in fp32": Case(LLAMA, _trained(lora=Lora(r=8), dtype="fp32"), tuple(QUERY_VALUE)),
    "bert": Case({"model_type": "bert", **SIZES, **PLAIN}, _trained()),
    "bert, eager attention in fp32": Case(
        {"model_type": "bert", **SIZES, **PLAIN}, _trained(attention="eager", dtype="fp32")
    ),
    "opt": Case(
        {"model_type": "opt", **SIZES, "ffn_dim": 2048, "dropout": 0.0, "max_position_embeddings": SEQ_LEN}, _trained()
    ),
    "gpt2": Case(
        {
            "model_type": "gpt2",
            "n_embd": HIDDEN,
            "n_head": 8,
            "vocab_size": 64,
            "n_positions": SEQ_LEN,
            "use_cache": False,
        }
        | {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
        _trained(),
    ),
}
COUNT = """
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

class Adapted(nn.Module):
    "A frozen linear layer with an adapter after a dropout, whose mask has one byte an element, as on a GPU."
    def __init__(self, base):
        super().__init__()
        self.base, like = base, {"dtype": base.weight.dtype}
        self.down = nn.Parameter(torch.empty(8, base.in_features, **like))
        self.up = nn.Parameter(torch.empty(base.out_features, 8, **like))
    def forward(self, x):
        dropped = torch.native_dropout(x, 0.05, True)[0]
        return self.base(x) + nn.functional.linear(nn.functional.linear(dropped, self.down), self.up)

def kept(case, layers):
    dtype = torch.float32 if case["train"]["dtype"] == "fp32" else torch.bfloat16
    named = "n_layer" if case["config"]["model_type"] == "gpt2" else "num_hidden_layers"
    config = AutoConfig.for_model(**{**case["config"], named: layers})
    config.word_embed_proj_dim = config.hidden_size
    config._attn_implementation = "eager" if case["train"].get("attention") == "eager" else "sdpa"
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModel.from_config(config, dtype=dtype).train()
        if case["adapted"]:
            model.requires_grad_(False)
            for parent in list(model.modules()):
                for name, child in list(parent.named_children()):
                    if name in case["adapted"]:
                        setattr(parent, name, Adapted(child))
        return saved_bytes(model, inputs_embeds=embedded(model, case["train"]["micro_batch"], case["train"]["seq_len"]))

json.dump({name: kept(case, 3) - kept(case, 2) for name, case in json.load(sys.stdin).items()}, sys.stdout)
"""


@pytest.fixture(scope="module", params=BOTH)
def kept(request: pytest.FixtureRequest) -> dict[str, int]:
    cases = {name: msgspec.to_builtins(case._asdict()) for name, case in CASES.items()}
    return figures("saved_by_block", request.param, lambda: run_script(SAVED + COUNT, cases))


@pytest.mark.parametrize("name", CASES)
def test_saved_bytes_of_a_block_match_transformers(name: str, kept: dict[str, int]) -> None:
    case = CASES[name]
    model, _ = hf_config.model_from_config({"num_hidden_layers": 2, "n_layer": 2} | case.config)
    setting = fill_defaults(TrainingSetup(model=model, train=case.train, gpus=1, strategy=Strategy(kind="single")))[0]
    formula = total_bytes(block_tensors.block_terms(setting))
    assert formula == pytest.approx(kept[name], rel=0.05)


SPIKES = """
import contextlib, json, sys, weakref
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

class Live(TorchDispatchMode):
    "Bytes of the storages that were made under it and are still there, and the most there were."
    def __init__(self):
        super().__init__()
        self.now, self.peak, self.seen = 0, 0, weakref.WeakSet()
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self.note, made)
        return made
    def note(self, tensor):
        storage = tensor.untyped_storage()
        if storage in self.seen:
            return
        self.seen.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.gone, size)
    def gone(self, size):
        self.now -= size

def loss(tokens, vocab, chunks, dtype):
    with FakeTensorMode():
        logits = [torch.empty(tokens // chunks, vocab, dtype=dtype, requires_grad=True) for _ in range(chunks)]
        targets = torch.zeros(tokens // chunks, dtype=torch.long)
        with Live() as live:
            shares = [logit * 1 for logit in logits]
            whole = sum(F.cross_entropy(share.float(), targets, reduction="sum") for share in shares)
            del shares
            whole.backward()
    return live.peak

def step(make):
    with FakeTensorMode():
        weights = [torch.empty(1000, 1000, requires_grad=True) for _ in range(4)]
        for weight in weights:
            weight.grad = torch.empty_like(weight)
        optimizer = make(weights)
        with Live() as live:
            optimizer.step()
            live.peak = before = live.now
            optimizer.step()
    tensors = [each for state in optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
    states = sum(each.untyped_storage().nbytes() for each in tensors)
    return [states / 16e6, (live.peak - before) / 16e6]

def flat():
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    sizes = []
    for waits in (False, True):
        base, adapter = torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False)
        base.requires_grad_(False)
        block = FullyShardedDataParallel(torch.nn.Sequential(base, adapter), use_orig_params=True,
                                         device_id=torch.device("cpu"))
        with block.no_sync() if waits else contextlib.nullcontext():
            block(torch.ones(2, 64)).sum().backward()
        sizes.append(block._handle.flat_param.grad.numel())
    return sizes

def waiting():
    "Bytes per weight of the gradients after a micro-batch that is not split yet."
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
    model = torch.nn.Linear(64, 64, bias=False)
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    first = FullyShardedDataParallel(model, mixed_precision=half, use_orig_params=True, device_id=torch.device("cpu"))
    with first.no_sync():
        first(torch.ones(2, 64)).sum().backward()
    model = torch.nn.Linear(64, 64, bias=False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)), mp_policy=policy)
    model.set_requires_gradient_sync(False)
    model(torch.ones(2, 64)).sum().backward()
    second = model._get_fsdp_state()._fsdp_param_group.fsdp_params[0].unsharded_accumulated_grad
    return [first._handle.flat_param.grad.nbytes / 64**2, second.nbytes / 64**2]

tokens, vocab = 512, 4000
json.dump({
    "eager": loss(tokens, vocab, 1, torch.bfloat16) / (tokens * vocab),
    "chunked": loss(tokens, vocab, 8, torch.bfloat16) / (tokens * vocab),
    "adamw": step(lambda weights: torch.optim.AdamW(weights, foreach=True)),
    "sgd": step(lambda weights: torch.optim.SGD(weights, foreach=True)),
    "muon": step(torch.optim.Muon),
    "flat": flat(),
    "waiting": waiting(),
}, sys.stdout)
"""


@pytest.fixture(scope="module", params=BOTH)
def spikes(request: pytest.FixtureRequest) -> dict[str, Any]:
    return figures("temporaries", request.param, lambda: run_script(SPIKES, None))


def _one(**train: Any) -> TrainingSetup:
    model = Model(params=4e6, layers=1, hidden=512, heads=8, intermediate=2048, vocab=4000, mlp="gelu")
    return fill_defaults(TrainingSetup(model=model, train=_trained(**train), gpus=4, strategy=Strategy(kind="fsdp2")))[
        0
    ]


@pytest.mark.parametrize("loss", ["eager", "chunked"])
def test_loss_copies_match_torch(loss: Any, spikes: dict[str, Any]) -> None:
    """Of logits in 16 bit that nothing else holds; in chunks they are there themselves."""
    setting = _one(loss=loss, keeps_logits=False)
    each = total_bytes(activations.logits_terms(setting)) / (TOKENS * 4000)
    assert each == pytest.approx(spikes[loss], rel=0.1)


def test_optimizer_step_copies_match_torch(spikes: dict[str, Any]) -> None:
    """Of fp32 weights; SGD neither keeps nor makes one, Muon keeps one."""
    assert spikes["adamw"] == pytest.approx([2, temporaries.STEP_COPIES], rel=0.01)
    assert spikes["sgd"] == [0, 0]
    assert spikes["muon"][0] == pytest.approx(1, rel=0.01)


def test_fsdp1_gradient_covers_frozen_weights_of_a_flat_parameter(spikes: dict[str, Any]) -> None:
    """FSDP1 over 4 ranks: the gradient covers frozen weights too, and is not split while it is accumulated."""
    whole = 2 * 64 * 64
    assert spikes["flat"] == [whole / 4, whole]


def test_accumulated_unsharded_gradients_match_torch(spikes: dict[str, Any]) -> None:
    """FSDP1 keeps them in the precision of the pass, FSDP2 in that in which they are reduced; each whole."""
    kinds = (Strategy(kind="fsdp1"), Strategy(kind="fsdp2", sync_each_batch=False))
    asked = [
        msgspec.structs.replace(_one(dtype="bf16-mixed", grad_accum=2), strategy=strategy, gpus=4) for strategy in kinds
    ]
    assert [unsharded_grad_bytes(each) for each in asked] == spikes["waiting"] == [2, 4]
    assert [total_bytes(model_states(each).grads) for each in asked] == [2 * 4e6, 4 * 4e6]
    at_once = msgspec.structs.replace(asked[1], strategy=Strategy(kind="fsdp2"))
    assert (unsharded_grad_bytes(at_once), total_bytes(model_states(at_once).grads)) == (0, 4e6)


COMPILED = """
given = json.load(sys.stdin)

def kept(layers):
    "With the partition that torch.compile makes of forward and backward pass, but no code made for it."
    torch._dynamo.reset()
    config = AutoConfig.for_model(**given, num_hidden_layers=layers, use_cache=False)
    model = AutoModel.from_config(config, dtype=torch.bfloat16).train()
    for layer in model.layers:
        layer.compile(backend="aot_eager_decomp_partition")
    return saved_bytes(model, inputs_embeds=embedded(model, 2, 256))

json.dump(kept(3) - kept(2), sys.stdout)
"""


@pytest.mark.parametrize("source", BOTH)
def test_saved_bytes_of_a_compiled_block_match_the_partitioner(source: str) -> None:
    config = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4}
    config |= {"intermediate_size": 704, "vocab_size": 64}
    model, _ = hf_config.model_from_config({"num_hidden_layers": 2} | config)
    train = _trained(seq_len=256, compile=True)
    setting = fill_defaults(TrainingSetup(model=model, train=train, gpus=1, strategy=Strategy(kind="single")))[0]
    kept = figures("saved_by_compiled_block", source, lambda: run_script(SAVED + COMPILED, config))
    assert block_tensors.block_activation_bytes(setting) == pytest.approx(kept, rel=0.02)
