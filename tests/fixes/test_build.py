"""Building fixes from a cause and a case: the machine of the generators, the table of generators, the patches."""

import json
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.fixes.build import GENERATORS, FixContext, build_fixes, target_of
from ddpwizard.app.hardware.machine import Machine, interfaces_to_pin, machine_from_snapshot
from ddpwizard.app.jobs.types import Job, Process
from ddpwizard.app.probes import network_judge
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.snapshot import GpuSection, PortSection, ResolveSection
from ddpwizard.app.triage.types import JobReport, Observation, ProcessSamples, Verdict
from ddpwizard.knowledge.schema import FixSpec
from helpers.built_in_knowledge import built_in_knowledge
from helpers.machines import CPU_ONLY, EIGHT_GPUS, GIB, gpu, interface, snapshot

KNOWLEDGE = built_in_knowledge()
HUNG = """\
import torch
import torch.distributed as dist


def validate(score: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(score)
        print(score)


dist.init_process_group("gloo")
validate(torch.ones(1))
"""
CONDITIONAL = KNOWLEDGE.causes["rank-conditional-collective"]


def report(command: list[str], cwd: Path, *, where: str | None = None, branch: str | None = None) -> JobReport:
    process = Process(pid=1, rank=0, local_rank=0, command=command, cwd=str(cwd), python=command[0], environ={})
    job = Job(
        launcher="torchrun",
        launcher_pid=None,
        launcher_command=[],
        world_size=1,
        master="",
        host="here",
        processes=[process],
    )
    return JobReport(
        launcher="torchrun",
        world_size=1,
        nodes=["here"],
        ranks=[],
        verdict=Verdict(
            state="hung",
            cause=CONDITIONAL.id,
            culprits=[0],
            collective="all_reduce",
            where=where,
            branch=branch,
            why="",
            confidence=1.0,
        ),
        observed=Observation(job=job, seen=[ProcessSamples(process=process, host="here")]),
    )


class TestMachine:
    """Machine of the generators, from a snapshot."""

    def test_machine_without_a_snapshot_is_empty(self):
        assert machine_from_snapshot(None) == Machine()
        assert machine_from_snapshot(None).gpu_count is None

    def test_machine_with_gpus(self):
        eight = GpuSection(driver="570.1", gpus=[gpu(i, memory_gib=80 - i) for i in range(8)])
        machine = machine_from_snapshot(snapshot(gpus=eight))
        assert (machine.gpu_count, machine.ranks, machine.gpu_memory_bytes) == (8, 8, 73 * GIB)
        assert machine.bf16
        assert (machine.interface, machine.head, machine.free_port, machine.torch) == (
            "eth0",
            "10.0.0.5",
            29500,
            (2, 13),
        )

    @pytest.mark.parametrize(
        ("visible", "indices"),
        [
            (None, [0, 1, 2]),
            ("2,0", [2, 0]),
            ("", []),
            ("-1", []),
            ("1,7,0", [1]),  # CUDA stops at the first that is not there
            ("0,0", []),
            ("GPU-1", [1]),
            (" 1 , 2 ", [1, 2]),
        ],
    )
    def test_visible_gpus_are_counted(self, visible: str | None, indices: list[int]):
        section = GpuSection(driver="570.1", gpus=[gpu(i, memory_gib=10 + i) for i in range(3)], visible=visible)
        machine = machine_from_snapshot(snapshot(gpus=section))
        assert machine.gpu_count == len(indices)
        assert machine.gpu_memory_bytes == min((10 + i for i in indices), default=0) * GIB

    def test_gpus_of_another_vendor_come_from_torch(self):
        assert machine_from_snapshot(snapshot(gpu_count_torch=4)).gpu_count == 4
        assert machine_from_snapshot(snapshot()).gpu_count == 0

    def test_busy_port_is_replaced_by_the_free_one(self):
        ports = PortSection(
            port=29500, from_variable=False, free=False, holder_pid=77, holder="python old.py", free_alternative=30123
        )
        machine = machine_from_snapshot(snapshot(ports=ports))
        assert (machine.free_port, machine.busy_port) == (30123, 29500)
        assert machine.port_holder == "python old.py (pid 77)"

    @pytest.mark.parametrize(("loopback", "head"), [(False, "head-node"), (True, "10.0.0.5")])
    def test_master_addr_is_kept_unless_it_is_loopback(self, loopback: bool, head: str):
        resolve = ResolveSection(
            master_addr="head-node", master_port=29500, addresses=["10.0.0.9"], loopback=loopback, ours=False, nnodes=4
        )
        machine = machine_from_snapshot(snapshot(resolve=resolve))
        assert (machine.head, machine.nodes) == (head, 4)

    def test_names_of_shell_variables(self):
        machine = machine_from_snapshot(snapshot(variables={"MASTER_PORT": "1", "RANK": "0", "NCCL_DEBUG": "INFO"}))
        assert list(machine.shell_variables) == ["MASTER_PORT", "RANK", "NCCL_DEBUG"]


