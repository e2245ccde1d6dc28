"""Patches of the line, or of the layers, that the first error of a log names; look-alikes are left as they are."""

import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from ddpwizard.app.logs.read import source_of_text
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
IMPORTS = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

"""
CONTAINER = "ValueError: fully_shard does not support containers that do not implement forward: {}("
META = (
    "NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of "
    "torch.nn.Module.to() when moving module from meta to a different device."
)
DTYPES = "AssertionError: FSDP expects uniform original parameter dtype but got {torch.bfloat16, torch.float32}"
CHANNELS = "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 32])"


def patched(tmp_path: Path, cause: str, fix: str, code: str, at: str, error: str) -> str | None:
    """Return the script, without its imports, with the patch for an error at a line; None if there is none."""
    script = tmp_path / "train.py"
    text = IMPORTS + textwrap.dedent(code)
    script.write_text(text)
    lines = text.splitlines()
    line = next(number for number, each in enumerate(lines, 1) if at in each)
    log = (
        "[rank0]: Traceback (most recent call last):\n"
        f'[rank0]:   File "{script}", line {line}, in main\n'
        f"[rank0]:     {lines[line - 1].strip()}\n"
        f"[rank0]: {error}\n"
    )
    case = Case(KNOWLEDGE)
    timeline = add_to_case(case, [source_of_text(log, "output")], of_job=True).timeline
    context = FixContext(script=str(script), evidence=case.evidence, timeline=timeline)
    found = next(each for each in build_fixes(KNOWLEDGE.causes[cause], context, KNOWLEDGE) if each.id == fix)
    return found.patches[0].after.removeprefix(IMPORTS) if found.patches else None


class TestListOfLayers:
    fix = ("fsdp-wrap-policy", "shard-the-list")

    @pytest.mark.parametrize(
        ("kind", "before", "after"),
        [
            (
                "ModuleList",
                "fully_shard(model.layers, mesh=mesh)\nfully_shard(model)\n",
                "for block in model.layers:\n    fully_shard(block, mesh=mesh)\nfully_shard(model)\n",
            ),
            (
                "ModuleDict",
                "if sharded:\n    fully_shard(\n        net.towers,\n        mesh=mesh,\n    )\n",
                "if sharded:\n    for block in net.towers.values():\n        fully_shard(\n            block,\n"
                "            mesh=mesh,\n        )\n",
            ),
            (
                "ModuleList",
                "block = 1\nlayers = make()\nfully_shard(layers)\n",
                "block = 1\nlayers = make()\nfor layer in layers:\n    fully_shard(layer)\n",
            ),
        ],
    )
    def test_each_layer_is_sharded(self, tmp_path: Path, kind: str, before: str, after: str) -> None:
        assert patched(tmp_path, *self.fix, before, "fully_shard(", CONTAINER.format(kind)) == after

    @pytest.mark.parametrize(
        "code",
        [
            "for part in (model.body, model.layers):\n    fully_shard(part)\n",
            "def shard(part):\n    fully_shard(part)\nshard(model.layers)\n",
            "sharded = fully_shard(model.layers)\n",
            "apply(model.layers, fully_shard)\n",
            "x = 1; fully_shard(model.layers)\n",
        ],
    )
    def test_a_call_that_also_shards_other_modules_stays(self, tmp_path: Path, code: str) -> None:
        at = "fully_shard(" if "fully_shard(" in code else "fully_shard"
        assert patched(tmp_path, *self.fix, code, at, CONTAINER.format("ModuleList")) is None

    def test_a_container_of_another_kind_stays(self, tmp_path: Path) -> None:
        assert patched(tmp_path, *self.fix, "fully_shard(model.a)\n", "fully_shard(", CONTAINER.format("Mine")) is None


class TestMetaDevice:
    fix = ("meta-device-left", "allocate-and-initialise")
    filled = """\
{0}.to_empty(device={1})
for module in {0}.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
    elif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
        raise TypeError(f"{{type(module).__name__}} has no reset_parameters() that initialises its parameters")
"""

    @pytest.mark.parametrize(
        ("code", "model", "device"),
        [
            ("model.to(device)\n", "model", "device"),
            ("model = model.to(device=torch.device('cpu'))\n", "model", "torch.device('cpu')"),
            ("net.cuda()\n", "net", '"cuda"'),
            ("net.body.cuda(local_rank)  # here\n", "net.body", "local_rank"),
        ],
    )
    def test_memory_and_initial_values(self, tmp_path: Path, code: str, model: str, device: str) -> None:
        after = patched(tmp_path, *self.fix, code, code.strip(), META)
        assert after and after.replace("  # here", "") == self.filled.format(model, device)

    def test_the_patched_lines_fill_a_model_and_refuse_a_layer_that_cannot(self) -> None:
        code = compile("import torch\n" + self.filled.format("model", '"cpu"'), "patch", "exec")
        outcome = """
