"""DW101: the global rank used as the number of a GPU, and correct code that looks like it."""

import textwrap

import pytest
from helpers.review_snippets import IMPORTS, apply_fixes, found, lines, refused, repaired

RANK = {
    "the environment": 'rank = int(os.environ["RANK"])',
    "the environment with a default": 'rank = int(os.environ.get("RANK", 0))',
    "getenv": 'rank = int(os.getenv("RANK", "0"))',
    "the process group": "rank = dist.get_rank()",
    "only when there is one": "rank = dist.get_rank() if dist.is_initialized() else 0",
    "Slurm": 'rank = int(os.environ["SLURM_PROCID"])',
}
OBJECTS = {
    "an attribute named after all nodes": """
        from deepspeed.accelerator import get_accelerator
        class Trainer:
            def __init__(self, config):
                self.global_rank = config.global_rank
            def device(self):
                return torch.device(get_accelerator().device_name(self.global_rank))
    """,
    "an attribute that is None first": """
        class Optimizer:
            def __init__(self):
                self._rank = None
                if dist.is_initialized():
                    self._rank = dist.get_rank()
                else:
                    self._rank = 0
            def step(self):
                return torch.device(f"cuda:{self._rank}")
    """,
    "an attribute that a function makes for each object": """
        from dataclasses import dataclass, field
        def own_rank():
            return int(os.environ["RANK"])
        @dataclass
        class Settings:
            number: int = field(default_factory=own_rank)
            def start(self):
                return torch.device(f"cuda:{self.number}")
    """,
    "an option named local_rank that holds another rank": """
        def evaluate(args):
            return torch.device(f"cuda:{args.local_rank}")
        def main():
            args = parse()
            torch.cuda.set_device(args.local_rank)
            args.local_rank = dist.get_rank()
            evaluate(args)
        main()
    """,
    "a variable that is 0 without a process group": """
        def setup():
            if dist.is_initialized():
                rank = dist.get_rank()
            else:
                rank = 0
            return torch.device(f"cuda:{rank}")
        setup()
    """,
}
USE = {
    "set_device": "torch.cuda.set_device(rank)",
    "a device": 'device = torch.device("cuda", rank)',
    "a string": 'device = torch.device(f"cuda:{rank}")',
    "a joined string": 'x.to("cuda:" + str(rank))',
    "a percent string": 'x.to("cuda:%d" % rank)',
    "a format string": 'x.to("cuda:{}".format(rank))',
    "to": "model.to(rank)",
    "cuda": "model.cuda(rank)",
    "device_ids": "torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])",
    "device_ids on a GPU only": (
        "torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if torch.cuda.is_available() else None)"
    ),
    "device_ids or none": "torch.nn.parallel.DistributedDataParallel(model, device_ids=cuda and [rank] or None)",
    "a number on a GPU only": 'y = torch.zeros(1, device=rank if torch.cuda.is_available() else "cpu")',
    "device=": "y = torch.zeros(1, device=rank)",
    "a variable": "device = rank",
}


@pytest.mark.parametrize("rank", RANK)
def test_every_source_of_the_global_rank_is_recognised(rank: str) -> None:
    assert lines(f"{RANK[rank]}\ntorch.cuda.set_device(rank)\n", "DW101") == ["torch.cuda.set_device(rank)"]


@pytest.mark.parametrize("held", OBJECTS)
def test_the_global_rank_is_recognised_where_it_is_kept(held: str) -> None:
    (line,) = lines(OBJECTS[held], "DW101")
    assert line.startswith("return torch.device")


def test_a_function_that_only_its_name_connects_with_the_node() -> None:
    asked = "def get_local_rank():\n    return dist.get_rank() if dist.is_initialized() else 0\n"
    set_ = "torch.cuda.set_device(get_local_rank())"
    assert lines(f"{asked}{set_}\n", "DW101") == [set_]


def test_a_device_that_deepspeed_sets() -> None:
    code = "from deepspeed.accelerator import get_accelerator\nget_accelerator().set_device(dist.get_rank())\n"
    assert lines(code, "DW101") == ["get_accelerator().set_device(dist.get_rank())"]


@pytest.mark.parametrize("use", USE)
def test_every_form_of_a_device_number_is_found_and_fixed(use: str) -> None:
    code = f"rank = dist.get_rank()\n{USE[use]}\n"
    assert lines(code, "DW101") == [USE[use]]
    quote = "'" if 'f"' in USE[use] else '"'
    local = f"int(os.environ.get({quote}LOCAL_RANK{quote}, rank))"
    changed = USE[use].replace("rank", local) if "rank" in USE[use] else USE[use]
    assert repaired(code, "DW101") == f"rank = dist.get_rank()\n{changed}\n"


