"""A checkpoint's header as the planner's input, and the messages for invalid files."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan.model import catalog, checkpoint, safetensors_header
from ddpwizard.app.plan.model.safetensors_header import BITS

Shapes = dict[str, list[int]]


def write(path: Path, shapes: Shapes, dtype: str = "BF16") -> Path:
    """A file with that header, and a hole of the size of its data."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, count = end, 1
        for size in shape:
            count *= size
        end = begin + count * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}  # type: ignore[assignment]
    raw(path, header)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + end)
    return path


def raw(path: Path, header: Any) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    return path


def llama(
    layers: int, hidden: int, inner: int, queries: int, keys: int, vocab: int, tied: bool, prefix: str = "model."
) -> Shapes:
    """The tensors of a Llama-like model, as transformers names them."""
    shapes = {f"{prefix}embed_tokens.weight": [vocab, hidden], f"{prefix}norm.weight": [hidden]}
    shapes |= {} if tied else {"lm_head.weight": [vocab, hidden]}
    for layer in range(layers):
        block = f"{prefix}layers.{layer}."
        shapes |= {f"{block}input_layernorm.weight": [hidden], f"{block}post_attention_layernorm.weight": [hidden]}
        shapes |= {f"{block}self_attn.q_proj.weight": [queries, hidden]}
        shapes |= {f"{block}self_attn.k_proj.weight": [keys, hidden], f"{block}self_attn.v_proj.weight": [keys, hidden]}
        shapes |= {f"{block}self_attn.o_proj.weight": [hidden, queries]}
        shapes |= {f"{block}mlp.{each}_proj.weight": [inner, hidden] for each in ("gate", "up")}
        shapes |= {f"{block}mlp.down_proj.weight": [hidden, inner]}
    return shapes


EIGHT_B = llama(32, 4096, 14336, 4096, 1024, 128256, False)
ONE_B = llama(16, 2048, 8192, 2048, 512, 128256, True)


