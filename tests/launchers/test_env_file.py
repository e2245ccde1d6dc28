"""The environment file, read by a real shell."""

import subprocess
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.launchers import env_file
from helpers.machines import CPU_ONLY, EIGHT_GPUS


def sourced(text: str, directory: Path) -> dict[str, str]:
    """Return the variables that an empty shell exports after sourcing the file."""
    path = directory / "a file.env"
    path.write_text(text)
    subprocess.run(["bash", "-n", str(path)], check=True)
    shown = subprocess.run(
        ["env", "-i", "bash", "-c", 'set -e; . "$1"; env -0', "bash", str(path)],
        capture_output=True,
        check=True,
        cwd=directory,
    )
    assert shown.stderr == b""
    pairs = (entry.partition(b"=") for entry in shown.stdout.split(b"\0") if entry)
    shells_own = {"PWD", "SHLVL", "_", "OLDPWD"}
    return {name.decode(): value.decode() for name, _, value in pairs if name.decode() not in shells_own}


class TestEnvFile:
    """Only variables that help on this machine and that are read."""

    def test_variables_of_a_gpu_machine(self, tmp_path: Path):
        made = env_file.env_file(EIGHT_GPUS, [])
        assert sourced(made.files[env_file.FILE], tmp_path) == {
            "NCCL_SOCKET_IFNAME": "=eth0",
            "GLOO_SOCKET_IFNAME": "eth0",
            "NCCL_DEBUG": "WARN",
            "OMP_NUM_THREADS": "8",
        }

    def test_shown_command_sources_the_generated_file(self, tmp_path: Path):
        made = env_file.env_file(EIGHT_GPUS, [])
        (tmp_path / env_file.FILE).write_text(made.files[env_file.FILE])
        shown = subprocess.run(
            ["env", "-i", "bash", "-c", f"{made.commands[0]}; echo $NCCL_SOCKET_IFNAME"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout == "=eth0\n"

    def test_each_variable_has_a_reason(self):
        lines = env_file.env_file(EIGHT_GPUS, []).files[env_file.FILE].splitlines()
        for above, line in pairwise(lines):
            if line.startswith("export "):
                assert above.startswith("# ")

    def test_cpu_machine_gets_no_nccl_variables(self, tmp_path: Path):
        machine = msgspec.structs.replace(CPU_ONLY, interface="eth0")
        found = sourced(env_file.env_file(machine, []).files[env_file.FILE], tmp_path)
        assert found == {"GLOO_SOCKET_IFNAME": "eth0"}

    @pytest.mark.parametrize(
        ("torch", "names"),
        [
            ((2, 1), set()),
            ((2, 2), {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"}),
            ((2, 7), {"TORCH_NCCL_TRACE_BUFFER_SIZE"}),
            ((2, 8), {"TORCH_FR_BUFFER_SIZE"}),
            ((2, 10), {"TORCH_FR_BUFFER_SIZE"}),
            ((2, 11), set()),
        ],
    )
    def test_flight_recorder_is_enabled_if_off_by_default(self, torch: tuple[int, int], names: set[str]):
        machine = msgspec.structs.replace(EIGHT_GPUS, torch=torch)
        assert {v.name for v in env_file.recommended_variables(machine) if v.name.startswith("TORCH_")} == names

    def test_unknown_machine_gives_text_only(self):
        made = env_file.env_file(Machine(), [])
        assert made.files == {}
        assert "This fix needs" in made.text


class TestPinInterface:
    """The selectors alone."""

    def test_nccl_gets_an_exact_name_and_gloo_a_plain_one(self, tmp_path: Path):
        found = sourced(env_file.pin_interface(EIGHT_GPUS, []).files[env_file.FILE], tmp_path)
        assert found == {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}

    def test_other_usable_interfaces_are_listed(self):
        machine = msgspec.structs.replace(EIGHT_GPUS, other_interfaces=["eth1", "eth2"])
        made = env_file.pin_interface(machine, [])
        assert "eth1, eth2" in made.text
        assert "eth1, eth2" in made.files[env_file.FILE]

    def test_interface_of_a_machine_that_was_not_seen_is_left_to_the_user(self):
        made = env_file.pin_interface(Machine(gpu_count=8), [])
        assert made.files == {}
        assert made.commands[0] == "ip -brief address"
        assert {"NCCL_SOCKET_IFNAME=INTERFACE", "GLOO_SOCKET_IFNAME=INTERFACE"} < set(made.commands[1].split())

    @pytest.mark.parametrize(
        "name",
        [
            "eth0; touch pwned",
            "$(touch pwned)",
            "`touch pwned`",
            "it's",
            'a"b',
            "a b",
            "a\ntouch pwned",
            "-n",
            "#x",
            "*",
        ],
    )
    def test_special_characters_stay_in_the_value(self, name: str, tmp_path: Path):
        machine = msgspec.structs.replace(EIGHT_GPUS, interface=name, other_interfaces=[name])
        found = sourced(env_file.pin_interface(machine, []).files[env_file.FILE], tmp_path)
        assert found == {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}
        assert not (tmp_path / "pwned").exists()
