"""Files that every rank opens to write: harmless if all write the same, lost if each writes something of its own."""

from textwrap import indent

import pytest
from helpers.review_snippets import IMPORTS, found, lines, repaired

START = """
import csv, json
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("nccl")
rank = dist.get_rank()
data = torch.ones(8, 2)
loader = DataLoader(data, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(2, 1))
"""
OF_ALL = {
    "settings": 'with open("config.json", "w") as file:\n    json.dump({"lr": 0.1}, file)',
    "settings in a file without a name": 'json.dump({"lr": 0.1}, open("config.json", "w"))',
    "a line for each epoch": 'log = open("log.txt", "w")\nfor epoch in range(3):\n    log.write(f"{epoch}")',
    "a sign in a file that is there": 'if os.path.exists("sign"):\n    open("sign", "w").write("0")',
    "results that one rank writes": """
with open("scores.txt", "w") as file:
    for batch in loader:
        if rank == 0:
            file.write(str(model(batch)))
""",
    "a number that all ranks have": """
total = torch.tensor(float(rank))
dist.all_reduce(total)
with open("total.txt", "w") as file:
    file.write(str(total.item()))
""",
}
OF_EACH = {
    "the rank": 'with open("rank.txt", "w") as file:\n    print(rank, file=file)',
    "losses": """
log = csv.writer(open("log.csv", "w"))
for batch in loader:
    loss = model(batch).sum()
    loss.backward()
    log.writerow([loss.item()])
""",
    "a line for each batch": 'log = open("log.txt", "w")\nfor batch in loader:\n    log.write(str(model(batch)))',
    "what is not known": 'with open("scores.txt", "w") as file:\n    scores.report(file)',
    "what is read as soon as it is there": """
if not os.path.exists("cache.json"):
    with open("cache.json", "w") as file:
        json.dump({"lr": 0.1}, file)
""",
    "what is read by its path as soon as it is there": """
from pathlib import Path
cache = Path("out") / "cache.json"
if not cache.exists() and rank >= 0:
    with open(cache, "w") as file:
        json.dump({"lr": 0.1}, file)
""",
    "a copy of a directory": 'import shutil\nshutil.copytree("src", "out/src")',
}


@pytest.mark.parametrize("code", OF_ALL.values(), ids=OF_ALL)
def test_what_all_ranks_write_alike_is_a_remark(code: str) -> None:
    assert [each.severity for each in found(START + code, "DW412")] == ["info"]


@pytest.mark.parametrize("code", OF_EACH.values(), ids=OF_EACH)
def test_what_ranks_write_over_each_other_is_a_warning(code: str) -> None:
    assert [each.severity for each in found(START + code, "DW412")] == ["warning"]


WITH_WRITER = """
from torch.utils.tensorboard import SummaryWriter
class Trainer:
    def begin(self):
        self.writer = SummaryWriter("runs")
    def log(self, loss):
        if not hasattr(self, "writer"):
            self.writer = SummaryWriter("runs")
        self.writer.add_scalar("loss", loss)
trainer = Trainer()
{}trainer.log(1.0)
"""


@pytest.mark.parametrize(("before", "line"), [("trainer.begin()\n", 5), ("", 8)])
def test_a_writer_that_is_there_is_not_made_again(before: str, line: int) -> None:
    first = len((IMPORTS + START).splitlines())
    results = found(START + WITH_WRITER.format(before), "DW412")
    assert [each.line - first for each in results if each.severity != "info"] == [line]


