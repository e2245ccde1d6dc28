"""Child processes: answers on a descriptor, output of any size and encoding, exit codes, limits."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from ddpwizard.app.system.subprocesses import LINE_LIMIT_BYTES, LOG_TAIL_BYTES, ProcessOutcome, run_process


def python(code: str, **options: object) -> ProcessOutcome:
    return asyncio.run(run_process([sys.executable, "-c", code], **{"limit_s": 30, **options}))  # type: ignore[arg-type]


def open_descriptors() -> set[str]:
    """Return the open descriptors of this process by their target."""
    found: set[str] = set()
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that listed them
            found.add(f"{fd.name} {fd.readlink()}")
    return found


def test_answer_and_log_are_separate() -> None:
    outcome = python(
        "import os, sys; print('to stdout'); print('to stderr', file=sys.stderr); "
        "os.write(int(os.environ['DDPWIZARD_ANSWER_FD']), b'{\"a\": 1}')",
        answers=True,
    )
    assert (outcome.status, outcome.code, outcome.answer) == ("ok", 0, b'{"a": 1}')
    assert sorted(outcome.log.split("\n")) == ["", "to stderr", "to stdout"]


@pytest.mark.parametrize("code", [1, 2, 124, 125, 126, 127, 137, 255])
def test_exit_code_is_that_of_the_child(code: int) -> None:
    """124 and 127, which timeout(1) and shells use, are exit codes like any other."""
    outcome = python(f"raise SystemExit({code})")
    assert (outcome.status, outcome.code) == ("failed", code)
    assert outcome.why == f"ended with code {code}"


def test_death_by_signal_is_128_plus_its_number() -> None:
    outcome = python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (outcome.status, outcome.code) == ("failed", 128 + 11)


def test_time_limit_with_a_child_that_ignores_sigterm() -> None:
    code = "trap '' TERM; echo deaf; sleep 60"  # in the shell, which starts at once on a busy machine too
    outcome = asyncio.run(run_process(["sh", "-c", code], limit_s=2.0))
    assert outcome.status == "timed_out"
    assert outcome.log == "deaf\n"
    assert 2.0 <= outcome.elapsed_s < 40
    assert outcome.why == "did not answer within 2 s"


def test_missing_program_is_not_started() -> None:
    outcome = asyncio.run(run_process(["/no/such/program", "x"], limit_s=5))
    assert outcome.status == "not_started"
    assert outcome.why == "cannot start /no/such/program: No such file or directory"


def test_file_that_is_no_program_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    outcome = asyncio.run(run_process([str(tmp_path / "text")], limit_s=5))
    assert outcome.status == "not_started"
    assert "Permission denied" in outcome.why


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        (["true"], {"cwd": Path("/no/such/directory")}, "No such file"),
        (["true", "x" * 4_000_000], {}, "too long"),
        (["true", "nul\0byte"], {}, "null byte"),
    ],
)
def test_invalid_call_is_not_started(command: list[str], options: dict[str, Path], says: str) -> None:
    outcome = asyncio.run(run_process(command, limit_s=5, **options))  # type: ignore[arg-type]
    assert outcome.status == "not_started"
    assert says in outcome.why


def test_huge_output_keeps_only_its_end() -> None:
    lines = 0

    def count(_line: str) -> None:
        nonlocal lines
        lines += 1

    code = "import sys\nfor i in range(300_000): sys.stdout.write(f'line {i}\\n')\nsys.exit(3)"
    outcome = python(code, on_output=count)
    assert lines == 300_000
    assert len(outcome.log) == LOG_TAIL_BYTES
    assert outcome.log.endswith("line 299999\n")
    assert outcome.why == "ended with code 3: line 299999"


def test_line_without_end_is_passed_on_in_pieces() -> None:
    received: list[str] = []
    python("import sys; sys.stdout.write('x' * 5_000_000 + 'end')", on_output=received.append)
    assert "".join(received) == "x" * 5_000_000 + "end"
    assert max(map(len, received)) <= 2 * LINE_LIMIT_BYTES


def test_large_answer_is_complete() -> None:
    code = "import os; fd = int(os.environ['DDPWIZARD_ANSWER_FD']); os.fdopen(fd, 'wb').write(b'a' * 40_000_000)"
    assert python(code, answers=True).answer == b"a" * 40_000_000


def test_bytes_that_are_no_text_are_replaced() -> None:
    received: list[str] = []
    outcome = python("import sys; sys.stdout.buffer.write(b'\\xff\\x00ok\\n')", on_output=received.append)
    assert received == ["\ufffd\0ok"]
    assert outcome.log == "\ufffd\0ok\n"


def test_lines_are_passed_on_while_the_child_runs() -> None:
    async def scenario() -> None:
        first: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        code = "import time; print('first', flush=True); time.sleep(60)"

        def received(line: str) -> None:
            if not first.done():
                first.set_result(line)

        task = asyncio.create_task(run_process([sys.executable, "-c", code], limit_s=60, on_output=received))
        assert await asyncio.wait_for(first, 50) == "first"
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_failing_listener_fails_the_call() -> None:
    def broken(line: str) -> None:
        raise KeyError(line)

    with pytest.raises(KeyError):
        python("print('one'); import time; time.sleep(60)", on_output=broken)


def test_only_the_answer_descriptor_is_inherited() -> None:
    code = (
        "import os; listed = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
        "for fd in listed:\n"
        "    try: print(os.fstat(fd) and fd)\n"
        "    except OSError: pass\n"
        "print(os.environ['DDPWIZARD_ANSWER_FD'])"
    )
    *inherited, own = map(int, python(code, answers=True).log.split())
    assert sorted(inherited) == sorted([0, 1, 2, own])


def test_environment_is_the_one_given() -> None:
    outcome = python("import os; print(os.environ.get('GIVEN'), os.environ.get('HOME'))", env={"GIVEN": "yes"})
    assert outcome.log == "yes None\n"


def test_no_descriptor_is_left_open() -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(run_process(["sleep", "60"], limit_s=60, answers=True))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    before = open_descriptors()
    python("print(1)", answers=True)
    asyncio.run(run_process(["/no/such/program"], limit_s=5, answers=True))
    asyncio.run(run_process(["true"], limit_s=5, answers=True, cwd=Path("/no/such/directory")))
    asyncio.run(cancelled())
    assert open_descriptors() == before


def test_many_children_at_a_time() -> None:
    async def scenario() -> list[ProcessOutcome]:
        return await asyncio.gather(*(run_process(["sh", "-c", f"echo {i}"], limit_s=30) for i in range(12)))

    assert [outcome.log for outcome in asyncio.run(scenario())] == [f"{i}\n" for i in range(12)]
