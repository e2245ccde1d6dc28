"""DW401 and DW404: collectives that only some ranks reach, and correct code that looks like it."""

import pytest
from helpers.review_snippets import found, lines

BUGGY = {
    "under the process that writes": """
        class Trainer:
            def save(self, x):
                if self.args.should_save:
                    dist.all_reduce(x)
    """,
    "under rank == 0": """
        def validate(x, rank):
            if rank == 0:
                dist.all_reduce(x)
    """,
    "the other way round": """
        def validate(x):
            if dist.get_rank() != 0:
                return_value = x
                dist.all_reduce(x)
    """,
    "in the else branch": """
        def save(x, rank):
            if rank != 0:
                pass
            else:
                dist.barrier()
    """,
    "one rank in the middle": """
        def f(x):
            if dist.get_rank() == 1:
                dist.broadcast(x, 1)
    """,
    "local rank": """
        def f(local_rank):
            if local_rank == 0:
                dist.barrier()
    """,
    "a flag": """
        rank = int(os.environ["RANK"])
        is_saver = rank == 0
        def f(x):
            if is_saver:
                dist.all_reduce(x)
    """,
    "a flag by its name": """
        def f(args, x):
            if is_main_process():
                dist.gather_object(x, None)
    """,
    "a function of the file": """
        def first():
            if not dist.is_initialized():
                return True
            return dist.get_rank() == 0
        def f(x):
            if first():
                dist.all_reduce(x)
    """,
    "a key of a configuration": """
        def f(cfg, x):
            if cfg["rank"] == 0:
                dist.all_reduce(x)
    """,
    "an environment variable as text": """
        def f(x):
            if os.environ.get("RANK", "0") == "0":
                dist.all_reduce(x)
    """,
    "the last rank by its name": """
        def f(x, is_last_rank):
            if is_last_rank:
                dist.all_reduce(x)
    """,
    "a rank that is defined by itself": """
        def f(x, rank):
            rank = int(rank)
            if rank == 0:
                dist.all_reduce(x)
    """,
    "with other conditions": """
        def f(x, step, rank):
            if step % 10 == 0 and rank == 0:
                dist.all_reduce(x)
    """,
    "nested conditions": """
        def f(x, step, rank):
            if rank == 0:
                if step % 10 == 0:
                    dist.all_reduce(x)
    """,
    "in an expression": """
        def f(rank):
            rank == 0 and dist.barrier()
    """,
    "imported by name": """
        from torch.distributed import barrier as wait, get_rank
        def f():
            if get_rank() == 0:
                wait()
    """,
    "the default group by name": """
        def f(x, rank):
            if rank == 0:
                dist.all_reduce(x, group=dist.group.WORLD)
    """,
    "a helper that always makes it": """
        def total(x):
            y = x.clone()
            dist.all_reduce(y)
            return y
        def f(x, rank):
            if rank == 0:
                print(total(x))
    """,
    "a method": """
        class Trainer:
            def __init__(self):
                self.rank = dist.get_rank()
            def total(self, x):
                if not dist.is_initialized():
                    return x
                dist.all_reduce(x)
                return x
            def log(self, x):
                if self.rank == 0:
                    print(self.total(x))
    """,
    "a new group": """
        def f(rank):
            if rank == 0:
                group = dist.new_group([0, 1])
    """,
    "a decorator": """
        @rank_zero_only
        def save(model):
            dist.barrier()
    """,
    "behind a continue": """
        def f(xs, rank):
            for x in xs:
                if rank != 0:
                    continue
                dist.all_reduce(x)
    """,
}


@pytest.mark.parametrize("name", BUGGY)
def test_collective_that_only_some_ranks_reach_is_found(name: str) -> None:
    (finding,) = found(BUGGY[name], "DW401")
    assert finding.cause == "rank-conditional-collective"
    assert finding.severity == "error"
    assert finding.branch


