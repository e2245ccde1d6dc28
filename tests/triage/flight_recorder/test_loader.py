"""Dumps of every format and version are loaded; any other file content is reported as a problem."""

import contextlib
import json
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from ddpwizard.app.triage.flight_recorder.file_reader import host_in_name, load_file, rank_in_name
from ddpwizard.app.triage.flight_recorder.loader import load_records
from ddpwizard.app.triage.flight_recorder.parse import parse_dump, parse_json_record
from ddpwizard.app.triage.flight_recorder.safe_unpickle import DumpError
from ddpwizard.app.triage.types import RankRecord
from helpers.damaged_dumps import mutated, wholesome
from helpers.flight_recorder_dumps import dump, entry, in_json, pickled, write
from helpers.jobs import wait_for
from hypothesis import given, settings
from hypothesis import strategies as st

SEED, MUTATIONS = 11, 300


def only(folder: Path) -> RankRecord:
    """Return the record of the only file of a directory."""
    [path] = folder.iterdir()
    found = load_file(path, rank_in_name(path) or 0)
    assert found.record, found.problem
    return found.record


def problem(folder: Path, content: bytes) -> str:
    """Return the problem reported for a file with this content."""
    (folder / "trace_3").write_bytes(content)
    found = load_file(folder / "trace_3", 3)
    assert found.record is None
    return found.problem


def test_helper_pickles_load_with_pickle() -> None:
    content = dump([entry(number) for number in range(3)], {"0": range(2)})
    assert pickle.loads(pickled(content)) == content  # noqa: S301


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_load_records_reads_pickle_and_json(form: str, tmp_path: Path) -> None:
    entries = [entry(0, op="nccl:_all_gather_base", sizes=[[8]], out=[[16]], frames=()), entry(1, done=False)]
    record = only(write(tmp_path, {5: dump(entries, {"0": [4, 5]})}, form=form))
    assert (record.rank, record.backend, record.version, record.library) == (5, "nccl", "2.10", "2.27.3")
    assert [record.calls[at].collective for at in record.call] == ["all_gather_into_tensor", "all_reduce"]
    assert (record.seq, record.states) == ([1, 2], "de")
    assert record.groups[0].ranks == [4, 5]
    assert (record.groups[0].enqueued, record.groups[0].completed) == (2, 1)
    assert record.calls[1].where == ("/home/me/train.py:24" if form == "pickle" else "")
    assert msgspec.json.decode(msgspec.json.encode(record), type=RankRecord) == record


def test_gloo_entries_are_done_if_retired(tmp_path: Path) -> None:
    record = only(write(tmp_path, {0: dump([entry(n, op="gloo:all_reduce", done=n == 0) for n in range(2)])}))
    assert (record.backend, record.states, record.groups[0].ranks) == ("gloo", "de", [])


def test_group_status_without_entries_is_matched_by_order(tmp_path: Path) -> None:
    content = dump([], {"0": [0, 1], "7": [0, 1]})
    content["pg_status"] = {
        number: {"last_enqueued_collective": count, "last_completed_collective": count}
        for number, count in (("0", 11), ("3", 77))
    }
    record = only(write(tmp_path, {0: content}))
    assert {group.name: group.enqueued for group in record.groups} == {"0": 11, "7": 77}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.4", "2.9", "2.10"])
def test_older_dump_versions_lack_fields(version: str, tmp_path: Path) -> None:
    """As written by torch 2.4 to 2.13: later versions added the thread, the group status and the time-out."""
    content = dump([entry(0), entry(1, done=False)], {"0": [0, 1]}, version=version)
    for each in content["entries"]:
        for late in ("thread_name", "thread_id", "timeout_ms", "is_p2p", "retired")[: 5 if version == "2.0" else 2]:
            del each[late]
    if version == "2.0":
        del content["pg_status"]
    content["nccl_version"] = content.pop("comm_lib_version")
    record = only(write(tmp_path, {0: content}))
    assert (record.states, record.version, record.library) == ("de", version, "2.27.3")


@pytest.mark.parametrize("version", ["1.5", "3.0", "", "x"])
def test_unsupported_dump_version_is_reported(version: str, tmp_path: Path) -> None:
    assert "dump version" in problem(tmp_path, pickled(dump([entry(0)], version=version)))


def test_pickle_that_names_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    for protocol in (2, 3, 4, 5):
        reason = problem(tmp_path, pickle.dumps(dump([entry(0)], extra=Evil()), protocol))
        assert reason.startswith("refused: ")
    assert not (tmp_path / "ran").exists()


