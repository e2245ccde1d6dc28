"""Options, script and ranks of a launch, from the launcher's command line; checked against the launchers' parsers."""

import argparse
import ast
import importlib
import importlib.util
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.launchers.arguments import (
    FLAGS,
    RUNNER_ONLY_FLAGS,
    LaunchRequest,
    launch_request,
    parse_launcher,
    parse_wrapped_launcher,
)

CORES = os.cpu_count()

# Command line; launcher; options that count, as written; whether the script is a module; script with its arguments.
LINES = [
    ("torchrun train.py --nnodes 4", "torchrun", {}, False, "train.py --nnodes 4"),
    (
        "python -m torch.distributed.run --standalone --nproc_per_node 8 train.py -m x",
        "torchrun",
        {"nproc-per-node": "8"},
        False,
        "train.py -m x",
    ),
    ("torchrun --nnodes=2:4 bin/train --nnodes 9", "torchrun", {"nnodes": "2:4"}, False, "bin/train --nnodes 9"),
    (
        "torchrun -m --nproc-per-node 4 pkg.train --nnodes 9",
        "torchrun",
        {"nproc-per-node": "4", "nnodes": None},
        True,
        "pkg.train --nnodes 9",
    ),
    (
        "torchrun --no-python --nproc-per-node=2 ./run.sh --nnodes 9",
        "torchrun",
        {"nproc-per-node": "2", "nnodes": None},
        False,
        "./run.sh --nnodes 9",
    ),
    ("torchrun -r3 -t 1 --nnode 2 train.py", "torchrun", {"redirects": "3", "nnodes": "2"}, False, "train.py"),
    ("torchrun --node-rank -1 -- train.py", "torchrun", {"node-rank": "-1"}, False, "train.py"),
    (
        "accelerate launch --multi_gpu --num_processes 4 --num-machines=2 train.py --num_processes 9",
        "accelerate",
        {"num-processes": "4", "num-machines": "2"},
        False,
        "train.py --num_processes 9",
    ),
    (
        "accelerate launch --mixed_precision bf16 --use_fsdp --fsdp_offload_params true -m pkg.train --cpu",
        "accelerate",
        {"mixed-precision": "bf16", "fsdp-offload-params": "true"},
        True,
        "pkg.train --cpu",
    ),
    (
        "deepspeed --num_gpus 4 --module --master_port=29501 pkg.train --num_gpus 9",
        "deepspeed",
        {"num-gpus": "4", "master-port": "29501"},
        True,
        "pkg.train --num_gpus 9",
    ),
    (
        "deepspeed -H hosts -i w-0@w-1:0,2 --num_accelerators 2 --save_pid train.py --deepspeed",
        "deepspeed",
        {"hostfile": "hosts", "include": "w-0@w-1:0,2", "num-gpus": "2"},
        False,
        "train.py --deepspeed",
    ),
    (
        "python -u -m deepspeed.launcher.launch --world_info=e30= --save_pid 12 --node_rank=1 train.py --x",
        "deepspeed",
        {"save-pid": "12", "node-rank": "1"},
        False,
        "train.py --x",
    ),
    (
        "mpirun --allow-run-as-root -np 4 --mca btl tcp,self -x NCCL_DEBUG=INFO -H a:2,b:2 python train.py -np 9",
        "mpirun",
        {"np": "4", "mca": "btl tcp,self", "H": "a:2,b:2"},
        False,
        "python train.py -np 9",
    ),
    ("mpiexec.hydra -n 4 -ppn 2 -genv A 1 ./run.sh -n 9", "mpirun", {"np": "4", "ppn": "2"}, False, "./run.sh -n 9"),
    (
        "srun -N2 -n 8 --gres=gpu:4 --exclusive -l --cpu-bind none python train.py -n 9",
        "srun",
        {"nodes": "2", "ntasks": "8", "cpu-bind": "none"},
        False,
        "python train.py -n 9",
    ),
]


def request_of(options: str, **environ: str) -> LaunchRequest:
    return launch_request(["python", "-m", "torch.distributed.run", *options.split()], environ)


