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

    def test_line_is_parsed_by_torchrun(self):
        arguments = parsed(torchrun.single_node(EIGHT_GPUS, ["train.py", "--lr", "1"]).commands[0])
        assert arguments.standalone
        assert arguments.nproc_per_node == "8"
        assert arguments.training_script == "train.py"
        assert arguments.training_script_args == ["--lr", "1"]

    def test_module_stays_a_module(self):
        arguments = parsed(torchrun.single_node(EIGHT_GPUS, ["-m", "pkg.train"]).commands[0])
        assert arguments.module
        assert arguments.training_script == "pkg.train"

    def test_standalone_line_has_no_port(self):
        assert "port" not in torchrun.single_node(EIGHT_GPUS, []).commands[0]

    @pytest.mark.parametrize(("cpus", "ranks"), [(1, 2), (2, 2), (3, 3), (64, 4)])
    def test_a_few_gloo_processes_without_gpus(self, cpus: int, ranks: int):
        made = torchrun.single_node(Machine(gpu_count=0, cpus=cpus), ["train.py"])
        assert parsed(made.commands[0]).nproc_per_node == str(ranks)
        assert "gloo" in made.text

    def test_machine_that_was_not_seen_starts_one_process_per_gpu(self):
        made = torchrun.single_node(Machine(), ["train.py"])
        assert parsed(made.commands[0]).nproc_per_node == "auto"
        assert "for each GPU" in made.text

    @pytest.mark.parametrize(("world_size", "ranks"), [(2, "2"), (8, "8"), (64, "auto")])
    def test_machine_that_was_not_seen_starts_what_a_small_job_waits_for(self, world_size: int, ranks: str):
        made = torchrun.single_node(Machine(world_size=world_size), ["train.py"])
        assert parsed(made.commands[0]).nproc_per_node == ranks

    def test_gpus_of_a_machine_count_before_what_the_job_waits_for(self):
        made = torchrun.single_node(Machine(gpu_count=4, world_size=2), ["train.py"])
        assert parsed(made.commands[0]).nproc_per_node == "4"

    def test_missing_script_is_replaced_by_a_placeholder(self):
        made = torchrun.single_node(EIGHT_GPUS, [])
        assert made.commands[0].endswith(torchrun.STAND_IN_SCRIPT)
        assert "Replace train.py" in made.text

    def test_special_characters_survive_the_shell(self):
        line = torchrun.single_node(CPU_ONLY, NASTY).commands[0]
        shown = subprocess.run(
            ["bash", "-c", f'torchrun() {{ printf "%s\\0" "$@"; }}; {line}'], capture_output=True, text=True, check=True
        )
        assert shown.stdout.split("\0")[:-1] == ["--standalone", "--nproc-per-node=2", *NASTY]


class TestMultiNode:
    """The same line on every node."""

    def test_line_is_parsed_by_torchrun(self):
        machine = msgspec.structs.replace(EIGHT_GPUS, nodes=4, free_port=29777)
        arguments = parsed(torchrun.multi_node(machine, ["/data/my train.py"]).commands[0])
        assert (arguments.nnodes, arguments.nproc_per_node) == ("4", "8")
        assert arguments.rdzv_backend == "c10d"
        assert arguments.rdzv_endpoint == "10.0.0.5:29777"
        assert arguments.rdzv_id == "my-train"
        assert not arguments.standalone

    def test_default_port_is_that_of_c10d(self):
        machine = msgspec.structs.replace(EIGHT_GPUS, free_port=0)
        assert parsed(torchrun.multi_node(machine, []).commands[0]).rdzv_endpoint == "10.0.0.5:29400"

    def test_two_nodes_are_assumed_and_reported(self):
        made = torchrun.multi_node(EIGHT_GPUS, ["train.py"])
        assert parsed(made.commands[0]).nnodes == "2"
        assert "2 nodes are assumed" in made.text

    def test_ipv6_endpoint_is_parsed_by_torchrun(self):
        utils = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")
        machine = msgspec.structs.replace(EIGHT_GPUS, head="fd00::5")
        endpoint = parsed(torchrun.multi_node(machine, ["train.py"]).commands[0]).rdzv_endpoint
        assert utils.parse_rendezvous_endpoint(endpoint, default_port=1) == ("fd00::5", 29500)

    def test_unknown_address_is_a_placeholder(self):
        made = torchrun.multi_node(Machine(), ["train.py"])
        arguments = parsed(made.commands[0])
        assert (arguments.rdzv_endpoint, arguments.nproc_per_node) == ("FIRST_NODE:29400", "auto")
        assert "FIRST_NODE must be an address of the first node" in made.text


