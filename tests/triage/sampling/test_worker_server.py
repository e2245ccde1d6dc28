"""Answers of a rank's worker server, as text and over a socket."""

import asyncio
import faulthandler
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.jobs.types import Process
from ddpwizard.app.system import run_directory
from ddpwizard.app.training_script.frame import StackFrame
from ddpwizard.app.triage.sampling import worker_server

# As torch 2.13 answered under Python 3.11 (paths shortened).
TEXT = r"""
Current thread 0x00007efe67fff6c0 (most recent call first):
  <no Python frame>

Thread 0x00007efe5d7fa6c0 (most recent call first):
  File "/home/me/t.py", line 11 in n\xe4me
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007efe8da5cb80 (most recent call first):
  File "/home/me/t.py", line 14 in <module>
"""


class TestParseFaulthandler:
    def test_main_thread_and_other_threads(self) -> None:
        main, others = worker_server.parse_faulthandler(TEXT)
        assert main == [StackFrame("<module>", "/home/me/t.py", 14)]
        assert [(thread.name, thread.frames[0]) for thread in others] == [
            ("thread 0x7efe5d7fa6c0", StackFrame("näme", "/home/me/t.py", 11))
        ]

    def test_main_thread_by_its_id(self) -> None:
        main, _ = worker_server.parse_faulthandler(TEXT, "0x00007efe5d7fa6c0")
        assert main[0].function == "näme"

    def test_thread_names_of_newer_python(self) -> None:
        text = TEXT.replace("Thread 0x00007efe5d7fa6c0 (", "Thread 0x00007efe5d7fa6c0 [Thread-1 (feed)] (")
        assert worker_server.parse_faulthandler(text)[1][0].name == "Thread-1 (feed)"

    def test_unknown_lines_and_invalid_characters(self) -> None:
        text = TEXT.replace("line 14 in <module>", r"line ??? in a\udc80b")
        assert worker_server.parse_faulthandler(text)[0] == [StackFrame(r"a\udc80b", "/home/me/t.py", 0)]

    @pytest.mark.parametrize("text", ["", "\0\xff", "Thread 0x1 (most recent call first):", '  File "x", line 1 in f'])
    def test_other_text_has_no_threads(self, text: str) -> None:
        assert worker_server.parse_faulthandler(text) == ([], [])

    def test_output_of_this_python(self) -> None:
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            main, _ = worker_server.parse_faulthandler(file.read(), f"0x{threading.main_thread().ident:016x}")
        assert main[0] == StackFrame(self.test_output_of_this_python.__name__, __file__, main[0].line)


@contextmanager
def answering(answer: bytes | None) -> Iterator[Path]:
    """Serve this answer, or none, on a unix socket."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as server:
        path = Path(directory, "1.sock")
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.recv(1000)
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


class TestSocket:
    def ask(self, answer: bytes | None, limit_s: float = 0.5) -> object:
        with answering(answer) as path:
            return asyncio.run(worker_server.fetch_stacks(path, limit_s))

    def test_fetch_stacks(self) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(TEXT)}\r\n\r\n"
        assert self.ask((head + TEXT).encode(), 60) == worker_server.parse_faulthandler(TEXT)

    @pytest.mark.parametrize(
        "answer",
        [
            None,
            b"",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"x" * 200_000,
        ],
    )
    def test_invalid_or_missing_answer_is_none_within_the_limit(self, answer: bytes | None) -> None:
        assert self.ask(answer) is None

    def test_missing_socket_has_no_answer(self, tmp_path: Path) -> None:
        assert asyncio.run(worker_server.fetch_stacks(tmp_path / "1.sock")) is None


class TestWorkerSocket:
    def test_process_without_run_directory_has_no_socket(self) -> None:
        process = Process(pid=os.getpid(), rank=0, local_rank=0, command=[], cwd="/", python=sys.executable, environ={})
        assert worker_server.worker_socket(process) is None

    def test_record_of_another_user_or_process_is_ignored(self, tmp_path: Path) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            note = run_directory.RankRecordFile(pid=child.pid, started_ticks=1)
            (tmp_path / f"{child.pid}.json").write_bytes(msgspec.json.encode(note))
            assert run_directory.record_of(child.pid, str(tmp_path)) is None
        finally:
            child.communicate()
