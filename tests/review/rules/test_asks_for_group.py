"""Programs that make the process group only if there is none, in the ways in which people write that."""

from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.review_snippets import KNOWLEDGE, found, lines

WRITE = """
    with open("config.yaml", "w") as file:
        file.write(str(torch.rand(2)))
"""
GATHERS = """
    def is_distributed():
        return dist.is_available() and dist.is_initialized()
    def gathered(value):
        {}
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values
    print(gathered(1))
"""
ASKS = "if not is_distributed(): return [value]"
MAKES_GROUP = {
    "for a helper that asks for one": "    dist.init_process_group()" + GATHERS.format(ASKS),
    "elsewhere, for a helper that needs one": GATHERS.format("pass"),
    "if there is none": """
    def setup():
        if not dist.is_initialized():
            dist.init_process_group("gloo")
    setup()
    """,
    "if the library has groups and there is none": """
    def setup():
        if dist.is_available() and not dist.is_initialized():
            backend = "gloo"
            dist.init_process_group(backend)
    setup()
    """,
    "behind a return": """
    def setup():
        if dist.is_initialized():
            return
        dist.init_process_group("gloo")
    setup()
    """,
    "by a function": """
    def start():
        dist.init_process_group("gloo")
    if not dist.is_initialized():
        start()
    """,
    "behind a check of sizes": """
    world, parts = int(os.environ["WORLD_SIZE"]), int(os.environ["PARTS"])
    if world != parts * 2:
        raise ValueError("not divisible")
    dist.init_process_group("gloo")
    """,
}
ONE_PROCESS = {
    "a helper that gathers if there is a group": GATHERS.format(ASKS),
    "an error without a group": """
    if not dist.is_initialized():
        print("run this with torchrun")
    """,
}


@pytest.mark.parametrize("way", MAKES_GROUP)
def test_program_that_makes_the_group_runs_on_every_rank(way: str) -> None:
    assert lines(MAKES_GROUP[way] + WRITE, "DW412") == ['with open("config.yaml", "w") as file:']


@pytest.mark.parametrize("way", ONE_PROCESS)
def test_program_that_asks_for_a_group_may_be_one_process(way: str) -> None:
    assert found(ONE_PROCESS[way] + WRITE, "DW412") == []


@pytest.mark.parametrize(
    "port",
    [
        'os.environ.get("MASTER_PORT") or free()',
        'os.environ.get("MASTER_PORT", str(free()))',
        'os.getenv("MASTER_PORT")\n    if port is None:\n        port = free()',
    ],
)
def test_port_of_the_launcher_comes_before_a_free_one(port: str) -> None:
    code = f"""
    import socket
    def free():
        with socket.socket() as s:
            s.bind(("", 0))
            return s.getsockname()[1]
    port = {port}
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{{port}}", rank=int(os.environ["RANK"]), world_size=2)
    """
    assert found(code, "DW113") == []


def test_names_of_a_library_that_a_module_hands_on(tmp_path: Path) -> None:
    (tmp_path / "comm.py").write_text("from torch.distributed import *\n\n\ndef extra():\n    return 1\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import comm\n\ncomm.init_process_group('gloo')\nif comm.get_rank() == 0:\n"
        "    comm.barrier()\nprint(comm.extra())\n"
    )
    assert [(each.rule, each.line) for each in review_file(script, KNOWLEDGE)] == [("DW401", 5)]


CALLBACK = """
    import shutil
    from transformers import TrainerCallback

    class Keep(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            dist.barrier()

        def on_save(self, args, state, control, **kwargs):
            {condition}shutil.move("last", "kept")
"""


def test_method_of_a_callback_runs_on_every_rank_as_its_others_do() -> None:
    assert lines(CALLBACK.format(condition=""), "DW412") == ['shutil.move("last", "kept")']
    assert found(CALLBACK.format(condition="if state.is_world_process_zero: "), "DW412") == []
    assert found(CALLBACK.format(condition="").replace("(TrainerCallback)", ""), "DW412") == []
