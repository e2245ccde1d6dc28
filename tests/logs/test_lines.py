"""Prefixes of log lines: the writer and the time as written by each launcher."""

import pytest
from ddpwizard.app.logs.lines import LogPiece, PrefixStyle, parse_clock, split_line
from ddpwizard.app.logs.types import UNKNOWN_WRITER, Writer
from hypothesis import given
from hypothesis import strategies as st

TASKS = [f"{rank}: step {step}" for step in range(4) for rank in range(2)]


def one(raw: str, style: PrefixStyle | None = None) -> LogPiece:
    (line,) = split_line(raw, style or PrefixStyle(), UNKNOWN_WRITER)
    return line


@pytest.mark.parametrize(
    ("raw", "writer", "text"),
    [
        ("[rank3]: loss 1", Writer(3), "loss 1"),
        ("[rank3]:   File x", Writer(3), "  File x"),
        ("[rank: 3] Seed set to 1", Writer(3), "Seed set to 1"),
        ("[default5]:loss 1", Writer(5, local=True), "loss 1"),
        ("[trainer2]:loss 1", Writer(2, local=True), "loss 1"),
        ("[default1]:[rank9]: loss", Writer(9), "loss"),
        ("[default1]: [rank9]: loss", Writer(9), "loss"),
        ("[1,3]<stderr>:loss 1", Writer(3), "loss 1"),
        ("[3]<stdout>:loss 1", Writer(3), "loss 1"),
        ("[pod/job-worker-1/pytorch] loss", Writer(None, "job-worker-1"), "loss"),
        ("[pod/job-worker-1/pytorch] [rank9]: loss", Writer(9), "loss"),
        ("(RayTrainWorker pid=77, ip=10.0.0.2) loss", Writer(None, "10.0.0.2"), "loss"),
        ("gpu-07:411:502 [3] NCCL INFO ok", Writer(3, "gpu-07", local=True), "NCCL INFO ok"),
        ("gpu-07:411:502 NCCL INFO ok", Writer(None, "gpu-07"), "NCCL INFO ok"),
        ("[rank3]:[E1120 12:34:56.789012345 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog", Writer(3), "Watchdog"),
        ("[E1120 12:34:56.7 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 4] hm", Writer(4), "hm"),
        ("W1120 13:08:28.997000 13089 torch/distributed/run.py:874] Setting", UNKNOWN_WRITER, "Setting"),
        ("2026-11-20 10:00:00,123 - INFO - step 1", UNKNOWN_WRITER, "INFO - step 1"),
        ("2026-11-20T10:00:00.123456789Z stdout F step 1", UNKNOWN_WRITER, "step 1"),
        ("[2026-11-20 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 2] step", Writer(2), "step"),
        ("RuntimeError: no prefix at all", UNKNOWN_WRITER, "RuntimeError: no prefix at all"),
        ("3: could be anything", UNKNOWN_WRITER, "3: could be anything"),
    ],
)
def test_prefix_gives_the_writer(raw: str, writer: Writer, text: str):
    line = one(raw)
    assert (line.writer, line.text) == (writer, text)


def test_time_stamps_are_seconds_since_january_1():
    glog = one("[rank3]:[E0102 00:00:01.500000 x.cpp:1] a").time_s
    assert glog == one("2026-01-02 00:00:01,500 a").time_s == one("[01/02/2026 00:00:01.500] a").time_s == 86401.5
    assert one("[12:00:00] a").time_s is None
    assert parse_clock("00:01:02,5") == 62.5


def test_ambiguous_prefixes_count_if_most_lines_have_them():
    style = PrefixStyle()
    style.learn(["1: install", "2: run", "3: it hangs"])
    assert one("1: install", style).writer == UNKNOWN_WRITER
    style.learn(TASKS)
    assert one(" 1: step 4", style) == LogPiece("step 4", Writer(1), token=" 1:")


@pytest.mark.parametrize(
    ("lines", "raw", "host"),
    [
        (["worker-1: a", "worker-2: a", "worker-1: b", "worker-2: b"], "worker-2:   File", "worker-2"),
        (["10.0.0.1: a", "10.0.0.2: a", "10.0.0.1: b", "10.0.0.2: b"], "10.0.0.2: x", "10.0.0.2"),
        (["train-1  | a", "train-2  | a", "train-1  | b", "train-2  | b"], "train-2  | x", "train-2"),
    ],
)
def test_host_prefix_gives_the_writer(lines: list[str], raw: str, host: str):
    style = PrefixStyle()
    style.learn(lines)
    assert one(raw, style).writer == Writer(None, host)
    assert one(raw.replace(host, "python3"), style).writer in (UNKNOWN_WRITER, Writer(None, "python3"))


def test_step_and_epoch_are_not_hosts():
    style = PrefixStyle()
    style.learn(["step1: a", "step1: b", "epoch2: c", "epoch2: d"])
    assert one("step1: a", style).writer == UNKNOWN_WRITER


def test_line_is_split_where_another_rank_writes_into_it():
    lines = list(split_line("[rank1]: Runtime[rank2]: loss 3", PrefixStyle(), UNKNOWN_WRITER))
    assert [(line.writer.rank, line.text) for line in lines] == [(1, "Runtime"), (2, "loss 3")]


def test_progress_bar_keeps_its_last_state_and_other_text():
    raw = "[rank0]:  1%|  | 1/99 [00:01, 1.0it/s]\r[rank0]: loss is nan\r 50%|# | 2/99 [00:01, 1.0it/s]\r 99%|##|"
    assert [line.text for line in split_line(raw, PrefixStyle(), UNKNOWN_WRITER)] == ["loss is nan", " 99%|##|"]


@given(st.text(alphabet="[]rankdeflt0123456789:() ,/.-|EW{}\r\t", max_size=200))
def test_any_line_can_be_split(raw: str):
    style = PrefixStyle({"task", "node", "container"})
    assert sum(len(line.text) for line in split_line(raw, style, UNKNOWN_WRITER)) <= len(raw)


def test_name_of_an_exception_behind_that_of_the_host_is_no_host():
    style = PrefixStyle({"node"})
    line = "gpu-a18: torch.distributed.DistNetworkError: The client socket has timed out"
    (piece,) = split_line(line, style, Writer())
    assert piece.writer.host == "gpu-a18" and piece.text.startswith("torch.distributed.")
    (alone,) = split_line("torch.distributed.DistNetworkError: x", style, Writer())
    assert not alone.writer.host
