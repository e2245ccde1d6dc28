"""The generated scripts as text; that they run stands in tests/jobs/test_generated_runs.py."""

import ast

import msgspec
import pytest
from ddpwizard.app.fixes import code_templates
from ddpwizard.app.hardware.machine import Machine
from ddpwizard.app.review.review import review_text
from ddpwizard.knowledge.loader import read_knowledge
from helpers.machines import CPU_ONLY, EIGHT_GPUS

GENERATORS = [
    code_templates.ddp_code,
    code_templates.fsdp2_code,
    code_templates.join_context,
    code_templates.find_unused,
]
OLD_CARD = msgspec.structs.replace(EIGHT_GPUS, gpu_name="Tesla T4")


def script(generator, box: Machine) -> str:
    (content,) = generator(box, []).files.values()
    return content


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("box", [EIGHT_GPUS, CPU_ONLY, OLD_CARD, Machine()], ids=["gpus", "cpu", "old", "unknown"])
class TestEveryScript:
    """Whatever the box."""

    def test_it_is_python_3_9_without_unresolved_marks(self, generator, box: Machine):
        ast.parse(script(generator, box), feature_version=(3, 9))

    def test_the_review_finds_nothing_in_it(self, generator, box: Machine):
        assert review_text(script(generator, box), "made.py", read_knowledge()) == []

    def test_the_line_to_start_it_names_the_file(self, generator, box: Machine):
        made = generator(box, ["train.py"])
        ((name, content),) = made.files.items()
        assert made.commands[0].split()[-1] == name
        assert name in content


class TestWhatTheBoxChanges:
    """Single lines of the templates."""

    def test_the_start_line_counts_the_gpus(self):
        assert "torchrun --standalone --nproc-per-node=8 ddp_setup.py" in script(code_templates.ddp_code, EIGHT_GPUS)

    def test_the_templates_hold_the_lines_that_are_replaced(self):
        for name, lines in {
            "ddp_setup.py": [code_templates.START.format(name="ddp_setup.py"), code_templates.WORKERS],
            "fsdp2_setup.py": [code_templates.START.format(name="fsdp2_setup.py"), code_templates.BFLOAT16],
            "join_loop.py": [code_templates.START.format(name="join_loop.py")],
        }.items():
            text = (code_templates.TEMPLATES / name).read_text()
            assert [text.count(line) for line in lines] == [1] * len(lines)

    @pytest.mark.parametrize(("cpus", "workers"), [(96, 8), (32, 3), (16, 1), (8, 0)])
    def test_loader_workers_leave_a_cpu_to_each_rank(self, cpus: int, workers: int):
        made = script(code_templates.ddp_code, msgspec.structs.replace(EIGHT_GPUS, cpus=cpus))
        assert f"WORKERS = {workers} " in made

    def test_float32_on_cards_without_bfloat16(self):
        assert "PARAM_DTYPE = torch.bfloat16" in script(code_templates.fsdp2_code, EIGHT_GPUS)
        assert "PARAM_DTYPE = torch.float32" in script(code_templates.fsdp2_code, OLD_CARD)


class TestOlderTorch:
    """Words only where the code would not run."""

    @pytest.mark.parametrize(
        ("generator", "last_without", "first_with"),
        [
            (code_templates.ddp_code, (2, 2), (2, 3)),
            (code_templates.fsdp2_code, (2, 5), (2, 6)),
            (code_templates.join_context, (2, 0), (2, 1)),
        ],
    )
    def test_version(self, generator, last_without: tuple[int, int], first_with: tuple[int, int]):
        refused = generator(msgspec.structs.replace(EIGHT_GPUS, torch=last_without), [])
        assert (refused.files, refused.commands) == ({}, [])
        assert f"{first_with[0]}.{first_with[1]} or newer" in refused.text
        assert generator(msgspec.structs.replace(EIGHT_GPUS, torch=first_with), []).files
