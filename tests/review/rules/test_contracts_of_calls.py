"""Contracts of calls between ranks: kinds, sizes, agreement, order, backends and results of their arguments."""

import pytest
from helpers.review_snippets import found, lines, repaired

START = """
import tempfile
from datetime import timedelta
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
tensor, part = torch.randn(4), torch.randn(4, 3)
group = dist.new_group([0, 1])
store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, False)
"""
KINDS = [
    ("dist.all_reduce(0.5)", "dist.all_reduce(torch.tensor(0.5))"),
    ("dist.all_reduce([p.grad for p in model.parameters()])", "dist.all_reduce(tensor)"),
    ("dist.all_reduce(tensor, group)", "dist.all_reduce(tensor, group=group)"),
    ('dist.all_reduce(tensor, op="sum")', "dist.all_reduce(tensor, op=dist.ReduceOp.SUM)"),
    ("dist.all_reduce(tensor, group=[0, 1])", "dist.all_reduce(tensor, group=None)"),
    ("dist.all_gather(tensor, [tensor])", "dist.all_gather([torch.empty(4) for _ in range(world)], tensor)"),
    ("dist.all_gather(tuple(tensor for _ in range(world)), tensor)", "dist.barrier(group)"),
    ('dist.broadcast_object_list({"lr": 1}, src=0)', 'dist.broadcast_object_list([{"lr": 1}], src=0)'),
    ("dist.broadcast(tensor)", "dist.broadcast(tensor, group_src=0)"),
    ("dist.broadcast(tensor, src=0, group_src=0)", "dist.broadcast(tensor, src=0)"),
    ("dist.broadcast(tensor, 0, root=1)", "dist.broadcast(tensor, 0)"),
    ("dist.monitored_barrier(timeout=30)", "dist.monitored_barrier(timeout=timedelta(seconds=30))"),
    ("dist.new_group([0, 1], timeout=60)", "dist.new_group([0, 1], timeout=timedelta(minutes=1))"),
    ("dist.all_reduce(tensor, async_op=True).wait(5)", "dist.all_reduce(tensor, async_op=True).wait()"),
    ("dist.batch_isend_irecv([dist.P2POp(dist.send, tensor, 1)])[0].wait()", "dist.P2POp(dist.isend, tensor, 1)"),
    ('DistributedSampler([1], world, os.environ["RANK"])', "DistributedSampler([1], world, rank)"),
    ('store.wait("key")', 'store.wait(["key"])'),
    ('store.set("key", 1)', 'store.set("key", "1")'),
    ("dcp.save(model, checkpoint_id='c')", "dcp.save(model.state_dict(), checkpoint_id='c')"),
    ("dcp.save(model.state_dict(), 'c')", "dcp.save(model.state_dict(), checkpoint_id='c')"),
    (
        "ZeroRedundancyOptimizer(model.parameters(), lr=0.1)",
        "ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD)",
    ),
    ("DDP(model, device_ids=rank)", "DDP(model, device_ids=None)"),
    (
        "distribute_tensor(part, init_device_mesh('cpu', (world,)), [Shard(0)]) @ torch.randn(3, 2)",
        "distribute_tensor(part, init_device_mesh('cpu', (world,)), [Shard(0)]) * 2",
    ),
]


@pytest.mark.parametrize(("wrong", "right"), KINDS)
def test_arguments_of_another_kind(wrong: str, right: str) -> None:
    assert lines(START + wrong + "\n", "DW460") == [wrong]
    assert lines(START + right + "\n", "DW460") == []


def test_a_number_to_which_losses_are_added_is_no_tensor() -> None:
    code = START + "total = 0.0\nfor x in [tensor]:\n    total += x.sum().item()\ndist.all_reduce(VALUE)\n"
    assert lines(code.replace("VALUE", "total / 4"), "DW460") == ["dist.all_reduce(total / 4)"]
    assert lines(code.replace("VALUE", "torch.tensor(total / 4)"), "DW460") == []
    assert lines(code.replace(".item()", "").replace("VALUE", "total"), "DW460") == []


def test_a_hook_returns_a_future() -> None:
    code = START + "def hook(state, bucket):\n    t = bucket.buffer()\n    t /= world\n    return VALUE\n"
    code += "DDP(model).register_comm_hook(None, hook)\n"
    assert lines(code.replace("VALUE", "t"), "DW460") == ["return t"]
    future = "dist.all_reduce(t, async_op=True).get_future()"
    assert lines(code.replace("VALUE", future), "DW460") == []