def test_device_ids_in_a_variable_are_fixed_with_the_device() -> None:
    code = """
        def main(cuda):
            rank = dist.get_rank()
            device = torch.device("cuda", rank) if cuda else torch.device("cpu")
            ids = [rank] if cuda else None
            torch.nn.parallel.DistributedDataParallel(model.to(device), device_ids=ids)
    """
    local = 'int(os.environ.get("LOCAL_RANK", rank))'
    after = textwrap.dedent(code).replace(", rank)", f", {local})").replace("[rank]", f"[{local}]")
    assert repaired(code, "DW101") == after


CORRECT = {
    "no GPU chosen": """
        rank = dist.get_rank()
        local_rank = int(os.environ["LOCAL_RANK"])
        ids = [local_rank] if torch.cuda.is_available() else None
        torch.nn.parallel.DistributedDataParallel(model, device_ids=ids)
        torch.zeros(1, device="cuda" if rank == 0 else "cpu")
    """,
    "LOCAL_RANK": """
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
    """,
    "LOCAL_RANK under the name rank": """
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        model.to(rank)
    """,
    "modulo the number of GPUs": """
        rank = dist.get_rank()
        torch.cuda.set_device(rank % torch.cuda.device_count())
        device = rank % args.gpus_per_node
        model.to(device)
    """,
    "the index mp.spawn gives": """
        import torch.multiprocessing as mp
        def work(rank, world_size):
            dist.init_process_group("nccl", rank=rank, world_size=world_size)
            torch.cuda.set_device(rank)
            model.to(dist.get_rank())
        mp.spawn(work, args=(4,), nprocs=4)
    """,
    "a parameter nobody shows the origin of": """
        def setup(rank):
            torch.cuda.set_device(rank)
    """,
    "an option of the command line": """
        torch.cuda.set_device(args.local_rank)
        model.to(args.rank)
    """,
    "one node, as the script checks": """
        rank = dist.get_rank()
        assert dist.get_world_size() <= torch.cuda.device_count()
        torch.cuda.set_device(rank)
    """,
    "one node, as the world is its GPUs": """
        world_size = torch.cuda.device_count()
        def f():
            torch.cuda.set_device(dist.get_rank())
    """,
    "a loop over devices": """
        for rank in range(torch.cuda.device_count()):
            torch.cuda.set_device(rank)
    """,
    "only printed": """
        rank = dist.get_rank()
        print(f"rank {rank} is on cuda:{rank}")
        logger.info("to", rank)
    """,
    "no device": """
        rank = dist.get_rank()
        torch.manual_seed(rank)
        sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=rank)
        x.to(torch.float32)
    """,
    "the index on the node of Accelerate": """
        from accelerate import Accelerator
        accelerator = Accelerator()
        torch.cuda.set_device(accelerator.local_process_index)
    """,
    "a rank of a group": """
        rank = dist.get_rank(group=group)
        torch.cuda.set_device(rank)
    """,
    "a function that computes the local rank": """
        def get_local_rank():
            return dist.get_rank() % 8
        torch.cuda.set_device(get_local_rank())
    """,
    "a function that asks for the rank among those of the node": """
        def get_local_rank():
            return dist.get_rank(NODE)
        torch.cuda.set_device(get_local_rank())
    """,
    "a function that is named after the local rank": """
        GROUP = None
        def get_local_rank():
            if GROUP is None:
                return dist.get_rank()
            return dist.get_rank(group=GROUP)
        torch.cuda.set_device(get_local_rank())
    """,
    "a unit test": """
        import unittest
        class TestShards(unittest.TestCase):
            def test_it(self):
                torch.cuda.set_device(dist.get_rank())
    """,
    "each rank sees one GPU": """
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["RANK"]
        torch.cuda.set_device(dist.get_rank())
    """,
}


@pytest.mark.parametrize("name", CORRECT)
def test_local_rank_as_device_is_not_a_finding(name: str) -> None:
    assert lines(CORRECT[name], "DW101") == []


def test_finding_of_a_function_lists_all_its_lines() -> None:
    (finding,) = found(
        """
        def main():
            rank = dist.get_rank()
            torch.cuda.set_device(rank)
            model.to(rank)
        """,
        "DW101",
    )
    assert (finding.line, finding.column) == (7, 27)
    assert finding.message == "`rank` is the global rank and is used as the number of a GPU (also line 8)"


def test_patch_uses_the_variable_that_holds_the_local_rank() -> None:
    code = """
        rank = int(os.environ["RANK"])
        local_rank = int(os.environ["LOCAL_RANK"])
        def main():
            torch.cuda.set_device(rank)
            model.to(rank)
    """
    assert repaired(code, "DW101") == textwrap.dedent(code).replace("(rank)", "(local_rank)")


