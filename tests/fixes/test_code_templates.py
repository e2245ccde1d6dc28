"""The generated scripts as text; tests/real_jobs/test_generated_fixes.py runs them."""

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.fixes import code_templates
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.review.review import review_text
from helpers.built_in_knowledge import built_in_knowledge
from helpers.machines import CPU_ONLY, EIGHT_GPUS

GENERATORS = [
    code_templates.ddp_code,
    code_templates.fsdp2_code,
    code_templates.join_context,
    code_templates.find_unused,
]
OLD_CARD = msgspec.structs.replace(EIGHT_GPUS, gpu_name="Tesla T4")
MACHINES = {"gpus": EIGHT_GPUS, "cpu": CPU_ONLY, "old": OLD_CARD, "unknown": Machine()}


def script(generator, machine: Machine) -> str:
    (content,) = generator(machine, []).files.values()
    return content


def test_every_script_is_complete_and_formatted(tmp_path: Path):
    for generator, (name, machine) in itertools.product(GENERATORS, MACHINES.items()):
        content = script(generator, machine)
        assert "{{" not in content
        assert "#?" not in content
        (tmp_path / f"{generator.__name__}_{name}.py").write_text(content)
    rules = ["check", "--select", "E,F,I,B,UP,SIM"], ["format", "--check"]
    for words in rules:
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--no-cache", "--line-length", "120"]
        done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
class TestEveryScript:
    """Properties of every script, on any machine."""

    def test_script_is_python_3_9_without_unresolved_marks(self, generator, machine: Machine):
        ast.parse(script(generator, machine), feature_version=(3, 9))

    def test_review_finds_nothing_in_the_script(self, generator, machine: Machine):
        assert review_text(script(generator, machine), "made.py", built_in_knowledge()) == []

    def test_start_line_names_the_file(self, generator, machine: Machine):
        made = generator(machine, ["train.py"])
        ((name, content),) = made.files.items()
        assert made.commands[0].split()[-1] == name
        assert name in content


class TestMachineValues:
    """Lines of the templates that depend on the machine."""

    def test_the_start_line_counts_the_gpus(self):
        assert "torchrun --standalone --nproc-per-node=8 ddp_setup.py" in script(code_templates.ddp_code, EIGHT_GPUS)

    def test_the_join_template_holds_the_start_line_that_is_replaced(self):
        text = (code_templates.TEMPLATES / "join_loop.py").read_text()
        assert text.count(code_templates.START.format(name="join_loop.py")) == 1
        assert "--nproc-per-node=8 join_loop.py" in script(code_templates.join_context, EIGHT_GPUS)

    @pytest.mark.parametrize(("cpus", "workers"), [(96, 8), (32, 3), (16, 1), (8, 0)])
    def test_loader_workers_leave_a_cpu_to_each_rank(self, cpus: int, workers: int):
        made = script(code_templates.ddp_code, msgspec.structs.replace(EIGHT_GPUS, cpus=cpus))
        assert f"WORKERS = {workers} " in made

    def test_float32_on_cards_without_bfloat16(self):
        assert "MixedPrecisionPolicy(param_dtype=torch.bfloat16" in script(code_templates.fsdp2_code, EIGHT_GPUS)
        assert "MixedPrecisionPolicy" not in script(code_templates.fsdp2_code, OLD_CARD)
        assert "bfloat16" not in script(code_templates.fsdp2_code, OLD_CARD)


class TestOlderTorch:
    """Text only if the code would not run."""

    @pytest.mark.parametrize(
        ("generator", "last_without", "first_with"),
        [
            (code_templates.ddp_code, (2, 2), (2, 3)),
            (code_templates.fsdp2_code, (2, 5), (2, 6)),
            (code_templates.join_context, (2, 0), (2, 1)),
        ],
    )
    def test_older_torch_gives_text_only(self, generator, last_without: tuple[int, int], first_with: tuple[int, int]):
        refused = generator(msgspec.structs.replace(EIGHT_GPUS, torch=last_without), [])
        assert (refused.files, refused.commands) == ({}, [])
        assert f"{first_with[0]}.{first_with[1]} or newer" in refused.text
        assert generator(msgspec.structs.replace(EIGHT_GPUS, torch=first_with), []).files