@pytest.mark.parametrize(
    ("parameters", "call", "is_wrong"),
    [
        ("world", "mp.spawn(work, args=(2,), nprocs=2)", True),
        ("rank, world", "mp.spawn(work, args=(2,), nprocs=2)", False),
        ("rank, world, lr=0.1", "mp.spawn(work, args=(2,), nprocs=2)", False),
        ("rank", "mp.spawn(lambda rank: work(rank), nprocs=2)", True),
    ],
)
def test_spawn_passes_the_number_of_the_process(parameters: str, call: str, is_wrong: bool) -> None:
    code = START + f'def work({parameters}):\n    dist.barrier()\nif __name__ == "__main__":\n    {call}\n'
    assert lines(code, "DW460") == [call] * is_wrong


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("dist.all_reduce(tensor, group)", "dist.all_reduce(tensor, group=group)"),
        ('store.wait("key")', 'store.wait(["key"])'),
        ("dist.monitored_barrier(timeout=30)", "dist.monitored_barrier(timeout=timedelta(seconds=30))"),
        ('dist.broadcast(tensor, src=os.environ["ROOT"])', 'dist.broadcast(tensor, src=int(os.environ["ROOT"]))'),
        ("dist.P2POp(dist.recv, tensor, 1)", "dist.P2POp(dist.irecv, tensor, 1)"),
    ],
)
def test_patches_of_arguments(wrong: str, right: str) -> None:
    assert repaired(START + wrong + "\n", "DW460") == START + right + "\n"


SIZES = [
    ("dist.broadcast(tensor, src=world)", "dist.broadcast(tensor, src=world - 1)"),
    ("dist.send(tensor, dst=rank + 1)", "dist.send(tensor, dst=(rank + 1) % world)"),
    ("dist.recv(tensor, src=rank)", "dist.recv(tensor, src=1 - rank)"),
    ("dist.all_gather_object([None] * (world - 1), 1)", "dist.all_gather_object([None] * world, 1)"),
    (
        "dist.all_gather_into_tensor(torch.empty(4, 3), part)",
        "dist.all_gather_into_tensor(torch.empty(4 * world, 3), part)",
    ),
    (
        "dist.reduce_scatter_tensor(torch.empty(4, 3), part)",
        "dist.reduce_scatter_tensor(part, torch.ones(4 * world, 3))",
    ),
    (
        "dist.all_to_all_single(torch.empty(4 * world), torch.ones(4 * world), [2] * world, [2] * world)",
        "dist.all_to_all_single(torch.empty(4 * world), torch.ones(4 * world), [4] * world, [4] * world)",
    ),
    (
        "dist.reduce_scatter(tensor, [tensor for _ in range(world + 1)])",
        "dist.reduce_scatter(tensor, [tensor] * world)",
    ),
    ("dist.new_group([0, 0, 1])", "dist.new_group([0, 1])"),
    ("dist.new_group(list(range(1, world + 1)))", "dist.new_group(list(range(1, world)))"),
    ("dist.new_subgroups(group_size=world + 1)", "dist.new_subgroups(group_size=2)"),
    ("dist.new_subgroups_by_enumeration([[0, 1], [1]])", "dist.new_subgroups_by_enumeration([[0], [1]])"),
    (
        "DistributedSampler([1, 2], num_replicas=world, rank=rank + 1)",
        "DistributedSampler([1, 2], num_replicas=world, rank=rank)",
    ),
    ("DistributedSampler([1, 2], rank, world)", "DistributedSampler([1, 2], world, rank)"),
    ("init_device_mesh('cpu', (world, 2))", "init_device_mesh('cpu', (world // 2, 2))"),
    (
        "init_device_mesh('cpu', (world,), mesh_dim_names=('dp', 'tp'))",
        "init_device_mesh('cpu', (world,), mesh_dim_names=('dp',))",
    ),
    ("dist.scatter_object_list([], None, src=0)", "dist.scatter_object_list([None], None, src=0)"),
]


@pytest.mark.parametrize(("wrong", "right"), SIZES)
def test_numbers_and_sizes_that_do_not_fit_the_ranks(wrong: str, right: str) -> None:
    assert lines(START + wrong + "\n", "DW461") == [wrong]
    assert lines(START + right + "\n", "DW461") == []


def test_sizes_that_fit_one_number_of_ranks_are_left_to_the_person() -> None:
    assert lines(START + "dist.all_gather_object([None, None], 1)\n", "DW461") == []
    assert lines(START + "dist.broadcast(tensor, src=3)\n", "DW461") == []


