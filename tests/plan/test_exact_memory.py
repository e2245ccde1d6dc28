"""Exact mode: what torch's trackers see of a user's own module, against what is known by hand and of real ranks."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan import exact_comparison, exact_memory, spec
from ddpwizard.app.plan.memory.peak import estimate_candidate
from ddpwizard.app.plan.model_source import ModelSource
from ddpwizard.app.plan.types import Candidate, Model, PlanRow, Strategy, TrainingOptions, TrainingSetup
from ddpwizard.app.text.units import GIB
from helpers.command import ddpwizard
from helpers.planned import plan_candidates

HELPERS = Path(__file__).parents[1] / "helpers"
BLOCK = 2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176
TINY = Model(
    params=3 * BLOCK + 2 * 501 * 64 + 64, layers=3, hidden=64, heads=4, kv_heads=2, intermediate=176, vocab=501
)
DDP, FSDP2 = Strategy(kind="ddp"), Strategy(kind="fsdp2", reshard_after_forward=True)
SINGLE = Strategy(kind="single")


def setting(strategy: Strategy, gpus: int = 2, **train: object) -> TrainingSetup:
    how = msgspec.convert({"dtype": "fp32", "micro_batch": 2, "seq_len": 32, **train}, TrainingOptions)
    return spec.fill_defaults(TrainingSetup(model=TINY, train=how, gpus=gpus, strategy=strategy))[0]


def row(asked: TrainingSetup) -> PlanRow:
    found = msgspec.structs.replace(estimate_candidate(asked), recompute=asked.train.act_ckpt or "none")
    return PlanRow(found, asked)


def source(directory: Path, factory: str = "llama:tiny", batch: str = "") -> exact_memory.ModuleSource:
    return exact_memory.resolve_module_source(
        sys.executable, ModelSource(TINY, [], factory, directory=directory), batch
    )


def tracked(
    asked: TrainingSetup, directory: Path = HELPERS, factory: str = "llama:tiny"
) -> exact_memory.TrackedStrategy:
    return asyncio.run(exact_memory.track_candidate(row(asked), source(directory, factory)))


def shard_bytes(ranks: int) -> int:
    """Elements that rank 0 keeps of every parameter of ``llama.tiny`` in fp32: its rows, rounded up."""
    shapes = [(501, 64), (501, 64), (64,)]
    shapes += 3 * [(64,), (64,), (64, 64), (64, 64), (32, 64), (32, 64), (176, 64), (176, 64), (64, 176)]
    return sum(4 * -(-shape[0] // ranks) * (shape[1] if len(shape) > 1 else 1) for shape in shapes)


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        pytest.param(DDP, 4, id="ddp", marks=pytest.mark.calibration),
        pytest.param(FSDP2, 4, id="fsdp2", marks=pytest.mark.calibration),
    ],
)
def test_states_are_exact_and_the_parts_add_up(strategy: Strategy, ranks: int) -> None:
    seen = tracked(setting(strategy, ranks))
    assert not seen.problem
    shards = shard_bytes(1 if strategy is DDP else ranks)
    assert seen.state_bytes == exact_memory.SteadyState(shards, shards, 2 * shards)
    assert seen.tracked_bytes is not None
    assert seen.tracked_peak_bytes_per_gpu == sum(msgspec.structs.astuple(seen.tracked_bytes))
    assert sum(seen.categories_bytes.values()) == seen.tracked_peak_bytes_per_gpu
    assert seen.tracked_bytes.params == shards
    # The step: all states, one square root of foreach AdamW, DDP's buckets, AdamW's 30 counters; the tokens.
    buckets = shards if strategy is DDP else 0
    assert seen.tracked_phase_peaks_bytes["step"] == 5 * shards + buckets + 30 * 4 + 2 * 32 * 8


@pytest.mark.jobs
@pytest.mark.slow
def test_command_shows_both_figures_and_the_import() -> None:
    arguments = ["--gpus", "1", "--gpu-memory", "24GB", "--seq-len", "32", "--exact"]
    done = ddpwizard("plan", "--model", "llama:tiny", *arguments, "--python", sys.executable, cwd=HELPERS, limit_s=300)
    assert done.returncode == 0, done.stderr
    assert f"importing llama in {HELPERS} with {sys.executable} to track " in done.stderr
    lines = done.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if "allocates at the peak of single GPU" in line)
    assert lines[head + 1].split()[-4:] == ["formula", "tracked", "off", "by"]
    assert lines[head + 8].split()[0] == "total"
    assert lines[head + 8].endswith("%")
    assert "the 3 Block modules" in done.stdout


MODELS = """
import time, socket
import torch
from torch import nn