class TestInterfaceToPin:
    """The fastest real interface that is up and has an address."""

    @pytest.mark.parametrize(
        ("interfaces", "name", "others"),
        [
            ([interface("docker0", "bridge"), interface("eth0"), interface("lo", "loopback")], "eth0", []),
            ([interface("eth0", speed=1000, default=True), interface("ens1", speed=100_000)], "ens1", ["eth0"]),
            ([interface("eth0"), interface("eth1", default=True)], "eth1", ["eth0"]),
            ([interface("ib0", "infiniband", speed=200_000), interface("eth0")], "ib0", ["eth0"]),
            ([interface("eth0", up=False), interface("eth1", address="")], "", []),
            ([interface("eth0", "virtual", default=True), interface("veth1", "virtual")], "eth0", []),
            ([interface("br0", "bridge", default=True), interface("veth1", "virtual")], "br0", []),
            ([interface("veth1", "virtual")], "", []),
        ],
    )
    def test_interface_choice(self, interfaces, name: str, others: list[str]):
        network = snapshot(interfaces=interfaces).network
        assert network
        chosen, rest = interfaces_to_pin(network)
        assert (chosen.name if chosen else "") == name
        assert [each.name for each in rest] == others
        judged = network_judge._recommended_interface(network)  # what the check recommends must be what the fix pins
        assert (judged.name if judged else "") == name

    def test_ipv4_before_ipv6_as_the_head(self):
        both = msgspec.structs.replace(interface("eth0"), addresses=["fd00::5/64", "10.0.0.7/24"])
        assert machine_from_snapshot(snapshot(interfaces=[both])).head == "10.0.0.7"


class TestTarget:
    """The script and its arguments, as a launcher takes them."""

    @pytest.mark.parametrize(
        ("command", "target"),
        [
            (["python", "train.py", "--lr", "1"], ["train.py", "--lr", "1"]),
            (["python", "-u", "-X", "dev", "-W", "ignore", "train.py"], ["train.py"]),
            (["python", "-u", "-m", "pkg.train", "--lr", "1"], ["-m", "pkg.train", "--lr", "1"]),
            (["python", "-c", "import torch"], ["asked.py"]),
            (["python"], ["asked.py"]),
        ],
    )
    def test_target_of_a_running_job(self, command: list[str], target: list[str], tmp_path: Path):
        assert target_of(FixContext(script="asked.py", report=report(command, tmp_path))) == target

    def test_target_of_a_script_named_like_an_option(self):
        assert target_of(FixContext(script="-x.py")) == ["./-x.py"]

    def test_no_target_without_job_and_script(self):
        assert target_of(FixContext()) == []