def test_only_the_rank_that_makes_the_call_counts() -> None:
    code = START + "if rank < world - 1:\n    dist.send(tensor, dst=rank + 1)\n"
    assert lines(code, "DW461") == []


AGREED = [
    ("DDP(model, find_unused_parameters=rank == 0)", "DDP(model, find_unused_parameters=True)"),
    (
        "dist.all_reduce(tensor, op=dist.ReduceOp.SUM if rank else dist.ReduceOp.MAX)",
        "dist.all_reduce(tensor, op=dist.ReduceOp.SUM)",
    ),
    ("dcp.save(model.state_dict(), checkpoint_id=f'c{rank}')", "dcp.save(model.state_dict(), checkpoint_id='c')"),
    (
        "dcp.save(model.state_dict(), checkpoint_id=f'c{rank}')",
        "dcp.save(model.state_dict(), checkpoint_id=f'c{rank}', no_dist=True)",
    ),
    ("dist.FileStore(tempfile.mkdtemp() + '/store', world)", "dist.FileStore('/tmp/store', world)"),
    (
        "ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1 / (rank + 1))",
        "ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1 / world)",
    ),
    ("dist.TCPStore('localhost', 29501, world, True)", "dist.TCPStore('localhost', 29501, world, rank == 0)"),
    ("DistributedSampler([1, 2], shuffle=rank == 0)", "DistributedSampler([1, 2], shuffle=world > 1)"),
]


@pytest.mark.parametrize(("wrong", "right"), AGREED)
def test_arguments_that_need_one_value_on_all_ranks(wrong: str, right: str) -> None:
    assert lines(START + wrong + "\n", "DW462") == [wrong]
    assert lines(START + right + "\n", "DW462") == []


def test_a_store_that_one_rank_opens_and_waits_in() -> None:
    code = START + "if rank == 0:\n    server = dist.TCPStore('localhost', 29501, WORLD, True)\n"
    assert lines(code.replace("WORLD", "world"), "DW462") == ["server = dist.TCPStore('localhost', 29501, world, True)"]
    assert lines(code.replace("WORLD", "None"), "DW462") == []
    both = code + "else:\n    client = dist.TCPStore('localhost', 29501, world, False)\n"
    assert lines(both.replace("WORLD", "world"), "DW462") == []


def test_calls_that_may_be_made_once() -> None:
    again = 'dist.init_process_group("gloo")'
    assert lines(START + again + "\n", "DW463") == [again]
    assert lines(START + "dist.destroy_process_group()\n" + again + "\n", "DW463") == []
    assert lines(START + "if not dist.is_initialized():\n    " + again + "\n", "DW463") == []
    hooks = "wrapped = DDP(model)\nother = DDP(nn.Linear(1, 1))\nwrapped.register_comm_hook(None, hook)\n"
    assert lines(START + hooks + "wrapped.register_comm_hook(None, hook)\n", "DW463") == [
        "wrapped.register_comm_hook(None, hook)"
    ]
    assert lines(START + hooks + "other.register_comm_hook(None, hook)\n", "DW463") == []


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            "dist.all_reduce(torch.zeros(1), op=dist.ReduceOp.BOR)",
            "dist.all_reduce(torch.zeros(1, dtype=torch.int32), op=dist.ReduceOp.BOR)",
        ),
        ("dist.all_reduce(torch.zeros(4, dtype=torch.int16))", "dist.all_reduce(torch.zeros(4, dtype=torch.int32))"),
        (
            "dist.all_reduce(torch.tensor([1, 2]), op=dist.ReduceOp.AVG)",
            "dist.all_reduce(torch.zeros(2), op=dist.ReduceOp.AVG)",
        ),
        ("dist.split_group(split_ranks=[[0], [1]])", "dist.new_subgroups_by_enumeration([[0], [1]])"),
        ("model = nn.SyncBatchNorm.convert_sync_batchnorm(model)", "model = model.train()"),
        ("DDP(model, device_ids=[rank])", "DDP(model, device_ids=None)"),
    ],
)
def test_what_a_backend_does_not_have(wrong: str, right: str) -> None:
    assert lines(START + wrong + "\n", "DW464") == [wrong]
    assert lines(START + right + "\n", "DW464") == []
    assert "convert" not in wrong or lines(START.replace('"gloo"', '"nccl"') + wrong + "\n", "DW464") == []


