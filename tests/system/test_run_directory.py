"""Records that ranks write of themselves, and which of them are trusted."""

import os
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.system import proc_files, run_directory
from ddpwizard.app.watchdog import environment


def own_record(**more: object) -> run_directory.RankRecordFile:
    ticks = int(proc_files.stat_fields(os.getpid())[19])
    return run_directory.RankRecordFile(**({"pid": os.getpid(), "started_ticks": ticks} | more))  # type: ignore[arg-type]


def write_record(record: run_directory.RankRecordFile, place: Path) -> Path:
    path = place / f"{record.pid}.json"
    path.write_bytes(msgspec.json.encode(record))
    return path


class TestFind:
    def test_record_of_a_living_process_is_found(self, tmp_path: Path) -> None:
        path = write_record(own_record(rank=3), tmp_path)
        found = run_directory.record_of(os.getpid(), str(tmp_path))
        assert found and found.samefile(path)

    def test_record_of_a_pid_used_again_is_ignored(self, tmp_path: Path) -> None:
        write_record(own_record(started_ticks=1), tmp_path)
        assert run_directory.record_of(os.getpid(), str(tmp_path)) is None

    @pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": "x"}', "\0\0", '{"pid": 1, "started_ticks": 1e99}'])
    def test_invalid_record_is_ignored(self, text: str, tmp_path: Path) -> None:
        (tmp_path / f"{os.getpid()}.json").write_text(text)
        assert run_directory.record_of(os.getpid(), str(tmp_path)) is None
        assert run_directory.read_records(tmp_path) == [] or text.startswith('{"pid": 1,')

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_record_of_another_user_is_ignored(self, tmp_path: Path) -> None:
        path = write_record(own_record(), tmp_path)
        os.chown(path, 12345, 12345)
        assert run_directory.record_of(os.getpid(), str(tmp_path)) is None

    def test_link_to_a_record_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        path = write_record(own_record(), tmp_path / "real")
        (tmp_path / path.name).symlink_to(path)
        assert run_directory.record_of(os.getpid(), str(tmp_path)) is None


class TestFolder:
    def test_run_directory_is_private_and_short_enough_for_a_socket(self) -> None:
        private = run_directory.create_run_directory()
        try:
            assert private.stat().st_mode & 0o777 == 0o700
            assert len(f"/proc/4194304/root{private}/4194304.sock") < 108
        finally:
            private.rmdir()

    def test_records_are_sorted_by_rank_and_filtered_by_life(self, tmp_path: Path) -> None:
        here = own_record(rank=1)
        gone = own_record(pid=2**22 - 1, rank=0)
        for each in (here, gone):
            write_record(each, tmp_path)
        assert run_directory.read_records(tmp_path) == [gone, here]
        assert run_directory.live_records([gone, here]) == [here]


class TestEnvironment:
    def test_rank_environment_has_the_hook_first_and_the_recorder_on(self, tmp_path: Path) -> None:
        given = environment.rank_environment({"PYTHONPATH": "/mine:", "HOME": "/root"}, tmp_path)
        assert given["PYTHONPATH"] == f"{environment.HOOK}:/mine:"
        assert (given["HOME"], given["TORCH_FR_BUFFER_SIZE"]) == ("/root", "2000")
        assert given[run_directory.FOLDER_VARIABLE] == str(tmp_path)
        assert (environment.HOOK / "sitecustomize.py").is_file()
        assert environment.rank_environment({}, tmp_path)["PYTHONPATH"] == str(environment.HOOK)

    def test_rank_environment_keeps_user_settings(self, tmp_path: Path) -> None:
        mine = {"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_FR_DUMP_TEMP_FILE": "/x"}
        assert mine.items() <= environment.rank_environment(mine, tmp_path).items()
        old = environment.rank_environment(
            {"TORCH_NCCL_TRACE_BUFFER_SIZE": "5", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/x"}, tmp_path
        )
        assert "TORCH_FR_BUFFER_SIZE" not in old and "TORCH_FR_DUMP_TEMP_FILE" not in old