READ_LIKE = {
    "a default": ('int(os.environ.get("RANK", 0))', 'int(os.environ.get("LOCAL_RANK", 0))'),
    "a default as text": ('int(os.getenv("RANK", "0"))', 'int(os.getenv("LOCAL_RANK", "0"))'),
    "no default": ("int(os.environ['RANK'])", 'int(os.environ["LOCAL_RANK"])'),
    "one rank without a process group": (
        "dist.get_rank() if dist.is_initialized() else 0",
        'int(os.environ.get("LOCAL_RANK", rank))',
    ),
    "minus one without a launcher": (
        'int(os.environ["RANK"]) if "RANK" in os.environ else -1',
        'int(os.environ.get("LOCAL_RANK", rank))',
    ),
    "Slurm": ('int(os.environ.get("SLURM_PROCID", 0))', 'int(os.environ.get("SLURM_LOCALID", 0))'),
}


@pytest.mark.parametrize("name", READ_LIKE)
def test_patch_keeps_the_default_of_a_run_without_a_launcher(name: str) -> None:
    rank, local = READ_LIKE[name]
    before = f"rank = {rank}\ntorch.cuda.set_device(rank)\n"
    assert repaired(before, "DW101") == f"rank = {rank}\ntorch.cuda.set_device({local})\n"


def test_patch_keeps_the_default_in_place_and_in_an_f_string() -> None:
    code = """
        device = torch.device(f"cuda:{int(os.environ.get('RANK', 0))}")
        torch.cuda.set_device(int(os.environ.get("RANK", 0)))
    """
    assert repaired(code, "DW101") == textwrap.dedent(code).replace("RANK", "LOCAL_RANK")


def test_patch_reads_the_local_rank_of_the_launcher_that_gives_the_rank() -> None:
    code = """
        dist.init_process_group("nccl", rank=int(os.environ["SLURM_PROCID"]), world_size=8)
        torch.cuda.set_device(dist.get_rank())
    """
    assert 'set_device(int(os.environ.get("SLURM_LOCALID", dist.get_rank())))' in repaired(code, "DW101")


def test_no_patch_if_the_rank_comes_from_nowhere_known() -> None:
    code = """
        dist.init_process_group("nccl", rank=args.number, world_size=8)
        torch.cuda.set_device(dist.get_rank())
    """
    assert "no known launcher" in refused(code, "DW101")


def test_patch_does_not_use_a_variable_that_may_be_unbound() -> None:
    code = """
        def main(args):
            torch.cuda.set_device(dist.get_rank())
            if args.late:
                early = int(os.environ["LOCAL_RANK"])
            local_rank = int(os.environ["LOCAL_RANK"])
    """
    assert 'set_device(int(os.environ.get("LOCAL_RANK", dist.get_rank())))' in repaired(code, "DW101")


def test_patch_imports_os_if_it_is_missing() -> None:
    before = (
        '"""Train."""\nfrom __future__ import annotations\n\nimport torch\nimport torch.distributed as dist\n\n'
        "torch.cuda.set_device(dist.get_rank())\nmodel.to(dist.get_rank())\n"
    )
    after, _ = apply_fixes(before, None, ["unsafe"])
    local = 'int(os.environ.get("LOCAL_RANK", dist.get_rank()))'
    assert after == before.replace("\nimport torch\n", "\nimport os\nimport torch\n").replace("dist.get_rank()", local)


def test_patch_uses_the_alias_of_os() -> None:
    before = (
        "import os as system\nimport torch\nimport torch.distributed as dist\ntorch.cuda.set_device(dist.get_rank())\n"
    )
    after, _ = apply_fixes(before, None, ["unsafe"])
    assert 'set_device(int(system.environ.get("LOCAL_RANK", dist.get_rank())))' in after


def test_patch_uses_local_process_index_of_accelerate() -> None:
    code = """
        from accelerate import Accelerator
        def device():
            accelerator = Accelerator()
            current_device = accelerator.process_index
            return current_device
    """
    assert "current_device = accelerator.local_process_index" in repaired(code, "DW101")


def test_no_patch_if_no_launcher_sets_local_rank() -> None:
    why = refused(
        """
        import torch.multiprocessing as mp
        def work(gpu, node):
            rank = node * 8 + gpu
            helper(rank)
        def helper(rank):
            torch.cuda.set_device(rank)
        mp.spawn(work, args=(1,), nprocs=8)
        """,
        "DW101",
    )
    assert "no known launcher" in why


def test_patch_is_unsafe_and_finding_has_its_cause() -> None:
    (finding,) = found("torch.cuda.set_device(dist.get_rank())\n", "DW101")
    assert finding.cause == "local-rank-device"
    assert finding.fix
    assert finding.fix.safety == "unsafe"
    assert IMPORTS.count("\n") + 1 == finding.line