import torch
from torch import nn
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
with torch.device("meta"):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2){})
"""
        names: dict[str, object] = {}
        exec(outcome.format(""), names)  # noqa: S102
        exec(code, names)  # noqa: S102
        exec("assert not any(p.is_meta or p.isnan().any() for p in model.state_dict().values())", names)  # noqa: S102
        exec(outcome.format(", Own()"), names)  # noqa: S102
        with pytest.raises(TypeError, match="Own has no reset_parameters"):
            exec(code, names)  # noqa: S102

    @pytest.mark.parametrize(
        "code",
        [
            "model.to(device, torch.float16)\n",
            "model.to(torch.float16)\n",
            "wrapped = model.to(device)\n",
            "model = wrap(model.to(device))\n",
            "model.half().to(device)\n",
        ],
    )
    def test_a_statement_that_does_more_stays(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, code, code.strip(), META) is None

    def test_a_tensor_stays(self, tmp_path: Path) -> None:
        error = "NotImplementedError: Cannot copy out of meta tensor; no data!"
        assert patched(tmp_path, *self.fix, "x.to(device)\n", "x.to", error) is None


class TestOneDtype:
    fix = ("fsdp-mixed-precision", "cast-before-sharding")
    cast = "net.to(next(net.parameters()).dtype)  # FSDP needs one dtype in each unit\n"

    @pytest.mark.parametrize(
        "code",
        [
            "net = make()\n@fully_shard(net)\n",
            "net = make()\n@for layer in net.layers:\n    if is_large(layer):\n        fully_shard(layer)\n"
            "fully_shard(net)\n",
            "def shard(net):\n    @fully_shard(net.head)\n    fully_shard(net)\n",
        ],
    )
    def test_the_model_is_cast_before_its_first_part_is_sharded(self, tmp_path: Path, code: str) -> None:
        before = code.replace("@", "") + "loss = net(x)\n"
        after = code.replace("@", self.cast + ("    " if code.startswith("def") else "")) + "loss = net(x)\n"
        assert patched(tmp_path, *self.fix, before, "loss =", DTYPES) == after

    @pytest.mark.parametrize(
        "code",
        [
            "fully_shard(net.body)\nnet = wrap(net)\nfully_shard(net)\nloss = net(x)\n",
            "fully_shard(net)\nfully_shard(other)\nif x:\n    fully_shard(third)\nloss = net(x)\n",
            "for layer in net:\n    fully_shard(layer)\nloss = net(x)\n",
        ],
        ids=["another model", "several models", "layers only"],
    )
    def test_models_that_are_not_sure_stay(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, code, "loss =", DTYPES) is None

    def test_another_error_about_dtypes_stays(self, tmp_path: Path) -> None:
        error = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16"
        assert patched(tmp_path, *self.fix, "fully_shard(net)\nloss = net(x)\n", "loss =", error) is None


class TestOneValueOfAChannel:
    fix = ("batchnorm-unsynced", "one-group")

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("nn.BatchNorm1d(32)", "nn.GroupNorm(1, 32)"),
            ("torch.nn.BatchNorm2d(num_features=c, eps=1e-3, momentum=0.9)", "torch.nn.GroupNorm(1, c, eps=1e-3)"),
            ("nn.BatchNorm3d(c, track_running_stats=False, affine=False)", "nn.GroupNorm(1, c, affine=False)"),
        ],
    )
    def test_normalisation_of_each_sample(self, tmp_path: Path, before: str, after: str) -> None:
        code = "net = nn.Sequential(nn.Linear(4, 32), {})\nloss = net(x)\n"
        assert patched(tmp_path, *self.fix, code.format(before), "loss =", CHANNELS) == code.format(after)

    @pytest.mark.parametrize(
        "layer", ["nn.BatchNorm1d(32), nn.BatchNorm1d(*sizes)", "nn.BatchNorm1d(**options)", "BatchNorm1d(32)"]
    )
    def test_arguments_that_are_not_known_stay(self, tmp_path: Path, layer: str) -> None:
        code = f"from torch.nn import BatchNorm1d\nnet = nn.Sequential({layer})\nloss = net(x)\n"
        assert patched(tmp_path, *self.fix, code, "loss =", CHANNELS) is None

    def test_layers_of_a_job_with_another_error_stay(self, tmp_path: Path) -> None:
        error = "ValueError: SyncBatchNorm expected input tensor to be on GPU"
        assert patched(tmp_path, *self.fix, "net = nn.BatchNorm1d(4)\nloss = net(x)\n", "loss =", error) is None