class TestWhatItTells:
    def test_shape_of_a_single_file(self, tmp_path: Path) -> None:
        model, notes = checkpoint.read_checkpoint(write(tmp_path / "llama.safetensors", EIGHT_B))
        want = catalog.MODELS["llama-3.1-8b"]
        fields = ("params", "layers", "hidden", "heads", "kv_heads", "intermediate", "vocab", "tied", "mlp")
        assert [getattr(model, name) for name in fields] == [getattr(want, name) for name in fields]
        assert model.name == "llama"
        assert notes == ["heads: 32 of 128, assumed, as a checkpoint does not contain them"]

    def test_missing_head_is_tied(self, tmp_path: Path) -> None:
        model, _ = checkpoint.read_checkpoint(write(tmp_path / "model.safetensors", ONE_B))
        assert (model.params, model.tied, model.name) == (1_235_814_400, True, tmp_path.name)

    def test_several_files_are_read_by_their_index(self, tmp_path: Path) -> None:
        names = list(EIGHT_B)
        halves = {"a.safetensors": names[:150], "b.safetensors": names[150:]}
        for file, part in halves.items():
            write(tmp_path / file, {name: EIGHT_B[name] for name in part})
        weight_map = {name: file for file, part in halves.items() for name in part}
        index = tmp_path / safetensors_header.INDEX
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        write(tmp_path / "consolidated.safetensors", EIGHT_B)  # the same once more, which the index does not name
        assert (
            checkpoint.read_checkpoint(tmp_path)[0].params
            == checkpoint.read_checkpoint(index)[0].params
            == 8_030_261_248
        )

    def test_config_in_the_directory_completes_the_shape(self, tmp_path: Path) -> None:
        write(tmp_path / "model.safetensors", ONE_B)
        (tmp_path / "config.json").write_text(json.dumps(catalog.CONFIGS["Llama-3.2-1B"]))
        model, notes = checkpoint.read_checkpoint(tmp_path)
        assert (model.params, model.heads, model.kv_heads, notes) == (1_235_814_400, 32, 8, [])

    def test_saved_tied_head_counts_once(self, tmp_path: Path) -> None:
        write(tmp_path / "model.safetensors", ONE_B | {"lm_head.weight": [128256, 2048]})
        (tmp_path / "config.json").write_text(json.dumps(catalog.CONFIGS["Llama-3.2-1B"]))
        model, notes = checkpoint.read_checkpoint(tmp_path)
        assert model.params == 1_235_814_400
        assert "counted once" in notes[0]

    def test_config_of_another_model_is_noted(self, tmp_path: Path) -> None:
        write(tmp_path / "model.safetensors", EIGHT_B)
        (tmp_path / "config.json").write_text(json.dumps(catalog.CONFIGS["Llama-3.2-1B"]))
        model, notes = checkpoint.read_checkpoint(tmp_path)
        assert model.params == 8_030_261_248
        assert notes == ["params: 8,030,261,248 in the checkpoint, 1,235,814,400 by config.json; the first is used"]

    def test_invalid_config_in_the_directory_is_noted(self, tmp_path: Path) -> None:
        write(tmp_path / "model.safetensors", ONE_B)
        (tmp_path / "config.json").write_text("{}")
        model, notes = checkpoint.read_checkpoint(tmp_path)
        assert model.params == 1_235_814_400
        assert "cannot be used" in notes[0]

    def test_positions_and_masks_are_not_parameters(self, tmp_path: Path) -> None:
        others = {"model.layers.0.self_attn.rotary_emb.inv_freq": [32], "h.0.attn.bias": [1, 1, 1024, 1024]}
        assert checkpoint.read_checkpoint(write(tmp_path / "x.safetensors", ONE_B | others))[0].params == 1_235_814_400

    def test_queries_wider_than_the_hidden_size(self, tmp_path: Path) -> None:
        shapes = llama(28, 1024, 3072, 2048, 1024, 151936, True)
        for layer in range(28):
            shapes |= {f"model.layers.{layer}.self_attn.{each}_norm.weight": [128] for each in "qk"}
        model, notes = checkpoint.read_checkpoint(write(tmp_path / "x.safetensors", shapes))
        assert (model.params, model.heads, model.kv_heads, model.head_dim) == (596_049_920, 16, 8, 128)
        assert notes == []

    def test_experts_in_separate_and_common_tensors(self, tmp_path: Path) -> None:
        dense = {name: shape for name, shape in llama(2, 64, 96, 64, 64, 100, False).items() if "mlp" not in name}
        single = {f"model.layers.{n}.mlp.experts.{e}.{p}_proj.weight": [96, 64] for n in (0, 1) for e in range(8) for p in ("gate", "up", "down")}  # fmt: skip # noqa: E501
        joined = {f"model.layers.{n}.mlp.experts.gate_up_proj": [8, 192, 64] for n in (0, 1)}
        joined |= {f"model.layers.{n}.mlp.experts.down_proj": [8, 64, 96] for n in (0, 1)}
        rows = {f"model.layers.{n}.ffn.experts.mlp.{p}": [8 * 96, 64] for n in (0, 1) for p in ("w1", "v1", "w2")}
        rows |= {f"model.layers.{n}.ffn.router.layer.weight": [8, 64] for n in (0, 1)}
        seen = (
            "as their tensors are numbered",
            "as many as their common tensor holds",
            "one for each row of the router",
        )
        for shapes, shown in zip((single, joined, rows), seen, strict=True):
            model, notes = checkpoint.read_checkpoint(write(tmp_path / "x.safetensors", dense | shapes))
            assert (model.experts, model.experts_per_token, model.intermediate) == (8, 2, 2 * 96)
            assert model.params - (model.active_params or 0) == 2 * 6 * 3 * 96 * 64
            assert f"experts: 8 in a layer, {shown}; 2 per token, assumed" in notes

    def test_expert_width_with_dense_layers_and_shared_experts(self, tmp_path: Path) -> None:
        """As DeepSeek has it: the first layer is dense and wider, and all tokens pass through one expert."""
        shapes = llama(1, 64, 512, 64, 64, 100, False)
        shapes |= {
            f"model.layers.1.mlp.experts.{e}.{p}_proj.weight": [96, 64] for e in range(32) for p in ("gate", "up")
        }
        shapes |= {f"model.layers.1.mlp.shared_experts.{p}_proj.weight": [48, 64] for p in ("gate", "up")}
        model, _ = checkpoint.read_checkpoint(write(tmp_path / "x.safetensors", shapes))
        assert (model.experts, model.experts_per_token, model.intermediate) == (32, 8, 8 * 96 + 48)

    def test_experts_in_four_bit(self, tmp_path: Path) -> None:
        """As gpt-oss has them: 16 bytes are 32 weights, in a dimension of their own."""
        dense = {name: shape for name, shape in llama(1, 64, 96, 64, 64, 100, False).items() if "mlp" not in name}
        write(tmp_path / "a.safetensors", dense)
        write(tmp_path / "b.safetensors", {"model.layers.0.mlp.experts.gate_up_proj_blocks": [32, 192, 2, 16]}, "U8")
        model, _ = checkpoint.read_checkpoint(tmp_path)
        assert (model.experts, model.intermediate) == (32, 8 * 96)

    def test_packed_weights_are_counted_unpacked(self, tmp_path: Path) -> None:
        file = write(tmp_path / "x.safetensors", {"model.layers.0.mlp.up_proj.qweight": [512, 14336]}, "I32")
        model, notes = checkpoint.read_checkpoint(file)
        assert model.params == 4096 * 14336
        assert "packed in 4 bit" in notes[0]

    def test_reads_files_written_by_safetensors(self, tmp_path: Path) -> None:
        numpy = pytest.importorskip("numpy")
        save_file = pytest.importorskip("safetensors.numpy").save_file
        shapes = llama(3, 64, 96, 64, 32, 1000, True)
        save_file(
            {name: numpy.zeros(shape, numpy.float16) for name, shape in shapes.items()}, tmp_path / "x.safetensors"
        )
        model, _ = checkpoint.read_checkpoint(tmp_path / "x.safetensors")
        assert (model.layers, model.hidden, model.intermediate, model.vocab) == (3, 64, 96, 1000)
        assert model.params == sum(numpy.prod(shape) for shape in shapes.values())