NOT_DUMPS = [
    (b"", "empty"),
    (b"hello", "neither a pickle nor JSON"),
    (b"{}", "not a Flight Recorder dump"),
    (b'{"version": "2.10", "entries": 5}', "not a Flight Recorder dump"),
    (b"[" * 100_000, "neither a pickle nor JSON"),
    (b'{"version":' + b"[" * 100_000, "not a Flight Recorder dump"),
    (b'{"version": "2.10", "entries": [', "cut off"),
    (b"\x80\x02" + b"]" * 100_000 + b".", "not a"),
    (b"\x80\x02}r\xff\xff\xff\x7f.", "claims more memory"),
    (b"\x80\x02}r\xff\xff\xff\x3f.", "claims more memory"),
    (b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 50, "claims more memory"),
    (b"\x80\x02X\xff\xff\xff\xffabc", "claims more memory"),
    (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.", "it would run code"),
    (pickled(dump([entry(0)]))[:-30], "cut off"),
]


def test_content_that_is_not_a_dump_is_reported(tmp_path: Path) -> None:
    intact = len(NOT_DUMPS)
    for rank, (content, _) in enumerate(NOT_DUMPS):
        (tmp_path / f"trace_{rank}").write_bytes(content)
    write(tmp_path, {intact: dump([entry(0)], {"0": range(4)})})
    found = load_records([tmp_path])
    assert [record.rank for record in found.records] == [intact]
    problems = dict(text.removeprefix(f"{tmp_path}/trace_").split(": ", 1) for text in found.problems)
    assert {rank: reason for rank, (_, reason) in enumerate(NOT_DUMPS) if reason not in problems[str(rank)]} == {}


def nested_by_reference(levels: int) -> list[Any]:
    """Return 10**levels numbers, held by ten references on each level."""
    inner: list[Any] = [1] * 10
    for _ in range(levels - 1):
        inner = [inner] * 10
    return inner


def shared_values(kind: str) -> bytes:
    """Return a dump whose shared values unfold to gigabytes."""
    if kind == "nested":
        content = dump([entry(0, sizes=nested_by_reference(13))])
    elif kind == "groups":
        content = dump([entry(0)])
        ranks = list(range(100_000))
        content["pg_config"] = {str(at): {"name": str(at), "desc": "", "ranks": ranks} for at in range(2000)}
    elif kind == "entries":
        content = dump([entry(0, sizes=[[1] * 100_000])] * 20_000)
    elif kind == "names":
        name = "nccl:" + "x" * 100_000
        content = dump([entry(0, op=name, frames=()) for _ in range(2000)])
    else:
        content = dump([entry(0)], extra=nested_by_reference(13))
    return pickle.dumps(content, 2)


@pytest.mark.parametrize("kind", ["nested", "groups", "entries", "names", "extra"])
def test_dump_of_shared_values_is_refused(kind: str, tmp_path: Path) -> None:
    content = shared_values(kind)
    assert len(content) < 1_000_000
    began = time.process_time()
    expected = "not a Flight Recorder dump (a field" if kind == "nested" else "refused: shared values"
    assert problem(tmp_path, content).startswith(expected)
    assert time.process_time() - began < 10  # it would take hours to read them


CONTAINERS = st.lists(
    st.tuples(st.booleans(), st.lists(st.one_of(st.integers(-30, -1), st.just("x" * 1000)), max_size=30)),
    min_size=1,
    max_size=30,
)


@given(CONTAINERS, st.sampled_from(["input_sizes", "process_group", "profiling_name", "frames", "state", "pg_config"]))
@settings(max_examples=150, deadline=2000)
def test_shared_containers_anywhere_are_read_or_refused(
    containers: list[tuple[bool, list[int | str]]], place: str
) -> None:
    """Each container holds references to those before it: -1 the last, -2 the one before, and so on."""
    made: list[Any] = [[1]]
    for is_tuple, parts in containers:
        inside = [part if isinstance(part, str) else made[max(part, -len(made))] for part in parts]
        made.append(tuple(inside) if is_tuple else inside)
    content = dump([entry(0), entry(1)])
    if place == "pg_config":
        content["pg_config"]["0"] = made[-1]
    else:
        content["entries"][1][place] = made[-1]
    with contextlib.suppress(DumpError):
        parse_dump(pickle.dumps(content, 2), 0)


def test_killed_reader_leaves_no_child(tmp_path: Path) -> None:
    content = pickled(dump([entry(at) for at in range(2000)]))
    for rank in range(400):
        (tmp_path / f"trace_{rank}").write_bytes(content)
    code = f"from ddpwizard.app.triage.flight_recorder.loader import load_records; load_records([{str(tmp_path)!r}])"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    own = psutil.Process(process.pid)
    below = wait_for(lambda: own.children(recursive=True)[1:], "a child process reads")
    process.kill()
    process.wait()
    assert psutil.wait_procs(below, timeout=20)[1] == []


def test_group_with_an_impossible_rank_has_no_members(tmp_path: Path) -> None:
    record = only(write(tmp_path, {0: dump([entry(0)], {"0": [0, 999_999_999]})}))
    assert record.groups[0].ranks == []


def test_sequence_number_beyond_64_bits_is_reported(tmp_path: Path) -> None:
    content = json.loads(in_json(dump([entry(0)])))
    content["entries"][0]["collective_seq_id"] = 10**30
    assert "not a Flight Recorder dump" in problem(tmp_path, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("trace_12", 12, ""),
        ("_dump_3", 3, ""),
        ("nccl_trace_rank_7", 7, ""),
        ("nccl_trace_node-07_rank_12", 12, "node-07"),
        ("rank3.json", 3, ""),
        ("comm_lib_trace_rank_0", 0, ""),
        ("dump", None, ""),
        ("dump_20261121", None, ""),
    ],
)
def test_rank_and_host_from_file_name(name: str, rank: int | None, host: str) -> None:
    assert (rank_in_name(Path(name)), host_in_name(Path(name))) == (rank, host)