class TestGenerators:
    """Table of generators."""

    def test_every_generator_an_entry_names_is_declared(self):
        named = {spec.generator for cause in KNOWLEDGE.causes.values() for spec in cause.fixes if spec.generator}
        assert named
        assert named <= set(GENERATORS)

    @pytest.mark.parametrize("name", GENERATORS)
    @pytest.mark.parametrize("machine", [EIGHT_GPUS, CPU_ONLY, Machine()], ids=["gpus", "cpu", "unknown"])
    def test_each_generator_gives_text_and_one_line_commands(self, name: str, machine: Machine):
        made = GENERATORS[name](machine, ["train.py"])
        assert made.text.strip()
        assert all(line and "\n" not in line for line in made.commands)
        assert all("/" not in name and content.endswith("\n") for name, content in made.files.items())

    @pytest.mark.parametrize("situation", [FixContext(), FixContext(snapshot=snapshot(), script="no-such.py")])
    def test_every_fix_of_every_entry_can_be_built(self, situation: FixContext):
        for cause in KNOWLEDGE.causes.values():
            fixes = build_fixes(cause, situation, KNOWLEDGE)
            assert {(fix.id, fix.cause) for fix in fixes} == {(spec.id, cause.id) for spec in cause.fixes}
            for fix in fixes:
                assert fix.text or fix.code or fix.commands, fix.id
                assert fix.safety == "display" or fix.files or fix.patches, fix.id

    def test_unknown_generator_of_a_team_entry_is_reported(self):
        spec = FixSpec(id="x", kind="config", title="X", generator="no-such", safety="safe")
        cause = msgspec.structs.replace(CONDITIONAL, fixes=[spec])
        (fix,) = build_fixes(cause, FixContext(), KNOWLEDGE)
        assert fix.safety == "display"
        assert "no-such" in fix.text


class TestPatches:
    """Patches come from the review's rules."""

    def patch(self, situation: FixContext):
        return next(fix for fix in build_fixes(CONDITIONAL, situation, KNOWLEDGE) if fix.id == self.spec.id)

    spec = next(spec for spec in CONDITIONAL.fixes if spec.kind == "patch")

    def test_patch_from_the_findings(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(HUNG)
        fix = self.patch(FixContext(findings=review_file(path, KNOWLEDGE)))
        (patch,) = fix.patches
        assert (patch.path, patch.before) == (str(path), HUNG)
        assert patch.after != HUNG
        assert fix.safety == "unsafe"
        assert fix.why_unsafe
        path.write_text(patch.after)
        assert [f for f in review_file(path, KNOWLEDGE) if f.rule == "DW401"] == []

    def test_notebook_is_patched_in_its_cell(self, tmp_path: Path):
        path = tmp_path / "train.ipynb"
        cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": HUNG.splitlines(keepends=True)}]
        path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))
        (patch,) = self.patch(FixContext(findings=review_file(path, KNOWLEDGE))).patches
        path.write_text(patch.after)
        assert json.loads(patch.after).keys() == json.loads(patch.before).keys()
        assert [f for f in review_file(path, KNOWLEDGE) if f.rule == "DW401"] == []

    def test_patch_from_the_script_alone(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(HUNG)
        assert self.patch(FixContext(script=str(path))).patches

    def test_patch_from_the_line_of_the_job(self, tmp_path: Path):
        helper, script = tmp_path / "helper.py", tmp_path / "train.py"
        helper.write_text(HUNG)
        script.write_text("import helper\n")
        job = report(["python", "train.py"], tmp_path, where=f"{helper}:7", branch=f"{helper}:6")
        assert [patch.path for patch in self.patch(FixContext(report=job)).patches] == [str(helper)]

    def test_patch_from_the_command_and_directory_of_the_job(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_text(HUNG)
        assert self.patch(FixContext(report=report(["python", "-u", "train.py"], tmp_path))).patches

    def test_patch_keeps_newlines_and_encoding(self, tmp_path: Path):
        path = tmp_path / "train.py"
        path.write_bytes(("# -*- coding: latin-1 -*-\n# \xe9\n" + HUNG).replace("\n", "\r\n").encode("latin-1"))
        (patch,) = self.patch(FixContext(script=str(path))).patches
        assert patch.before.encode("latin-1") == path.read_bytes()
        assert "\n" not in patch.after.replace("\r\n", "")

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"x = 1\n", "can be patched automatically"),
            (b"def (:\n", "train.py:1"),
            (b"\x00\x01\xff", "train.py"),
            (None, "No such file or directory"),
        ],
    )
    def test_text_only_if_there_is_nothing_to_patch(self, content: bytes | None, expected: str, tmp_path: Path):
        path = tmp_path / "train.py"
        if content is not None:
            path.write_bytes(content)
        fix = self.patch(FixContext(script=str(path)))
        assert (fix.patches, fix.safety) == ([], "display")
        assert expected in fix.text

    def test_text_only_without_a_script(self):
        assert "ddpwizard review SCRIPT" in self.patch(FixContext()).text