CORRECT = {
    "the others through functions that call each other": """
        def pong(n):
            if n:
                ping(n - 1)
        def ping(n):
            pong(n)
            dist.barrier()
        def f(rank, n):
            if rank == 0:
                dist.barrier()
            else:
                pong(n)
    """,
    "on every rank": """
        def f(x, rank):
            dist.all_reduce(x)
            if rank == 0:
                print(x)
    """,
    "rank 0 first": """
        def load(rank):
            if rank != 0:
                dist.barrier()
            data = build()
            if rank == 0:
                dist.barrier()
            return data
    """,
    "rank 0 first, with the -1 of runs that are not distributed": """
        def load(args, evaluate):
            if args.local_rank not in [-1, 0] and not evaluate:
                dist.barrier()
            data = build()
            if args.local_rank == 0 and not evaluate:
                dist.barrier()
    """,
    "rank 0 first as a context manager": """
        from contextlib import contextmanager
        @contextmanager
        def first(local_rank):
            if local_rank not in [-1, 0]:
                dist.barrier(device_ids=[local_rank])
            yield
            if local_rank == 0:
                dist.barrier(device_ids=[0])
    """,
    "rank 0 first as a class": """
        class First:
            def __init__(self, rank):
                self.rank = rank
            def __enter__(self):
                if self.rank != 0:
                    dist.barrier()
            def __exit__(self, *_):
                if self.rank == 0:
                    dist.barrier()
    """,
    "both branches": """
        def f(x, rank):
            if rank == 0:
                objects = [x]
                dist.broadcast_object_list(objects)
            else:
                objects = [None]
                dist.broadcast_object_list(objects)
    """,
    "gather with and without a list": """
        def f(x, rank, world_size):
            if rank == 0:
                parts = [torch.empty_like(x) for _ in range(world_size)]
                dist.gather(x, gather_list=parts, dst=0)
            else:
                dist.gather(x, dst=0)
    """,
    "the other ranks left through the same barrier": """
        def load(rank):
            if rank != 0:
                dist.barrier()
                return read()
            data = build()
            dist.barrier()
            return data
    """,
    "leader and worker functions": """
        def lead(x):
            for _ in range(3):
                dist.broadcast(x, 0)
        def follow(x):
            while True:
                dist.broadcast(x, 0)
                if x[0] == 0:
                    break
        def main(rank, x):
            if rank == 0:
                lead(x)
            else:
                follow(x)
    """,
    "a leader that an optimizer calls back": """
        def step(optimizer, signal, rank):
            def closure():
                if rank == 0:
                    signal.fill_(1)
                    dist.broadcast(signal, src=0)
                return loss()
            if rank == 0:
                optimizer.step(closure)
                signal.fill_(0)
                dist.broadcast(signal, src=0)
            else:
                while True:
                    dist.broadcast(signal, src=0)
                    if signal.item() == 0:
                        break
                    closure()
    """,
    "a leader in a class, a worker in a function": """
        class Leader:
            def call(self, name):
                if self.rank == 0:
                    dist.broadcast_object_list([name], src=0)
        def answer():
            while True:
                name = [None]
                dist.broadcast_object_list(name, src=0)
                if name[0] is None:
                    return
        def main(rank):
            if rank != 0:
                answer()
                return
            Leader(rank).call(None)
    """,
    "a leader whose workers another file starts": """
        def call(name, rank):
            if rank == 0:
                dist.broadcast_object_list([name], src=0)
        def answer():
            while True:
                name = [None]
                dist.broadcast_object_list(name, src=0)
                if name[0] is None:
                    return
    """,
    "leader deeper down": """
        class Leader:
            def step(self, x):
                dist.broadcast(x, 0)
            def serve(self, x):
                self.step(x)
        def main(rank, x):
            if rank == 0:
                Leader().serve(x)
            else:
                dist.broadcast(x, 0)
    """,
    "the other side runs something unknown": """
        from server import serve
        def main(rank, x):
            if rank == 0:
                serve(x)
            else:
                dist.broadcast(x, 0)
    """,
    "send and receive": """
        def f(x, rank):
            if rank == 0:
                dist.send(x, 1)
            elif rank == 1:
                dist.recv(x, 0)
    """,
    "a pipeline": """
        def f(x, pp_rank):
            if pp_rank == 0:
                dist.isend(x, 1)
            else:
                dist.irecv(x, 0)
    """,
    "a group of its own": """
        def f(x, rank, group):
            if rank in (0, 1):
                dist.all_reduce(x, group=group)
            if rank == 0:
                dist.barrier(group)
    """,
    "raising ends the job": """
        def f(rank, path):
            if rank == 0 and os.path.exists(path):
                raise FileExistsError(path)
            dist.barrier()
    """,
    "the same on every rank": """
        def f(x, world_size, rank):
            if world_size > 1:
                dist.all_reduce(x)
            if rank >= 0:
                dist.all_reduce(x)
    """,
    "not distributed at all": """
        def f(x, args, rank):
            if not args.distributed:
                return
            if rank == 0 and not dist.is_initialized():
                dist.barrier()
    """,
    "an early return that is the same everywhere": """
        def f(x):
            if not dist.is_initialized() or dist.get_world_size() == 1:
                return x
            dist.all_reduce(x)
            return x
    """,
    "nothing after the early return": """
        def save(rank, x):
            if rank != 0:
                return
            torch.save(x, "x.pt")
    """,
    "a loop variable that is called rank": """
        def f(xs, world_size):
            for rank in range(world_size):
                if rank == 0:
                    dist.all_reduce(xs[rank])
    """,
    "the source of each broadcast in turn": """
        def f(x, rank, world_size):
            for source in range(world_size):
                if rank == source:
                    dist.broadcast(x, source)
                else:
                    dist.broadcast(torch.empty_like(x), source)
    """,
    "a function that is only defined under the test": """
        def f(rank):
            if rank == 0:
                def wait():
                    dist.barrier()
            dist.barrier()
    """,
    "a helper that waits only sometimes": """
        def save(x, wait):
            if wait:
                dist.barrier()
        def f(x, rank):
            if rank == 0:
                save(x, wait=False)
    """,
    "another library's barrier": """
        from threading import Barrier
        barrier = Barrier(2)
        def f(rank):
            if rank == 0:
                barrier.wait()
    """,
    "the rank of a matrix": """
        def f(x):
            rank = torch.linalg.matrix_rank(x)
            if rank == 0:
                print(x)
            dist.all_reduce(x)
    """,
    "waiting for each rank in turn": """
        def f(rank, world_size):
            for turn in range(world_size):
                if rank == turn:
                    print(rank)
                dist.barrier()
    """,
}