def test_missing_rank_in_file_name_is_chosen_or_reported(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(pickled(dump([entry(0)])))
    assert "does not end with the rank's number" in load_records([tmp_path]).problems[0]
    assert load_records([tmp_path], lambda _: 4).records[0].rank == 4


def test_logs_are_skipped_and_duplicate_ranks_reported(tmp_path: Path) -> None:
    write(tmp_path, {1: dump([entry(0)])})
    (tmp_path / "rank_0.log").write_text("step 1")
    (tmp_path / "again_1").write_bytes(pickled(dump([entry(0)])))
    found = load_records([tmp_path, tmp_path / "nowhere"])
    assert [record.rank for record in found.records] == [1]
    assert [text.partition(": ")[2] for text in found.problems] == [
        "no such file or directory",
        f"rank 1 was already read from {tmp_path / 'again_1'}",
    ]


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ([], "no files in it"),
        (["a.log"], "its file is no dump; the name of a dump ends with the number of its rank"),
        (["a.log", "b.txt"], "none of its 2 files is a dump; the name of a dump ends with the number of its rank"),
    ],
)
def test_directory_without_dumps_is_reported(names: list[str], problem: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("x\n")
    assert load_records([tmp_path]).problems == [f"{tmp_path}: {problem}"]


def test_terminal_sequences_are_removed(tmp_path: Path) -> None:
    content = dump([entry(0, frames=[("step\x1b[31m", "/home/me/tr\u0007ain.py", 3)], group=("0", "a\x1b]0;b"))])
    text = msgspec.json.encode(only(write(tmp_path, {0: content}))).decode()
    assert "\\u001b" not in text
    assert "\\u0007" not in text


def test_parse_json_record_of_a_live_rank() -> None:
    record = parse_json_record(in_json(dump([entry(0, op="gloo:all_reduce")])), 2, "node-1")
    assert (record.rank, record.host, record.taken_at is not None) == (2, "node-1", True)
    with pytest.raises(DumpError):
        parse_json_record(b"HTTP/1.1 500", 2)


def test_damaged_dumps_are_read_or_reported(tmp_path: Path) -> None:
    random_, intact = random.Random(SEED), wholesome()
    for number in range(MUTATIONS):
        (tmp_path / f"trace_{number}").write_bytes(mutated(random_, intact[number % len(intact)]))
    found = load_records([tmp_path])
    assert len(found.records) + len(found.problems) == MUTATIONS
    assert not any("not read" in text for text in found.problems)


def test_report_does_not_import_torch() -> None:
    code = (
        "import sys, ddpwizard.app.triage.flight_recorder.report; sys.exit('torch' in sys.modules or 'numpy' "
        "in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