class TestFreePort:
    """The holder of the port, and a start that does not need the port."""

    BUSY = msgspec.structs.replace(CPU_ONLY, busy_port=29500, port_holder="python old.py (pid 77)", free_port=30123)

    def test_holder_and_free_port_are_named(self):
        made = torchrun.free_port_command(self.BUSY, ["train.py"])
        assert "python old.py (pid 77)" in made.text
        who, standalone, chosen = made.commands
        assert shlex.split(who) == ["ss", "-ltnp", "sport = :29500"]
        assert parsed(standalone).standalone
        assert parsed(chosen).master_port == 30123

    def test_command_is_valid_for_ss(self):
        line = shlex.split(torchrun.free_port_command(self.BUSY, []).commands[0])
        try:
            shown = subprocess.run(line, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("no ss on this machine")
        assert shown.returncode == 0, shown.stderr


class TestUnsetLaunchEnv:
    """Only what is set is taken out."""

    def test_shell_unsets_only_what_is_set(self):
        machine = msgspec.structs.replace(CPU_ONLY, shell_variables=["MASTER_PORT", "NCCL_DEBUG", "RANK"])
        unset, start = torchrun.unset_launch_env(machine, ["train.py"]).commands
        shown = subprocess.run(
            ["bash", "-c", f"{unset}; env"],
            env={"RANK": "0", "MASTER_PORT": "1", "LOCAL_RANK": "0"},
            capture_output=True,
        )
        names = {line.split(b"=")[0] for line in shown.stdout.splitlines()}
        assert b"LOCAL_RANK" in names
        assert not names & {b"RANK", b"MASTER_PORT"}
        assert parsed(start).standalone

    def test_no_unset_command_if_nothing_is_set(self):
        assert len(torchrun.unset_launch_env(CPU_ONLY, ["train.py"]).commands) == 1


class TestShmSize:
    """One GiB for each rank, at most half of the memory."""

    @pytest.mark.parametrize(("ranks", "memory_gib", "size_gib"), [(8, 1024, 8), (8, 8, 4), (1, 1, 1)])
    def test_shm_size(self, ranks: int, memory_gib: int, size_gib: int):
        machine = Machine(gpu_count=ranks, memory_bytes=memory_gib * GIB, container="docker")
        docker, podman = torchrun.shm_size(machine, ["train.py"]).commands
        assert f"--shm-size={size_gib}g" in shlex.split(docker)
        assert f"--shm-size={size_gib}g" in shlex.split(podman)

    def test_pod_snippet_is_valid_yaml_with_one_volume(self):
        text = torchrun.shm_size(EIGHT_GPUS, []).text
        spec = yaml.safe_load(text[text.index("spec:") :])["spec"]
        (volume,) = spec["volumes"]
        (mount,) = spec["containers"][0]["volumeMounts"]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
        assert (mount["name"], mount["mountPath"]) == (volume["name"], "/dev/shm")

    def test_machine_that_was_not_seen_gets_the_size_for_the_ranks_of_its_log(self):
        seen = torchrun.shm_size(Machine(job_ranks=4), ["train.py"])
        assert seen.commands[0] == "docker run --shm-size=4g IMAGE torchrun --standalone --nproc-per-node=4 train.py"
        assert "sizeLimit: 4Gi" in seen.text
        assert "num_workers=0" in seen.text
        unknown = torchrun.shm_size(Machine(), [])
        assert unknown.commands[0] == "docker run --shm-size=8g IMAGE COMMAND"
        assert "IMAGE is the image of your container, COMMAND the line that starts your job." in unknown.text

    def test_remount_is_offered_on_a_host_but_not_in_a_container(self):
        assert "remount" in torchrun.shm_size(EIGHT_GPUS, []).commands[0]
        inside = msgspec.structs.replace(EIGHT_GPUS, container="docker")
        assert not any("mount" in line for line in torchrun.shm_size(inside, []).commands)