@pytest.mark.parametrize("name", CORRECT)
def test_collective_that_every_rank_reaches_is_not_a_finding(name: str) -> None:
    assert lines(CORRECT[name], "DW401") == []
    assert lines(CORRECT[name], "DW404") == []


def test_finding_is_at_the_collective_and_its_branch_at_the_condition() -> None:
    (finding,) = found(
        """
        def f(x, rank):
            if rank == 0:
                y = x.sum()
                dist.all_reduce(y)
                dist.barrier()
                print(y)
        """,
        "DW401",
    )
    assert (finding.branch, finding.line, finding.end_line, finding.column) == (6, 8, 9, 9)
    assert finding.message == (
        "all_reduce and barrier are reached by rank 0 alone: line 6 keeps the other ranks out (`rank == 0`)"
    )


@pytest.mark.parametrize(
    ("test", "who"),
    [
        ("rank == 0", "rank 0 alone"),
        ("rank", "the ranks but 0 alone"),
        ("not rank", "rank 0 alone"),
        ("rank > 0", "the ranks but 0 alone"),
        ("rank in [-1, 0]", "rank 0 alone"),
        ("rank == dist.get_world_size() - 1", "one rank alone"),
        ("args.local_rank == 0", "the first rank of each node alone"),
        ("int(os.environ['LOCAL_RANK']) != 0", "the ranks of each node but its first alone"),
        ("accelerator.is_local_main_process", "the first rank of each node alone"),
        ("not args.distributed or rank == 0", "rank 0 alone"),
        ("rank == 0 or args.everybody", "rank 0 alone"),
        ("0 < rank", "the ranks but 0 alone"),
    ],
)
def test_message_states_which_ranks_reach_the_collective(test: str, who: str) -> None:
    (finding,) = found(f"def f(x, rank, args, accelerator):\n    if {test}:\n        dist.all_reduce(x)\n", "DW401")
    assert who in finding.message


def test_collective_behind_an_early_return_is_found() -> None:
    (finding,) = found(
        """
        def save(x):
            if dist.get_rank() != 0:
                return
            torch.save(x, "x.pt")
            dist.barrier()
        """,
        "DW404",
    )
    assert finding.severity == "error"
    assert finding.message == (
        "barrier is not reached by all: the other ranks leave before it under line 6 (`dist.get_rank() != 0`)"
    )


def test_the_verb_agrees_with_one_rank() -> None:
    (finding,) = found(
        """
        def save(x):
            if dist.get_rank() == 0:
                return
            dist.barrier()
        """,
        "DW404",
    )
    assert "rank 0 leaves before it under line" in finding.message


def test_early_exit_under_a_further_condition_is_a_warning() -> None:
    (finding,) = found(
        """
        def main(args, rank):
            if rank == 0:
                if os.path.exists(args.out):
                    return -1
            dist.barrier()
        """,
        "DW404",
    )
    assert finding.severity == "warning"
    assert "rank 0 may leave before it under line 6" in finding.message


def test_two_branches_are_two_findings() -> None:
    code = """
        def f(x, rank):
            if rank == 0:
                dist.all_reduce(x)
            x = x * 2
            if rank == 0:
                dist.barrier()
    """
    assert lines(code, "DW401") == ["dist.all_reduce(x)", "dist.barrier()"]


def test_paired_collectives_do_not_hide_an_unpaired_one() -> None:
    code = """
        def load(rank):
            if rank != 0:
                dist.barrier()
            if rank == 0:
                dist.barrier()
        def save(rank):
            if rank == 0:
                dist.barrier()  # lonely
    """
    assert lines(code, "DW401") == ["dist.barrier()  # lonely"]


def test_rank_that_leaves_early_does_not_hide_what_ranks_do_behind_it() -> None:
    code = """
        def evaluate(x, rank):
            if rank != 0:
                return
            dist.all_reduce(x)  # of rank 0
        def main(args, x):
            rank = dist.get_rank()
            if rank == 0 and args.remote is not None:
                return
            if args.large:
                dist.barrier()  # behind the end of rank 0
            dist.all_gather_object([], x)
            evaluate(x, rank)
    """
    assert lines(code, "DW404") == ["dist.all_reduce(x)  # of rank 0", "dist.barrier()  # behind the end of rank 0"]