def downloads(): return socket.create_connection(("huggingface.co", 443), timeout=5)
def hungry(): return bytearray(40 * 2**30)
def never():
    while True: time.sleep(0.1)

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
    def forward(self, tokens):
        x = self.table(tokens)
        return x if x.sum().item() > 0 else -x

def reads(): return Reads()

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, device="cuda").requires_grad_(False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.1)) for _ in range(2))
        self.last = nn.Linear(8 * 16 * 16, 10)
    def forward(self, x):
        x = self.first(x.to("cuda"))
        for block in self.blocks:
            x = block(x)
        return self.last(x.flatten(1))

def odd(): return Odd().cuda()
def picture(): return torch.zeros(5, 3, 16, 16)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "message"),
    [
        pytest.param("downloads", "it asks for huggingface.co over the network", marks=pytest.mark.calibration),
        pytest.param("hungry", "MemoryError", marks=pytest.mark.calibration),
        ("never", "did not answer within 5 s"),
        ("reads", "reads a value or a size"),
    ],
)
def test_untrackable_module_is_reported_in_one_line(
    factory: str, message: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if factory == "never":
        monkeypatch.setattr(exact_memory, "LIMIT_S", 5.0)
    seen = tracked(setting(SINGLE, 1), models, f"models:{factory}")
    assert message in seen.problem
    assert "\n" not in seen.problem
    assert any(message in line for line in exact_comparison.render_comparison([seen]))


@pytest.mark.jobs
@pytest.mark.slow
def test_own_batch_with_frozen_weights_and_dropout(models: Path) -> None:
    asked = setting(DDP, 2, act_ckpt="full", dtype="bf16-mixed")
    seen = asyncio.run(exact_memory.track_candidate(row(asked), source(models, "models:odd", batch="models:picture")))
    assert not seen.problem
    frozen, trained = 3 * 8 * 9 + 8, 2 * (8 * 8 * 9 + 8) + 8 * 16 * 16 * 10 + 10
    assert seen.state_bytes == exact_memory.SteadyState(4 * (frozen + trained), 4 * trained, 8 * trained)


CONFIG = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 300}"""


@pytest.mark.calibration
@pytest.mark.jobs
@pytest.mark.slow
def test_a_config_is_built_by_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG)
    here = exact_memory.resolve_module_source(
        sys.executable, ModelSource(TINY, [], config=str(tmp_path), directory=tmp_path)
    )
    seen = asyncio.run(exact_memory.track_candidate(row(setting(FSDP2, 2, act_ckpt="full", dtype="bf16-mixed")), here))
    assert not seen.problem
    elements = 2 * 300 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    assert seen.state_bytes == exact_memory.SteadyState(2 * elements, 2 * elements, 4 * elements)
    assert any("the 2 LlamaDecoderLayer modules" in note for note in seen.notes)


# The same model on real gloo ranks, in real memory, under torch's trackers: DDP's own buckets, FSDP's own gathers.
REAL = """
import gc, json, sys
import torch, torch.distributed as dist
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
import llama
dist.init_process_group("gloo")
kind, notes = sys.argv[1:]
model, tokens = llama.tiny(), torch.zeros(2, 32, dtype=torch.int64)
sharded = kind == "fsdp2"
if sharded:
    for block in model.blocks:
        fully_shard(block, mesh=init_device_mesh("cpu", (2,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
else:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
tracker = FSDPMemTracker(model, optimizer) if sharded else MemTracker()
if sharded:
    tracker.track_inputs((tokens,))
else:
    tracker.track_external(model, optimizer, tokens)
with tracker:
    for step in range(3):
        tracker.reset_mod_stats()
        logits = model(tokens)
        cross_entropy(logits.float().view(-1, 501), tokens.view(-1)).backward()
        del logits
        if step < 2:
            optimizer.step()
            optimizer.zero_grad()
peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
local = lambda t: t.to_local() if hasattr(t, "to_local") else t
size = lambda some: sum(local(t).numel() * 4 for t in some)
states = [v for s in optimizer.state.values() for v in s.values() if v.dim()]
params = list(model.parameters())
answer = {"peak": peak, "kept": [size(params), size(p.grad for p in params), size(states)]}
if dist.get_rank() == 0:
    json.dump(answer, open(notes, "w"))
# gloo gives up an answer that has come where its sender is gone already: leave together, by the store.
store = dist.distributed_c10d._get_default_store()
store.set(f"done {dist.get_rank()}", "")
store.wait(["done 0", "done 1"])
del model, optimizer, tracker, states, params  # what still holds the group, in cycles, can abort the process at its end
gc.collect()
dist.destroy_process_group()
"""


@pytest.mark.calibration
@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize("strategy", [DDP, FSDP2], ids=lambda strategy: strategy.kind)
def test_real_ranks_have_the_same_memory(strategy: Strategy, tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text(REAL)
    notes = tmp_path / "notes.json"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*launch, str(tmp_path / "real.py"), strategy.kind, str(notes)],
        cwd=HELPERS,
        check=True,
        timeout=300,
        env={"PYTHONPATH": str(HELPERS), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    real = json.loads(notes.read_text())
    seen = tracked(setting(strategy))
    assert seen.state_bytes is not None
    shards = shard_bytes(1 if strategy is DDP else 2)
    assert real["kept"] == list(msgspec.structs.astuple(seen.state_bytes)) == [shards, shards, 2 * shards]
    # DDP rebuilds its buckets in the second step, where the tracker sees them.
    before_step = max(size for moment, size in seen.tracked_phase_peaks_bytes.items() if moment != "step")
    assert real["peak"] == before_step


def test_untracked_settings_have_a_reason() -> None:
    here = source(HELPERS)
    offloaded = Strategy(kind="fsdp2", reshard_after_forward=True, cpu_offload=True)
    assert "DeepSpeed" in exact_memory.unsupported_reason(setting(Strategy(kind="deepspeed", stage=2)), here)
    assert "ZeroRedundancyOptimizer" in exact_memory.unsupported_reason(setting(Strategy(kind="zero-optimizer")), here)
    assert "offloaded" in exact_memory.unsupported_reason(setting(offloaded), here)
    assert "lion" in exact_memory.unsupported_reason(setting(DDP, optimizer="lion"), here)
    assert "all or none" in exact_memory.unsupported_reason(setting(DDP, act_ckpt="selective-op"), here)
    assert not exact_memory.unsupported_reason(setting(Strategy(kind="hsdp", shard_size=2), 4), here)


def test_best_trackable_candidate_and_ddp_are_tracked() -> None:
    model = Model(params=7.24e9, layers=32, hidden=4096, heads=32, kv_heads=8, intermediate=14336, vocab=32000)
    whole = spec.fill_defaults(
        TrainingSetup(model=model, train=TrainingOptions(seq_len=4096), gpus=8, gpu="H100", gpu_memory_gib=79.0)
    )[0]
    kinds = [
        each.setting.layout.kind for each in exact_memory.candidates_to_track(plan_candidates(whole), source(HELPERS))
    ]
    assert kinds == ["fsdp2", "ddp"]
    alone = msgspec.structs.replace(whole, gpus=1)
    assert [
        each.setting.layout.kind for each in exact_memory.candidates_to_track(plan_candidates(alone), source(HELPERS))
    ] == ["single"]


def test_plan_without_trackable_candidates_is_refused() -> None:
    with pytest.raises(UserError, match="do not know DeepSpeed"):
        exact_memory.candidates_to_track(plan_candidates(setting(Strategy(kind="deepspeed", stage=3))), source(HELPERS))


MIXTURE = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256}
MIXTURE |= {"num_local_experts": 4, "num_key_value_heads": 2}
PICTURES = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 32, "patch_size": 8}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
BATCH = "import torch\ndef pictures():\n    return {'pixel_values': torch.zeros(2, 3, 32, 32)}\n"


@pytest.mark.calibration
@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize(("config", "batch"), [(MIXTURE, ""), (PICTURES, "own:pictures")], ids=["experts", "pictures"])
def test_experts_and_pictures_under_autocast(config: dict[str, object], batch: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "own.py").write_text(BATCH)
    (tmp_path / "config.json").write_text(json.dumps(config | SMALL))
    here = exact_memory.resolve_module_source(
        sys.executable, ModelSource(TINY, [], config=str(tmp_path), directory=tmp_path), batch
    )
    seen = asyncio.run(exact_memory.track_candidate(row(setting(DDP, 2, act_ckpt="full", dtype="bf16-mixed")), here))
    assert not seen.problem
    assert seen.state_bytes is not None and seen.state_bytes.optimizer == 2 * seen.state_bytes.params


def test_missing_batch_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(BATCH)
    assert source(tmp_path, batch="own:pictures").batch
    with pytest.raises(UserError, match=r"own\.py has no picture"):
        source(tmp_path, batch="own:picture")


@pytest.mark.parametrize("batch", ["picture", "models:", "models:f()", "a b:c"])
def test_invalid_batch_name_is_refused(batch: str) -> None:
    with pytest.raises(UserError, match="names no function"):
        source(HELPERS, batch=batch)


def test_exact_needs_a_module() -> None:
    done = ddpwizard("plan", "--params", "7e9", "--gpus", "8", "--gpu", "H100", "--exact")
    assert done.returncode == 2
    assert "--exact needs the module itself" in done.stderr
    done = ddpwizard("plan", "--model", "t5-small", "--gpus", "8", "--gpu", "H100", "--exact")
    assert "--exact needs the module itself" in done.stderr


@pytest.mark.calibration
@pytest.mark.jobs
@pytest.mark.slow
def test_a_well_known_name_is_built_by_transformers() -> None:
    pytest.importorskip("transformers")
    done = ddpwizard(
        *("plan", "--model", "gpt2", "--gpus", "2", "--gpu", "H100", "--seq-len", "128"),
        *("--act-ckpt", "none", "--optimizer-impl", "foreach", "--exact", "--json"),
        limit_s=2 * exact_memory.LIMIT_S + 60,
    )
    tracked = json.loads(done.stdout)["exact"]
    assert {each["strategy"] for each in tracked} >= {"DDP"}
    for each in tracked:
        assert each["problem"] == ""
        assert each["formula_peak_bytes_per_gpu"] == pytest.approx(each["tracked_peak_bytes_per_gpu"], rel=0.1)


@pytest.mark.parametrize(
    ("option", "message"), [(("--optimizer", "lion"), "not lion"), (("--act-ckpt", "selective-op"), "only all or none")]
)
def test_reason_names_the_option_to_change(option: tuple[str, str], message: str) -> None:
    done = ddpwizard("plan", "--model", "gpt2", "--gpus", "2", "--gpu", "H100", "--exact", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_parts_of_the_formula_add_up_to_its_peak() -> None:
    for strategy in (SINGLE, DDP, FSDP2):
        for recompute in ("none", "full"):
            found: Candidate = row(setting(strategy, act_ckpt=recompute)).candidate
            parts = msgspec.structs.astuple(exact_memory.estimate_by_part(found))
            assert sum(parts) == pytest.approx(found.peak_allocated_bytes_per_gpu)


def test_table_names_differing_parts() -> None:
    formula = exact_memory.PeakParts(
        params=GIB, grads=0, optimizer=2 * GIB, activations=5 * GIB, buffers=GIB, temporaries=0
    )
    seen = exact_memory.TrackedStrategy(
        strategy="DDP",
        recompute="none",
        formula_peak_bytes_per_gpu=9 * GIB,
        formula_phase="loss",
        formula_bytes=formula,
        tracked_peak_bytes_per_gpu=8 * GIB,
        tracked_phase="backward",
        tracked_bytes=msgspec.structs.replace(formula, activations=4 * GIB, grads=GIB / 2),
        differs=["activations", "grads"],
        notes=["A note."],
    )
    shown = {line.strip().split("  ")[0]: line.split()[-3:] for line in exact_comparison.render_comparison([seen])}
    assert shown["total"] == ["9.00", "8.00", "+12.5%"]
    assert shown["activations and loss"] == ["5.00", "4.00", "+1.00"]
    assert shown["grads"] == ["0.00", "0.50", "-0.50"]
    assert shown["params"] == ["1.00", "1.00", "same"]
    assert shown["peak in"] == ["the", "loss", "backward"]
    assert {"They differ most in activations and loss.", "A note."} < set(shown)
