"""The models of a training script, read without running it."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.model.from_script import (
    ScriptConfig,
    ScriptFactory,
    ScriptModelName,
    drops_output,
    find_models,
)
from ddpwizard.app.plan.model.hf_config import model_from_config
from ddpwizard.app.plan.model_source import ModelSource, resolve_model

NET = "from torch import nn\nclass Net(nn.Module):\n    pass\ndef build_model():\n    return Net()\n"


def no_build(*_: object) -> ModelSource:
    raise AssertionError("no model is built here")


def script(directory: Path, text: str) -> Path:
    (directory / "train.py").write_text(text)
    return directory / "train.py"


@pytest.mark.parametrize(
    "text",
    [
        'model = AutoModelForCausalLM.from_pretrained("gpt2-xl")',
        'model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("gpt2-xl"))',
        'NAME = "gpt2-xl"\ndef main():\n    model = GPT2LMHeadModel.from_pretrained(NAME, dtype="auto")',
        'tok = AutoTokenizer.from_pretrained("t5-3b")\nm = AutoModel.from_pretrained(dtype="auto", model="gpt2-xl")',
        'p.add_argument("-m", "--model-name", default="gpt2-xl")\na = parsed()\nm = M.from_pretrained(a.model_name)',
    ],
)
def test_models_that_a_script_loads(text: str, tmp_path: Path) -> None:
    found = find_models(script(tmp_path, text))[0]
    assert isinstance(found, ScriptModelName)
    assert found.name == "gpt2-xl"
    assert "from_pretrained" in text.split("\n")[found.line - 1]


LOOP = "for batch in data():\n    out = model(batch)\n    loss = measure(out, batch)\n"


@pytest.mark.parametrize(
    ("text", "deletes"),
    [
        (LOOP + "    del out\n    loss.backward()\n", True),
        (LOOP + "    loss.backward()\n    del out\n", False),
        (LOOP + "    del batch\n    loss.backward()\n", False),
        (LOOP + "    loss.backward()\n", False),
        ("from transformers import Trainer\nTrainer(model).train()\n", True),
        ("from trl.trainer import SFTTrainer\nclass Own(SFTTrainer): ...\nOwn(model).train()\n", True),
        ("from transformers import Trainer\n" + LOOP + "    loss.backward()\n", False),
        ("from transformers import TrainingArguments\nrun(model)\n", False),
        ("from lightning import Trainer\nTrainer().fit(model)\n", False),
    ],
)
def test_output_that_is_gone_before_the_backward_pass(text: str, deletes: bool, tmp_path: Path) -> None:
    path = script(tmp_path, f'model = AutoModelForCausalLM.from_pretrained("gpt2-xl")\n{text}')
    assert drops_output(path) is deletes
    assert resolve_model({"script": str(path)}, no_build).keeps_logits is not deletes


@pytest.mark.parametrize(("hidden", "heads"), [(2048, 64), (1024, 16)])
def test_missing_config_fields_follow_from_the_rest(hidden: int, heads: int, tmp_path: Path) -> None:
    sizes = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": 8, "intermediate_size": 2816}
    words = ", ".join(f"{name}={value}" for name, value in sizes.items())
    path = script(tmp_path, f"model = LlamaForCausalLM(LlamaConfig({words}))")
    found = resolve_model({"script": str(path)}, no_build)
    assert found.model.kv_heads == heads
    assert found.model.params == model_from_config(sizes | {"model_type": "llama", "vocab_size": 32000})[0].params
    assert "vocab_size 32000: not in the script, so transformers' default is used" in found.notes


def test_key_value_heads_of_a_config_class_are_noted(tmp_path: Path) -> None:
    sizes = "hidden_size=1024, num_attention_heads=16, num_hidden_layers=2, vocab_size=100, intermediate_size=64"
    found = resolve_model({"script": str(script(tmp_path, f"m = A.from_config(MistralConfig({sizes}))"))}, no_build)
    assert found.model.kv_heads == 8
    assert "num_key_value_heads 8: not in the config, so transformers' default is used" in found.notes


def test_config_created_in_a_script(tmp_path: Path) -> None:
    text = "W = 512\nconfig = transformers.Qwen3MoeConfig(hidden_size=W, num_hidden_layers=4)\nmodel = M(config)"
    found = find_models(script(tmp_path, text))[0]
    assert found == ScriptConfig({"model_type": "qwen3_moe", "hidden_size": 512, "num_hidden_layers": 4}, 2)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("from net import Net\nmodel = Net(64, layers=3).cuda()", ScriptFactory("net:Net", [64], {"layers": 3}, 2)),
        (
            "from net import Net as N\nW = 2\ndef main():\n  net = DDP(N(W))\nmain()",
            ScriptFactory("net:Net", [2], {}, 4),
        ),
        ("from lib.nets import make\nself.model = make()", ScriptFactory("lib.nets:make", [], {}, 2)),
        (NET + 'if __name__ == "__main__":\n    my_model = Net()', ScriptFactory("train:Net", [], {}, 7)),
        (NET + "def main():\n    pass", ScriptFactory("train:build_model", [], {}, 4)),
    ],
)
def test_factories_that_a_script_calls(text: str, want: ScriptFactory, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "nets.py").write_text("")
    assert find_models(script(tmp_path, text))[0] == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('hello')", "no model is found"),
        ("from torch import nn\nmodel = nn.Linear(2, 2)", "no model is found"),
        ("from net import Net\nmodel = Net(load())", "no model is found"),
        ("model = LlamaForCausalLM(LlamaConfig(**kwargs))", "no model is found"),
        ("config = MyConfig(hidden_size=3)", "no model is found"),
        (NET + "model = Net()\nfor _ in range(9):\n    model()", "would execute line 6"),
        (NET + "def main():\n    model = Net()\nmain()", "would execute line 8"),
        ("def broken(:", "train.py:1: not valid Python"),
        ("model = " + "(" * 5000 + ")" * 5000, "train.py"),
        ("\0", "a binary file"),
        ("x = '" + "y" * 3_000_000 + "'", "too many"),
    ],
)
def test_script_without_a_model_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    with pytest.raises(UserError) as refusal:
        find_models(script(tmp_path, text))
    assert message in refusal.value.message
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("student = A.from_pretrained('gpt2')\nteacher = A.from_pretrained('gpt2-xl')", ["at line 2"]),
        ("config = A.from_pretrained('gpt2')\nmodel = B.from_pretrained('gpt2')", []),
        ("tok = Tokenizer.from_pretrained('t5-3b')\nmodel = B.from_pretrained('gpt2')", []),
    ],
)
def test_other_models_of_a_script_are_noted(text: str, others: list[str], tmp_path: Path) -> None:
    found = resolve_model({"script": str(script(tmp_path, text))}, no_build)
    assert found.model.name == "gpt2"
    assert found.notes[0].startswith("model: gpt2, as")
    listed = [line for line in found.notes if " also builds models " in line]
    assert [line.rpartition(" models ")[2] for line in listed] == others


def test_the_script_is_not_run(tmp_path: Path) -> None:
    text = "import pathlib\npathlib.Path('ran').touch()\nmodel = A.from_pretrained('gpt2')"
    find_models(script(tmp_path, text))
    assert not list(tmp_path.glob("ran")) and not Path("ran").exists()