class TestWhatIsRefused:
    """Messages of one line, before much of the file is read."""

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "has 4 bytes"),
            ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "has the shape [-2]"),
            ({"a": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 8]}}, "has the shape"),
            ({"a": {"dtype": "F32", "shape": [1] * 99, "data_offsets": [0, 4]}}, "has the shape"),
            ({"a": {"dtype": "Q9", "shape": [2], "data_offsets": [0, 8]}}, "is of type 'Q9'"),
            ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "ends early"),
            ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, "has -8 bytes"),
            ({"a": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}}, "not a safetensors header"),
            ({"a": [1]}, "not a safetensors header"),
            ([1], "not a safetensors header"),
            (b"{ ", "not a safetensors header"),
            (b"\xff\xff\xff", "not a safetensors header"),
            (b'{"a":' * 100_000, "not a safetensors header"),
            ({}, "contains no tensors"),
        ],
    )
    def test_invalid_header_is_refused(self, header: Any, message: str, tmp_path: Path) -> None:
        with pytest.raises(UserError) as refusal:
            checkpoint.read_checkpoint(raw(tmp_path / "x.safetensors", header))
        assert message in refusal.value.message
        assert "\n" not in refusal.value.message
        assert len(refusal.value.message) < 400

    @pytest.mark.parametrize("content", [b"", b"abc", struct.pack("<Q", 2**63), struct.pack("<Q", 200_000_000)])
    def test_other_files_are_refused(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "x.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="is not a safetensors file"):
            checkpoint.read_checkpoint(tmp_path / "x.safetensors")

    def test_oversized_header_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "x.safetensors"
        file.write_bytes(struct.pack("<Q", safetensors_header.HEADER_LIMIT_BYTES + 1))
        os.truncate(file, 2 * safetensors_header.HEADER_LIMIT_BYTES)
        with pytest.raises(UserError, match="is not a safetensors file"):
            checkpoint.read_checkpoint(file)

    def test_git_lfs_pointer_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\n")
        with pytest.raises(UserError, match="Git LFS pointer"):
            checkpoint.read_checkpoint(tmp_path)

    def test_paths_that_are_not_files_are_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.safetensors")
        for name in ("pipe.safetensors", "absent.safetensors", "\0"):
            with pytest.raises(UserError):
                checkpoint.read_checkpoint(tmp_path / name)
        with pytest.raises(UserError, match="is not a regular file"):
            checkpoint.read_checkpoint(tmp_path)  # all it has is the pipe

    def test_adapter_checkpoint_is_refused(self, tmp_path: Path) -> None:
        shapes = {f"base.layers.0.q_proj.lora_{each}.weight": [8, 64] for each in "AB"}
        with pytest.raises(UserError, match="contains adapters"):
            checkpoint.read_checkpoint(write(tmp_path / "adapter_model.safetensors", shapes))

    @pytest.mark.parametrize(
        ("index", "message"),
        [
            ({"weight_map": {"a": "../../etc/passwd"}}, "not in its directory"),
            ({"weight_map": {"a": "/etc/passwd"}}, "not in its directory"),
            ({"weight_map": {"a": "gone.safetensors", "b": "x.safetensors"}}, "1 of 2 files are missing: gone"),
            ({"weight_map": {"a": 7}}, "not an index of a checkpoint"),
            ({}, "not an index of a checkpoint"),
            ({"weight_map": {}}, "contains no tensors"),
        ],
    )
    def test_invalid_index_is_refused(self, index: Any, message: str, tmp_path: Path) -> None:
        write(tmp_path / "x.safetensors", {"b": [2]})
        (tmp_path / safetensors_header.INDEX).write_text(json.dumps(index))
        with pytest.raises(UserError, match=message):
            checkpoint.read_checkpoint(tmp_path)
