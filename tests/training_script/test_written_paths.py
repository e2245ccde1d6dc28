"""Paths that a script writes, read from its text."""

from pathlib import Path

import pytest
from ddpwizard.app.training_script.source import ScriptSource
from ddpwizard.app.training_script.written_paths import WrittenPath, files_of_script, find_written_paths


def written(text: str, *words: str, **environ: str) -> list[WrittenPath]:
    return find_written_paths(ScriptSource(text, "/job/train.py"), "/job", words, environ)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('torch.save(model.state_dict(), "/data/best.pt")', "/data/best.pt"),
        ('torch.save(x, f="/data/best.pt")', "/data/best.pt"),
        ('open("/data/log.txt", "a").write("x")', "/data/log.txt"),
        ('with open("out.txt", mode="w") as f: pass', "/job/out.txt"),
        ('Path("/data/x.json").write_text("{}")', "/data/x.json"),
        ('(Path("/data") / "run" / "x.json").write_text("{}")', "/data/run/x.json"),
        ('OUT = Path("/data")\n(OUT / f"step{step}.pt").unlink()', "/data/step….pt"),
        ('os.makedirs(os.path.join("/data", "ckpt"), exist_ok=True)', "/data/ckpt"),
        ('os.remove("/data/" + name)', "/data/…"),
        ('shutil.copy("/data/a", "/data/b")', "/data/b"),
        ('sqlite3.connect("/data/runs.db")', "/data/runs.db"),
        ('np.save("/data/a.npy", a)', "/data/a.npy"),
        ('df.to_csv("/data/a.csv")', "/data/a.csv"),
        ('SummaryWriter(log_dir="/data/tb")', "/data/tb"),
        ('model.save_pretrained("/data/model")', "/data/model"),
        ('open(os.path.join(os.path.dirname(__file__), "x"), "wb")', "/job/x"),
        ('torch.save(x, os.environ["OUT"] + "/m.pt")', "/scratch/m.pt"),
        ('p.add_argument("--out", default="/data")\ntorch.save(x, args.out + "/m.pt")', "/data/m.pt"),
        ('torch.save(x, path)', ""),
    ],
)  # fmt: skip
def test_the_path_that_a_call_writes(text: str, path: str) -> None:
    assert [each.path for each in written(text, OUT="/scratch")] == [path]


def test_both_ends_of_a_move_are_written() -> None:
    assert [each.path for each in written('os.rename("/data/a", "/data/b")')] == ["/data/a", "/data/b"]
    assert [each.path for each in written('Path("/data/a").rename("/data/b")')] == ["/data/a", "/data/b"]


def test_an_option_on_the_command_line_beats_its_default() -> None:
    text = 'p.add_argument("--out-dir", default="/data")\nopen(f"{args.out_dir}/log", "w")'
    assert [each.path for each in written(text, "--out-dir", "/mine")] == ["/mine/log"]
    assert [each.path for each in written(text, "--out-dir=/mine")] == ["/mine/log"]


@pytest.mark.parametrize(
    "text",
    [
        'open("/data/x")',
        'open("/data/x", "rb")',
        'Path("/data/x").read_text()',
        'torch.load("/data/x")',
        'name.replace("/", "_")',
        'text.replace("a", "b").rename(columns=names)',
        'frame.rename(names)',
        'sqlite3.connect(":memory:")',
        'shutil.which("/bin/x")',
    ],
)  # fmt: skip
def test_reading_is_not_writing(text: str) -> None:
    assert written(text) == []


def test_an_argument_by_its_place() -> None:
    assert [each.path for each in written("torch.save(x, sys.argv[1])", "train.py", "/mine/m.pt")] == ["/mine/m.pt"]
    assert [each.path for each in written("torch.save(x, sys.argv[2])", "train.py", "/mine/m.pt")] == [""]


def test_the_call_and_its_line_are_named() -> None:
    assert written("x = 1\ntorch.save(x, cfg.out)") == [WrittenPath("/job/train.py", 2, "torch.save", "", "cfg.out")]


def test_modules_next_to_the_script_are_found(tmp_path: Path) -> None:
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "__init__.py").write_text("from .save import save\n")
    (tmp_path / "utils" / "save.py").write_text("import torch\n")
    (tmp_path / "train.py").write_text("import torch\nfrom utils.save import save\n")
    names = {path.relative_to(tmp_path).as_posix() for path in files_of_script(tmp_path / "train.py", [])}
    assert names == {"train.py", "utils/__init__.py", "utils/save.py"}
