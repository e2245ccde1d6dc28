"""DW437: names that only some ranks set and others read, and look-alikes that are right."""

import textwrap

import pytest
from helpers.review_snippets import found, lines

TRAINER = """
class Trainer:
    def __init__(self):
        {}
        if rank == 0:
            self.log = open("log.txt", "a")
    def report(self):
        {}
trainer = Trainer()
for step in range(3):
    trainer.report()
"""
START = """
dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
"""
FOUND = {
    "an attribute of rank 0": (TRAINER.format("pass", 'self.log.write("step")'), 'self.log.write("step")'),
    "an attribute that rank 0 sets in one of three ways": (
        """
        class Log:
            def __init__(self, kind):
                if rank == 0 and kind == 1:
                    self.file = open("one.txt", "a")
                if rank == 0 and kind == 2:
                    self.file = open("two.txt", "a")
                if rank == 0 and kind > 2:
                    self.file = open("more.txt", "a")
            def report(self):
                self.file.write("step")
        log = Log(int(sys.argv[1]))
        log.report()
        """,
        'self.file.write("step")',
    ),
    "a log that rank 0 opens": (
        """
        if rank == 0:
            log = open("log.txt", "a")
        for step in range(3):
            log.write("step")
        """,
        'log.write("step")',
    ),
    "a closure over a name of rank 0": (
        """
        def main():
            if rank == 0:
                log = open("log.txt", "a")
            def report():
                if local_rank == 0:
                    log.write("done")
            report()
        main()
        """,
        'log.write("done")',
    ),
    "a name of the other ranks": (
        """
        if rank == 0:
            print("first")
        else:
            state = torch.zeros(1)
        dist.broadcast(state, 0)
        """,
        "dist.broadcast(state, 0)",
    ),
    "a name of rank 0 in a function that a context manager decorates": (
        """
        import contextlib
        @contextlib.contextmanager
        def quiet(model):
            model.eval()
            yield
        def main(model):
            if rank == 0:
                best = 0.0
            @quiet(model)
            def evaluate():
                print(best)
            evaluate()
        main(torch.nn.Linear(2, 2))
        """,
        "print(best)",
    ),
}
SILENT = {
    "an attribute that is None for the others": TRAINER.format("self.log = None", "print(self.log)"),
    "an attribute that only rank 0 reads": TRAINER.format("pass", "print(self.log if rank == 0 else None)"),
    "an attribute that is asked for": TRAINER.format(
        "pass", 'if hasattr(self, "log"):\n            self.log.write("step")'
    ),
    "read under the same condition": "if rank == 0:\n    log = 1\ndist.barrier()\nif rank == 0:\n    print(log)",
    "set for all before": "log = None\nif rank == 0:\n    log = 1\nprint(log)",
    "set on the other side as well": "if rank == 0:\n    log = 1\nelse:\n    log = None\nprint(log)",
    "the others have left": "if rank == 0:\n    log = 1\nelse:\n    raise SystemExit\nprint(log)",
    "the others return by two conditions": """
        def main(sharded):
            if not sharded and rank != 0:
                return
            if rank == 0:
                batches = iter([1])
            if sharded:
                dist.barrier()
            else:
                print(next(batches))
        main(bool(os.environ.get("SHARDED")))
    """,
    "only the first rank asks for it": "if rank == 0:\n    log = 1\nprint(log if rank == 0 else None)",
    "asked whether it is there": "if rank == 0:\n    log = 1\nif 'log' in globals():\n    print(log)",
    "the error is caught": "if rank == 0:\n    log = 1\ntry:\n    print(log)\nexcept NameError:\n    pass",
    "set again for all": "if rank == 0:\n    log = 1\nlog = 2\nprint(log)",
    "a builtin that other ranks replace": "if rank != 0:\n    def print(*given):\n        pass\nprint('step')",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_name_that_some_ranks_lack_is_found(name: str) -> None:
    snippet, line = FOUND[name]
    assert lines(START + textwrap.dedent(snippet), "DW437") == [line]


@pytest.mark.parametrize("name", SILENT)
def test_a_name_that_every_reader_has_is_no_finding(name: str) -> None:
    assert not found(START + textwrap.dedent(SILENT[name]), "DW437")


def test_the_condition_under_which_a_name_is_set_is_named() -> None:
    (finding,) = found(f"{START}if rank == 0:\n    log = 1\nprint(log)\n", "DW437")
    assert (finding.branch, finding.related[0].line) == (7, 7)
    assert "only rank 0 has set `log`" in finding.message