def test_a_sharded_model_is_not_copied() -> None:
    copied = "average = copy.deepcopy(model)\n"
    assert lines(START + "import copy\nfully_shard(model)\n" + copied, "DW464") == [copied.strip()]
    assert lines(START + "import copy\n" + copied + "fully_shard(model)\n", "DW464") == []


def test_results_that_are_something_else() -> None:
    assert lines(START + 'while store.get("state") != "ready":\n    pass\n', "DW465") == [
        'while store.get("state") != "ready":'
    ]
    assert lines(START + 'while store.get("state") != b"ready":\n    pass\n', "DW465") == []
    assert lines(START + 'while store.get("state").decode() != "ready":\n    pass\n', "DW465") == []
    assert lines(START + "tensor = dist.recv(tensor, src=0)\n", "DW465") == ["tensor = dist.recv(tensor, src=0)"]
    assert lines(START + "sender = dist.recv(tensor)\nprint(sender)\n", "DW465") == []
    local = START + "rows = distribute_tensor(part, init_device_mesh('cpu', (world,)), [Shard(0)])\n"
    assert lines(local + "total = rows.sum().to_local()\n", "DW465") == ["total = rows.sum().to_local()"]
    assert lines(local + "mine = rows.to_local()\n", "DW465") == []


def test_what_new_processes_do_not_share() -> None:
    code = START + "def work(rank, results):\n    results.append(rank)\n"
    code += 'if __name__ == "__main__":\n    results = MADE\n'
    code += "    mp.spawn(work, args=(results,), nprocs=2)\n    print(results)\n"
    assert lines(code.replace("MADE", "[]"), "DW466") == ["mp.spawn(work, args=(results,), nprocs=2)"]
    assert lines(code.replace("MADE", "mp.Manager().list()"), "DW466") == []
    started = START + "def work(rank):\n    pass\nmp.spawn(work, nprocs=2)\n"
    assert lines(started, "DW466") == ["mp.spawn(work, nprocs=2)"]
    assert lines(started.replace("nprocs=2", 'nprocs=2, start_method="fork"'), "DW466") == []


def test_names_that_are_not_there() -> None:
    saved = START + "dcp.save({'model': model.state_dict()}, checkpoint_id='c')\n"
    loads = "dcp.load({'NAME': model.state_dict()}, checkpoint_id='c')"
    assert lines(saved + loads.replace("NAME", "net"), "DW467") == [loads.replace("NAME", "net")]
    assert lines(saved + loads.replace("NAME", "model"), "DW467") == []
    assert lines(saved + loads.replace("NAME", "net").replace("'c'", "'other'"), "DW467") == []
    plan = START + "from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module\n"
    plan += "class MLP(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    plan += "        self.up = nn.Linear(4, 4)\n"
    plan += "plan = {'NAME': ColwiseParallel()}\nparallelize_module(MLP(), init_device_mesh('cpu', (world,)), plan)\n"
    assert lines(plan.replace("NAME", "down"), "DW467") == ["plan = {'down': ColwiseParallel()}"]
    assert lines(plan.replace("NAME", "up"), "DW467") == []


def test_results_that_are_dropped_or_not_waited_for() -> None:
    functional = START + "import torch.distributed.nn.functional as functional\n"
    assert lines(functional + "functional.all_reduce(tensor)\n", "DW421") == ["functional.all_reduce(tensor)"]
    assert lines(functional + "tensor = functional.all_reduce(tensor)\n", "DW421") == []
    assert "tensor = functional" in repaired(functional + "functional.all_reduce(tensor)\n", "DW421")
    saving = "saving = dcp.async_save(model.state_dict(), checkpoint_id='c')\n"
    assert lines(START + saving, "DW415") == [saving.strip()]
    assert lines(START + saving + "saving.result()\n", "DW415") == []
    loads = "step = 0\nstate = {'model': model.state_dict(), 'step': step}\ndcp.load(state, checkpoint_id='c')\n"
    assert lines(START + loads + "print(step)\n", "DW421") == ["dcp.load(state, checkpoint_id='c')"]
    assert lines(START + loads + "step = state['step']\nprint(step)\n", "DW421") == []
    assert lines(START + "state = dcp.load(model.state_dict(), checkpoint_id='c')\nprint(state['x'])\n", "DW422")