LOCKED = "with open('run.lock', 'w') as held:\n    fcntl.flock(held, fcntl.LOCK_EX)\n"
# Files that are only locked or are made by one rank, what is written instead, and the line that opens the file then.
LOCKS = {
    "a lock": (LOCKED + "    print(1)", "print(1)", "held.write(str(rank))"),
    "a lock by the number of the file": (
        LOCKED.replace("(held,", "(held.fileno(),") + "    print(1)",
        "print(1)",
        "json.dump({'rank': rank}, held)",
    ),
    "the process that has a lock": (LOCKED + "    held.write(str(os.getpid()))", "os.getpid()", "rank"),
    "a lock of a function": (
        "def take(path):\n    file = open(path, 'w')\n    fcntl.lockf(file, fcntl.LOCK_EX)\n    return file\n"
        "held = take('run.lock')\nheld.close()",
        "fcntl.lockf(file, fcntl.LOCK_EX)",
        "file.write(str(rank))",
    ),
    "a lock of an object": (
        "class Lock:\n    def __enter__(self):\n        self.file = open('run.lock', 'w')\n"
        "        fcntl.flock(self.file, fcntl.LOCK_EX)\n    def __exit__(self, *_):\n        self.file.close()\n"
        "with Lock():\n    print(1)",
        "fcntl.flock(self.file, fcntl.LOCK_EX)",
        "self.file.write(str(rank))",
    ),
    "a file of the rank that makes it": (
        "def new(path, flags):\n    return os.open(path, flags | os.O_EXCL)\n"
        "try:\n    held = open('run.lock', 'w', opener=new)\nexcept FileExistsError:\n    held = None\n"
        "if held:\n    held.write(str(rank))",
        "try:\n    held = open('run.lock', 'w', opener=new)\nexcept FileExistsError:\n    held = None",
        "held = open('run.lock', 'w')",
    ),
    "another file under a lock": (
        LOCKED + "    with open('rank.txt', 'w') as file:\n        file.write(str(rank))",
        "fcntl.flock(held, fcntl.LOCK_EX)",
        "fcntl.flock(held, fcntl.LOCK_SH)",
    ),
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_file_that_is_only_locked_is_not_written(name: str) -> None:
    code, replaced, by = LOCKS[name]
    start = START + "import fcntl\n"
    assert replaced in code
    assert [each.line for each in found(f"{start}{code}\n", "DW412") if each.severity != "info"] == []
    assert [each.severity for each in found(f"{start}{code.replace(replaced, by)}\n", "DW412")] == ["warning"]


RACES = {
    "a directory": ('os.makedirs("out")', "checkpoint-race"),
    "a file that is deleted": ('os.remove("last.pt")', "checkpoint-race"),
    "losses": ('with open("log.txt", "w") as file:\n    file.write(str(rank))', "checkpoint-race"),
    "settings that are the same": (
        'with open("config.json", "w") as file:\n    json.dump({}, file)',
        "all-ranks-side-effects",
    ),
    "an experiment": ("import wandb\nwandb.init()", "all-ranks-side-effects"),
}


@pytest.mark.parametrize(("code", "cause"), RACES.values(), ids=RACES.keys())
def test_ranks_that_are_in_each_others_way_race(code: str, cause: str) -> None:
    assert [each.cause for each in found(START + code, "DW412")] == [cause]


# A module without a program: a question for the rank shows that several ranks run a function, as it needs a group.
OF_A_GROUP = """
def export(config, trace):
    if config.profile:
        rank = dist.get_rank()
        if not os.path.exists(config.folder):
            os.makedirs(config.folder)
        trace.export(f"{config.folder}/{rank}.json")
"""
OF_ANY_PROCESS = """
def rank():
    return dist.get_rank() if dist.is_initialized() else 0
def export(config, trace):
    number = rank()
    if not os.path.exists(config.folder):
        os.makedirs(config.folder)
    trace.export(f"{config.folder}/{number}.json")
"""


def test_question_for_the_rank_shows_several_ranks() -> None:
    assert [each.cause for each in found(OF_A_GROUP, "DW412")] == ["checkpoint-race"]


def test_helper_that_works_without_a_group_shows_nothing() -> None:
    assert found(OF_ANY_PROCESS, "DW412") == []


OF_SEVERAL = """
from accelerate import Accelerator
import shutil
from torch.utils.tensorboard import SummaryWriter
accelerator = Accelerator()
{}
"""
FOR_OTHERS = {
    "a comparison with 0": 'if accelerator.is_main_process == 0:\n    shutil.copytree("out", "/output")',
    "a not": 'if not accelerator.is_main_process:\n    model.loss.to_csv("loss.csv")',
    "another operator": 'if accelerator.process_index != 0:\n    open("log.txt", "w").write(str(model.loss()))',
    "an early return": """
def save(results):
    if accelerator.is_main_process:
        return
    torch.distributed.barrier()
    results.to_json("results.json")
save(model.results())
""",
    "a part of the ranks": "if accelerator.process_index < 2:\n"
    '    open("log.txt", "w").write(str(accelerator.process_index))',
}
FOR_ONE = {
    "the main process": 'if accelerator.is_main_process:\n    shutil.copytree("out", "/output")',
    "a file of each": "if not accelerator.is_main_process:\n"
    '    open(f"log{accelerator.process_index}.txt", "w").write(str(model.loss()))',
    "output that goes nowhere": 'if not accelerator.is_main_process:\n    sys.stdout = open(os.devnull, "w")',
    "one rank of each node": 'if accelerator.is_local_main_process:\n    shutil.copytree("out", "/scratch")',
}


@pytest.mark.parametrize("code", FOR_OTHERS.values(), ids=FOR_OTHERS.keys())
def test_a_condition_that_lets_several_ranks_write_is_found(code: str) -> None:
    (finding,) = [each for each in found(OF_SEVERAL.format(code), "DW412") if each.severity != "info"]
    assert finding.cause == "all-ranks-side-effects"
    assert "several ranks write" in finding.message


@pytest.mark.parametrize("code", FOR_ONE.values(), ids=FOR_ONE.keys())
def test_a_condition_that_lets_one_rank_write_is_not(code: str) -> None:
    assert lines(OF_SEVERAL.format(code), "DW412") == []


def test_curves_of_one_rank_of_each_node_are_there_for_each_node() -> None:
    code = """
if logger == "tensorboard":
    writer = SummaryWriter("runs")
for step in range(10):
    if {}:
        writer.add_scalar("loss", 1.0, step)
"""
    (finding,) = found(OF_SEVERAL.format(code.format("accelerator.is_local_main_process")), "DW412")
    assert "once for each of them" in finding.message
    assert lines(OF_SEVERAL.format(code.format("accelerator.is_main_process")), "DW412") == []


def test_a_list_that_is_empty_on_one_way_has_no_known_length() -> None:
    code = """
if options.names:
    urls = [name.lower() for name in options.names]
else:
    urls = []
if len(urls) > 0:
    shutil.copytree("out", "/output")
"""
    assert len(lines(OF_SEVERAL.format(code), "DW412")) == 1


@pytest.mark.parametrize(
    "made",
    [
        'from torch_geometric.datasets import Reddit\ndata = Reddit("data")',
        'from torch_geometric.datasets import Planetoid\ndata = Planetoid(root="data", name="Cora")',
        'from ogb.nodeproppred import PygNodePropPredDataset\ndata = PygNodePropPredDataset("products", root="data")',
    ],
)
def test_a_graph_that_every_rank_downloads_is_found(made: str) -> None:
    assert len(lines(OF_SEVERAL.format(made), "DW412")) == 1
    first = f"with accelerator.main_process_first():\n    {made.splitlines()[1]}"
    assert lines(OF_SEVERAL.format(made.splitlines()[0] + "\n" + first), "DW412") == []


def test_a_log_of_dllogger_that_every_rank_opens_is_found() -> None:
    code = "import dllogger\n{}dllogger.init(backends=[dllogger.JSONStreamBackend(1, 'log.json')])"
    (finding,) = found(OF_SEVERAL.format(code.format("")), "DW412")
    assert (finding.severity, finding.cause) == ("warning", "all-ranks-side-effects")
    assert lines(OF_SEVERAL.format(code.format("if accelerator.is_main_process:\n    ")), "DW412") == []


IF_MISSING = "if not os.path.exists(args.out):\n    os.makedirs(args.out)\n"
IN_TURNS = "if rank == 0 and not os.path.exists(args.out):\n    os.makedirs(args.out)\n"
AGAIN = "def train(out):\n    if not os.path.isdir(out):\n        os.makedirs(out)\ntrain(args.out)\n"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        (IF_MISSING + AGAIN, 1),
        (IN_TURNS + "dist.barrier()\n" + AGAIN, 0),
        (IN_TURNS + AGAIN, 1),
        (IN_TURNS + "dist.barrier()\n" + AGAIN.replace("train(args.out)", "train(args.logs)"), 1),
        ("if args.keep:\n    os.makedirs(args.out, exist_ok=True)\n" + AGAIN, 1),
        ("os.makedirs(args.out, exist_ok=True)\n" + AGAIN, 0),
        (AGAIN, 1),
    ],
)
def test_a_directory_is_made_once_where_it_is_missing(code: str, count: int) -> None:
    assert len(found(START + code, "DW412")) == count


def test_a_file_that_is_saved_into_is_opened_by_the_same_rank() -> None:
    inside = 'with open("last.pt", "wb") as file:\n    torch.save({}, file)\n'
    first = "if not dist.is_initialized() or dist.get_rank() == 0:\n"
    assert repaired(START + inside, "DW501").endswith(first + indent(inside, "    "))
    (before,) = found(START + 'file = open("last.pt", "wb")\ntorch.save({}, file)\n', "DW501")
    assert before.fix and not before.fix.edits
    given = 'with open("names.txt") as names:\n    torch.save({}, "last.pt")\n'
    assert f"    {first}        torch.save" in repaired(START + given, "DW501")
