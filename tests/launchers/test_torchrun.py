"""torchrun lines, read by torchrun's own argument parser and by a real shell."""

import shlex
import subprocess

import msgspec
import pytest
import yaml
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.launchers import torchrun
from helpers.machines import CPU_ONLY, EIGHT_GPUS, GIB

NASTY = ["my train; touch pwned.py", "--name=$(id)", "a'b\"c", "--note=two\nlines", "*"]


def parsed(line: str):
    """The arguments as torchrun reads them."""
    run = pytest.importorskip("torch.distributed.run")
    words = shlex.split(line)
    assert words[0] == "torchrun"
    return run.parse_args(words[1:])


class TestSingleNode:
    """One process per GPU, on a free port."""

    def test_torchrun_reads_it(self):
        arguments = parsed(torchrun.single_node(EIGHT_GPUS, ["train.py", "--lr", "1"]).commands[0])
        assert arguments.standalone
        assert arguments.nproc_per_node == "8"
        assert arguments.training_script == "train.py"
        assert arguments.training_script_args == ["--lr", "1"]

    def test_a_module_stays_a_module(self):
        arguments = parsed(torchrun.single_node(EIGHT_GPUS, ["-m", "pkg.train"]).commands[0])
        assert arguments.module
        assert arguments.training_script == "pkg.train"

    def test_no_port_is_given_since_standalone_ignores_it(self):
        assert "port" not in torchrun.single_node(EIGHT_GPUS, []).commands[0]

    @pytest.mark.parametrize(("cpus", "ranks"), [(1, 2), (2, 2), (3, 3), (64, 4)])
    def test_without_gpus_a_few_processes_and_gloo(self, cpus: int, ranks: int):
        made = torchrun.single_node(Machine(gpu_count=0, cpus=cpus), ["train.py"])
        assert parsed(made.commands[0]).nproc_per_node == str(ranks)
        assert "gloo" in made.text

    def test_without_a_look_at_the_box_it_says_what_it_needs(self):
        made = torchrun.single_node(Machine(), ["train.py"])
        assert made.commands == []
        assert "number of GPUs" in made.text

    def test_a_missing_script_is_told(self):
        made = torchrun.single_node(EIGHT_GPUS, [])
        assert made.commands[0].endswith(torchrun.STAND_IN_SCRIPT)
        assert "stands for your script" in made.text

    def test_a_shell_reads_nasty_names_back(self):
        line = torchrun.single_node(CPU_ONLY, NASTY).commands[0]
        shown = subprocess.run(
            ["bash", "-c", f'torchrun() {{ printf "%s\\0" "$@"; }}; {line}'], capture_output=True, text=True, check=True
        )
        assert shown.stdout.split("\0")[:-1] == ["--standalone", "--nproc-per-node=2", *NASTY]


class TestMultiNode:
    """The same line on every node."""

    def test_torchrun_reads_it(self):
        box = msgspec.structs.replace(EIGHT_GPUS, nodes=4, free_port=29777)
        arguments = parsed(torchrun.multi_node(box, ["/data/my train.py"]).commands[0])
        assert (arguments.nnodes, arguments.nproc_per_node) == ("4", "8")
        assert arguments.rdzv_backend == "c10d"
        assert arguments.rdzv_endpoint == "10.0.0.5:29777"
        assert arguments.rdzv_id == "my-train"
        assert not arguments.standalone

    def test_the_port_is_c10ds_own_where_none_was_looked_at(self):
        box = msgspec.structs.replace(EIGHT_GPUS, free_port=0)
        assert parsed(torchrun.multi_node(box, []).commands[0]).rdzv_endpoint == "10.0.0.5:29400"

    def test_two_nodes_are_assumed_and_told(self):
        made = torchrun.multi_node(EIGHT_GPUS, ["train.py"])
        assert parsed(made.commands[0]).nnodes == "2"
        assert "2 nodes are assumed" in made.text

    def test_torchrun_takes_an_ipv6_endpoint_apart(self):
        utils = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")
        box = msgspec.structs.replace(EIGHT_GPUS, head="fd00::5")
        endpoint = parsed(torchrun.multi_node(box, ["train.py"]).commands[0]).rdzv_endpoint
        assert utils.parse_rendezvous_endpoint(endpoint, default_port=1) == ("fd00::5", 29500)

    def test_without_an_address_it_says_what_it_needs(self):
        assert torchrun.multi_node(Machine(gpu_count=8), ["train.py"]).commands == []


class TestFreePort:
    """Who holds the port, and a start that does not need it."""

    BUSY = msgspec.structs.replace(CPU_ONLY, busy_port=29500, port_holder="python old.py (pid 77)", free_port=30123)

    def test_it_names_the_holder_and_a_port_that_is_free(self):
        made = torchrun.free_port_command(self.BUSY, ["train.py"])
        assert "python old.py (pid 77)" in made.text
        who, standalone, chosen = made.commands
        assert shlex.split(who) == ["ss", "-ltnp", "sport = :29500"]
        assert parsed(standalone).standalone
        assert parsed(chosen).master_port == 30123

    def test_ss_understands_its_line(self):
        line = shlex.split(torchrun.free_port_command(self.BUSY, []).commands[0])
        try:
            shown = subprocess.run(line, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("no ss on this machine")
        assert shown.returncode == 0, shown.stderr


class TestUnsetLaunchEnv:
    """Only what is set is taken out."""

    def test_a_shell_takes_them_out(self):
        box = msgspec.structs.replace(CPU_ONLY, shell_variables=["MASTER_PORT", "NCCL_DEBUG", "RANK"])
        unset, start = torchrun.unset_launch_env(box, ["train.py"]).commands
        shown = subprocess.run(
            ["bash", "-c", f"{unset}; env"],
            env={"RANK": "0", "MASTER_PORT": "1", "LOCAL_RANK": "0"},
            capture_output=True,
        )
        names = {line.split(b"=")[0] for line in shown.stdout.splitlines()}
        assert b"LOCAL_RANK" in names
        assert not names & {b"RANK", b"MASTER_PORT"}
        assert parsed(start).standalone

    def test_nothing_set_leaves_the_start_alone(self):
        assert len(torchrun.unset_launch_env(CPU_ONLY, ["train.py"]).commands) == 1


class TestShmSize:
    """One GiB for each rank, at most half of the memory."""

    @pytest.mark.parametrize(("ranks", "memory_gib", "size_gib"), [(8, 1024, 8), (8, 8, 4), (1, 1, 1)])
    def test_size(self, ranks: int, memory_gib: int, size_gib: int):
        box = Machine(gpu_count=ranks, memory_bytes=memory_gib * GIB, container="docker")
        docker, podman = torchrun.shm_size(box, ["train.py"]).commands
        assert f"--shm-size={size_gib}g" in shlex.split(docker)
        assert f"--shm-size={size_gib}g" in shlex.split(podman)

    def test_the_pod_snippet_is_yaml_that_names_one_volume(self):
        text = torchrun.shm_size(EIGHT_GPUS, []).text
        spec = yaml.safe_load(text[text.index("spec:") :])["spec"]
        (volume,) = spec["volumes"]
        (mount,) = spec["containers"][0]["volumeMounts"]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/dev/shm")

    def test_on_a_host_the_mount_is_offered_first_in_a_container_not_at_all(self):
        assert "remount" in torchrun.shm_size(EIGHT_GPUS, []).commands[0]
        inside = msgspec.structs.replace(EIGHT_GPUS, container="docker")
        assert not any("mount" in line for line in torchrun.shm_size(inside, []).commands)
