"""Reading logs never blocks and accepts any bytes: pipes, binaries, broken encodings, terminal sequences."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.errors import InspectionError, UserError
from ddpwizard.app.logs import read
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import clean_text, find_sources, read_chunks
from ddpwizard.app.system import files
from helpers.log_reading_knowledge import KNOWLEDGE


def texts(*paths: Path | str) -> list[bytes]:
    return [b"".join(read_chunks(source)) for source in find_sources([str(path) for path in paths])]


def test_clean_text_removes_terminal_sequences_and_splits_progress_bars():
    assert clean_text(b"\x1b[31mred\x1b[0m 10%\r20%\r\nend") == "red 10%\n20%\nend"
    assert clean_text(b"\x1b]0;title\x07plain") == "plain"


def test_verdicts_of_run_in_the_log_are_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(
        b"step 1\nddpwizard: rank 1 died first: IndexError\n3: ddpwizard: Most likely: x\nsee ddpwizard: y\n"
    )
    assert texts(path)[0].split(b"\n") == [b"step 1", b"", b"", b"see ddpwizard: y", b""]


def test_invalid_utf8_is_read(tmp_path: Path):
    path = tmp_path / "x.log"
    path.write_bytes(b"caf\xe9 NCCL\n")
    assert b"NCCL" in texts(path)[0]


def test_directory_means_its_text_files(tmp_path: Path):
    (tmp_path / "attempt_0" / "1").mkdir(parents=True)
    (tmp_path / "attempt_0" / "1" / "stderr.log").write_text("one")
    (tmp_path / "core").write_bytes(b"\0\1")
    (tmp_path / "empty.log").write_text("")
    assert [Path(s.origin).name for s in find_sources([str(tmp_path)])] == ["stderr.log", "empty.log"]


@pytest.mark.parametrize("content", [b"", b"  \n", b"\x7fELF\0\0", bytes(range(256)) * 12])
def test_empty_and_binary_files_are_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UserError):
        analyse_logs(find_sources([str(path)]), KNOWLEDGE)


def test_log_with_a_stray_nul_is_not_binary(tmp_path: Path):
    path = tmp_path / "x.log"
    path.write_bytes(b"ERROR: Unexpected bus error encountered in worker.\0\n" * 3 + b"step 1\n" * 100)
    assert b"bus error" in texts(path)[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_log_is_read(tmp_path: Path, encoding: str):
    line = "RuntimeError: CUDA out of memory, größer\r\n"
    path = tmp_path / "x.log"
    path.write_bytes((line * 500).encode(encoding))
    assert "".join(text.decode() for text in texts(path)).lstrip("\ufeff") == line * 500
    assert [source.path for source in find_sources([str(tmp_path)])] == [str(path)]


@pytest.mark.parametrize("before", [b"", b"step 1\n"])
def test_log_with_a_hole_is_read(tmp_path: Path, before: bytes):
    path = tmp_path / "x.log"
    path.write_bytes(before + bytes(20_000) + b"RuntimeError: one\n")
    assert b"".join(texts(path)) == before + b"\nRuntimeError: one\n"
    assert [source.path for source in find_sources([str(tmp_path)])] == [str(path)]


def test_numbers_of_two_bytes_are_no_utf16_text(tmp_path: Path):
    path = tmp_path / "x.bin"
    path.write_bytes(b"".join(n.to_bytes(2, "little") for n in range(1, 32)) * 200)
    with pytest.raises(UserError, match="binary"):
        texts(path)


def test_missing_path_raises_user_error(tmp_path: Path):
    with pytest.raises(UserError, match="no-such"):
        texts(tmp_path / "no-such")


def test_silent_pipe_raises_inspection_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read, "SILENT_LIMIT_S", 0.2)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    keep_open = os.open(fifo, os.O_RDWR)
    try:
        with pytest.raises(InspectionError, match="no data from the pipe"):
            texts(fifo)
    finally:
        os.close(keep_open)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full", "/dev/urandom"])
def test_a_device_without_end_is_refused(device: str):
    with pytest.raises(UserError, match="a device, not a log"):
        texts(device)


def test_pipe_is_read_until_it_is_closed():
    source = subprocess.Popen([sys.executable, "-c", "print('NCCL WARN\\n' * 20000, end='')"], stdout=subprocess.PIPE)
    assert source.stdout
    assert texts(f"/proc/self/fd/{source.stdout.fileno()}")[0].count(b"NCCL WARN") == 20000
    source.wait(60)


def test_terminal_sequence_across_chunks_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "x.log"
    path.write_bytes(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\x1b[" * 50)
    whole = texts(path)
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(read, "CHUNK_BYTES", size)
        assert texts(path) == whole


def test_gzip_is_recognised_by_content(tmp_path: Path):
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert texts(path, tmp_path) == [b"one\ntwo\n", b"one\ntwo\n"]


def test_truncated_gzip_is_read_up_to_its_end(tmp_path: Path):
    path = tmp_path / "x.gz"
    lines = "".join(f"odd thing {n} of 9999\n" for n in range(9999)).encode()
    path.write_bytes(gzip.compress(lines)[:9000])
    (text,) = texts(path)
    assert lines.startswith(text)
    assert len(text) > 1000


def test_compressed_binaries_are_refused(tmp_path: Path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"\0\1\2\3" * 100))
    with pytest.raises(UserError, match="binary"):
        texts(path)


def test_hidden_directories_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    for path in (tmp_path / ".cache" / "old.log", tmp_path / "job.log"):
        path.write_text("x\n")
    assert [Path(source.path).name for source in find_sources([str(tmp_path)])] == ["job.log"]


def test_directory_with_very_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.log").write_text("x\n")
    with pytest.raises(UserError, match="more than 2 files"):
        find_sources([str(tmp_path)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory")
def test_directory_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0)
    with pytest.raises(UserError, match="Permission denied"):
        find_sources([str(tmp_path / "private")])