def declared_options(package: str, path: str) -> dict[str, bool]:
    """Long options that a launcher's source adds to its parser, and whether each is a flag. Nothing is imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        pytest.skip(f"{package} is not installed")
    calls = [
        node
        for node in ast.walk(ast.parse((Path(found.origin).parent / path).read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument")
    ]
    options: dict[str, bool] = {}
    for call in calls:
        action = next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "action"), "")
        is_flag = any(word in action for word in ("store_true", "store_false", "store_const", "check_env", "help"))
        names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        options |= {name[2:].replace("_", "-"): is_flag for name in names if name.startswith("--")}
    return options


class TestParseLauncher:
    """Words of the launcher and words of the script."""

    @pytest.mark.parametrize(("line", "launcher", "options", "is_module", "script"), LINES)
    def test_options_and_script(
        self, line: str, launcher: str, options: dict[str, str | None], is_module: bool, script: str
    ) -> None:
        found = parse_launcher(shlex.split(line))
        assert found
        assert found.launcher == launcher
        assert {name: found.value(name) for name in options} == options
        assert (found.is_module, found.script_words) == (is_module, script.split())
        assert [*found.head, *(w for o in found.options for w in o.words), *found.script_words] == [
            word for word in shlex.split(line) if word != "--"
        ]

    @pytest.mark.parametrize("line", [line for line, launcher, *_ in LINES if launcher == "torchrun"])
    def test_torchrun_parses_the_same_script(self, line: str) -> None:
        run: Any = pytest.importorskip("torch.distributed.run")
        found = parse_launcher(shlex.split(line))
        assert found
        parsed = run.get_args_parser().parse_args(shlex.split(line)[len(found.head) :])
        assert [parsed.training_script, *parsed.training_script_args] == found.script_words
        assert (parsed.module, parsed.nnodes) == (found.is_module, found.value("nnodes") or "1:1")

    @pytest.mark.parametrize("line", [line for line, launcher, *_ in LINES if launcher == "deepspeed"])
    def test_deepspeed_parses_the_same_script(self, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("deepspeed")
        found = parse_launcher(shlex.split(line))
        assert found
        words = shlex.split(line)[len(found.head) :]
        module: Any = importlib.import_module(f"deepspeed.launcher.{'launch' if '-m' in found.head else 'runner'}")
        monkeypatch.setattr("sys.argv", ["x", *words])
        parsed: argparse.Namespace = module.parse_args()
        script = vars(parsed).get("user_script") or vars(parsed)["training_script"]
        arguments = vars(parsed).get("user_args") or vars(parsed).get("training_script_args") or []
        assert [script, *arguments] == found.script_words

    @pytest.mark.parametrize(
        ("launcher", "package", "path"),
        [
            ("torchrun", "torch", "distributed/run.py"),
            ("accelerate", "accelerate", "commands/launch.py"),
            ("deepspeed", "deepspeed", "launcher/runner.py"),
        ],
    )
    def test_flags_are_those_of_the_installed_launcher(self, launcher: str, package: str, path: str) -> None:
        declared = declared_options(package, path)
        assert len(declared) > 10
        flags = {name for name, is_flag in declared.items() if is_flag}
        assert flags - FLAGS[launcher] == set()
        assert FLAGS[launcher] & (declared.keys() - flags) == set()

    def test_flags_of_what_the_deepspeed_runner_starts(self) -> None:
        declared = declared_options("deepspeed", "launcher/launch.py")
        with_value = {name for name, is_flag in declared.items() if not is_flag}
        assert FLAGS["deepspeed"] & with_value == RUNNER_ONLY_FLAGS

    @pytest.mark.parametrize("line", ["", "python train.py", "accelerate config", "ls torchrun"])
    def test_no_launcher(self, line: str) -> None:
        assert parse_launcher(line.split()) is None

    def test_flag_of_a_newer_version_does_not_take_the_script(self) -> None:
        found = parse_launcher(["torchrun", "--brand-new", "train.py"])
        assert found
        assert found.script == "train.py"


class TestWrappedLauncher:
    """The launcher in a line of a shell script."""

    @pytest.mark.parametrize(
        "line",
        [
            "torchrun --nnodes=2 train.py",
            "OMP_NUM_THREADS=4 exec torchrun --nnodes=2 train.py",
            "srun -N2 --gres=gpu:4 torchrun --nnodes=2 train.py",
            "mpirun -np 2 python -m torch.distributed.run --nnodes=2 train.py",
            "cd run && torchrun $DIST_ARGS --nnodes=2 train.py",
        ],
    )
    def test_launcher_behind_other_words(self, line: str) -> None:
        found = parse_wrapped_launcher(shlex.split(line))
        assert found
        assert (found.launcher, found.value("nnodes"), found.script) == ("torchrun", "2", "train.py")

    def test_script_in_a_variable(self) -> None:
        found = parse_wrapped_launcher(shlex.split("torchrun --nnodes=2 $SCRIPT --lr 1"))
        assert found
        assert found.script_words == ["$SCRIPT", "--lr", "1"]


class TestLaunchRequest:
    """Nodes, ranks and rendezvous of a launch."""

    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            ("train.py --nnodes=4", LaunchRequest()),
            ("--standalone --nproc_per_node 8 train.py", LaunchRequest(ranks_per_node=8)),
            (
                "--nnodes=2 --nproc-per-node=cpu train.py",
                LaunchRequest(least_nodes=2, most_nodes=2, ranks_per_node=CORES),
            ),
            (
                "--nnodes 2:4 --rdzv-id=a7 --rdzv_endpoint=head:29400 -m pack.train --nnodes 9",
                LaunchRequest(least_nodes=2, most_nodes=4, endpoint="head:29400", run_id="a7"),
            ),
            (
                "--nnodes=3 --node_rank=1 --master_addr 10.0.0.1 --master-port=29501 train.py",
                LaunchRequest(least_nodes=3, most_nodes=3, node_rank=1, endpoint="10.0.0.1:29501"),
            ),
            ("--nnodes=many --nproc-per-node=xpu train.py", LaunchRequest(ranks_per_node=None)),
            ("--no-python --nproc-per-node=2 ./run.sh", LaunchRequest(ranks_per_node=2)),
            ("-m --nnodes 3 pack.train", LaunchRequest(least_nodes=3, most_nodes=3)),
        ],
    )
    def test_torchrun(self, options: str, wanted: LaunchRequest) -> None:
        assert request_of(options) == wanted

    def test_accelerate(self) -> None:
        options = (
            "--num_machines 2 --num_processes=16 --machine_rank 1 --main_process_ip 10.0.0.1 --main_process_port=4711"
        )
        words = ["python", "accelerate", "launch", *options.split(), "train.py", "--num_machines", "9"]
        wanted = LaunchRequest(least_nodes=2, most_nodes=2, ranks_per_node=8, node_rank=1, endpoint="10.0.0.1:4711")
        assert launch_request(words, {}) == wanted

    def test_deepspeed(self) -> None:
        words = ["deepspeed", "--num_nodes", "2", "--num_gpus=4", "--master_addr", "a", "train.py", "--num_gpus", "9"]
        wanted = LaunchRequest(least_nodes=2, most_nodes=2, ranks_per_node=4, endpoint="a:29500")
        assert launch_request(words, {"PET_NNODES": "7"}) == wanted

    def test_deepspeed_and_accelerate_start_a_rank_for_each_gpu(self) -> None:
        environ = {"CUDA_VISIBLE_DEVICES": "0,1,2"}
        assert launch_request(["deepspeed", "train.py"], environ).ranks_per_node == 3
        assert launch_request(["accelerate", "launch", "train.py"], environ).ranks_per_node == 3

    def test_variables_replace_options_and_options_go_first(self) -> None:
        found = request_of(
            "--nproc-per-node=3 train.py", PET_NNODES="2:5", PET_NPROC_PER_NODE="8", PET_RDZV_ENDPOINT="head:1"
        )
        assert (found.least_nodes, found.most_nodes, found.ranks_per_node, found.endpoint) == (2, 5, 3, "head:1")

    def test_as_many_ranks_as_gpus_are_visible(self) -> None:
        assert request_of("--nproc-per-node=gpu train.py", CUDA_VISIBLE_DEVICES="0,3,5").ranks_per_node == 3
        assert request_of("--nproc-per-node=auto train.py", CUDA_VISIBLE_DEVICES="").ranks_per_node == CORES