def test_results_of_one_rank() -> None:
    taken = "state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))\n"
    code = (
        START + "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n" + taken
    )
    assert lines(code + "model.load_state_dict(state)\n", "DW454") == ["model.load_state_dict(state)"]
    assert lines(code + "if rank == 0:\n    model.load_state_dict(state)\n", "DW454") == []
    zero = START + "optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)\n"
    zero += "optimizer.consolidate_state_dict()\n"
    assert lines(zero + "state = optimizer.state_dict()\n", "DW454") == ["state = optimizer.state_dict()"]
    assert lines(zero + "if rank == 0:\n    state = optimizer.state_dict()\n", "DW454") == []


def test_calls_before_the_process_group() -> None:
    code = "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(torch.nn.Linear(1, 1))\n"
    assert lines(code + 'dist.init_process_group("gloo")\n', "DW115") == ["model = DDP(torch.nn.Linear(1, 1))"]
    assert (
        found(
            "from accelerate import Accelerator\nAccelerator()\n" + code + 'dist.init_process_group("gloo")\n', "DW115"
        )
        == []
    )


def test_members_and_roots_of_groups() -> None:
    group = START + "first = dist.new_group([0])\n"
    assert lines(group + "DDP(model, process_group=first)\n", "DW446") == ["DDP(model, process_group=first)"]
    assert lines(group + "if rank == 0:\n    DDP(model, process_group=first)\n", "DW446") == []
    call = "dist.broadcast(tensor, src=1, group=first)"
    assert lines(group + f"if rank == 0:\n    {call}\n", "DW446") == [call]
    assert lines(group + f"if rank == 0:\n    {call.replace('src=1', 'src=0')}\n", "DW446") == []
    assert lines(group + "mine = tensor[dist.get_rank(first)]\n", "DW446") == ["mine = tensor[dist.get_rank(first)]"]
    assert lines(group + "mine = dist.get_rank(first)\nif mine >= 0:\n    print(tensor[mine])\n", "DW446") == []


def test_a_store_in_the_memory_of_one_process() -> None:
    code = START + "own = dist.HashStore()\nif rank == 0:\n    own.set('seed', '1')\nprint(own.get('seed'))\n"
    assert lines(code, "DW428") == ["print(own.get('seed'))"]
    assert lines(code.replace("if rank == 0:\n    own.set", "own.set"), "DW428") == []


def test_an_unfilled_tensor_that_is_sent() -> None:
    code = START + "out = torch.empty(8)\ndist.all_to_all_single(CALL)\n"
    assert lines(code.replace("CALL", "tensor, out"), "DW453") == ["dist.all_to_all_single(tensor, out)"]
    assert lines(code.replace("CALL", "out, tensor"), "DW453") == []


def test_layers_are_sharded_before_the_model() -> None:
    assert lines(START + "fully_shard(model)\nfor layer in model:\n    fully_shard(layer)\n", "DW307") == [
        "fully_shard(model)"
    ]
    assert lines(START + "for layer in model:\n    fully_shard(layer)\nfully_shard(model)\n", "DW307") == []


def test_sums_of_whole_numbers_divided_in_place() -> None:
    code = START + "counts = torch.tensor([rank, 4])\ndist.all_reduce(counts)\n"
    assert lines(code + "counts /= world\n", "DW426") == ["counts /= world"]
    assert lines(code + "counts = counts / world\n", "DW426") == []
    assert lines(code.replace("rank, 4", "float(rank), 4") + "counts /= world\n", "DW426") == []


def test_item_of_a_tensor_of_whole_numbers_is_a_root() -> None:
    code = START + "best = torch.zeros(1, dtype=torch.long)\ndist.broadcast(tensor, src=best.item())\n"
    assert lines(code, "DW460") == []


def test_a_gradient_that_the_script_has_removed_is_not_none() -> None:
    code = START + "tensor.grad = None\ntensor.sum().backward()\ndist.all_reduce(tensor.grad)\n"
    assert lines(code, "DW460") == []


PARTS = """
import tempfile
import torch.distributed.checkpoint as dcp
def save(state, target):
    folder = tempfile.mkdtemp()
    dcp.save(state, checkpoint_id=folder)
    {}
save({{}}, "out")
"""


def test_parts_of_a_checkpoint_that_each_rank_brings_to_one_place_are_no_different_checkpoints() -> None:
    assert lines(START + PARTS.format("print(target)"), "DW462") == ["dcp.save(state, checkpoint_id=folder)"]
    assert lines(START + PARTS.format("upload_directory(folder, target)"), "DW462") == []
    later = "threading.Thread(target=wait_and_upload, args=(folder, target)).start()"
    assert lines(START + PARTS.format(later), "DW462") == []
