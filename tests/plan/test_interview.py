"""The interview: what its answers set, what it gives as reasons, and the commands at its end."""

import shlex
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan import form_fields, interview, plan_answer, summary
from ddpwizard.app.plan.job_files.write import start_command
from ddpwizard.app.plan.strategies import table
from ddpwizard.app.plan.types import PlanRow

NO_MACHINE = form_fields.FormMachine()


def values(**changed: str) -> dict[str, str]:
    return form_fields.initial_values(NO_MACHINE, Path("/")) | {"model": "Llama-3.1-8B", "seq_len": "4096"} | changed


def rows(**changed: str) -> list[PlanRow]:
    return plan_answer.make_answer(form_fields.request_from_form(values(**changed), NO_MACHINE)).rows


class TestGpus:
    @pytest.mark.parametrize(
        ("given", "gpus", "gpu"),
        [
            ("8 H100", "8", "H100"),
            ("8x H100", "8", "H100"),
            ("16 × a100-80g", "16", "a100-80g"),
            ("4090", "1", "4090"),
            ("2 4090", "2", "4090"),
            ("H100", "1", "H100"),
            ("p5.48xlarge", "8", "p5.48xlarge"),
        ],
    )
    def test_number_and_name(self, given: str, gpus: str, gpu: str) -> None:
        found = interview.parse_gpus(given, values(), NO_MACHINE)
        assert (found["gpus"], found["gpu"]) == (gpus, gpu)

    def test_a_number_keeps_the_gpu(self) -> None:
        assert interview.parse_gpus("16", values(), NO_MACHINE) == {"gpus": "16", "nodes": ""}

    def test_unknown_gpu_is_refused(self) -> None:
        with pytest.raises(UserError, match="not known"):
            interview.parse_gpus("8 X900", values(), NO_MACHINE)


class TestAnswers:
    def test_each_has_the_figures_of_its_own_plan(self) -> None:
        for question in interview.ANSWERS:
            for answer in interview.answers(question, values(), NO_MACHINE):
                best = rows(**answer.fields)[0]
                assert summary.speed_text(best) in answer.figure
                assert "of 79 GiB on each GPU" in answer.figure
                assert answer.figure.startswith(best.candidate.full_name)

    @pytest.mark.parametrize(("length", "starts"), [("4096", "too slow in practice"), ("1048576", "does not fit")])
    def test_what_does_not_work_says_so(self, length: str, starts: str) -> None:
        asked = values(model="Llama-3.1-405B", gpus="1", seq_len=length)
        assert interview.answers("trained", asked, NO_MACHINE)[0].figure.partition(": ")[2].startswith(starts)

    def test_the_best_strategy_comes_first_and_others_have_a_reason(self) -> None:
        ranked = rows()
        found = interview.strategy_answers(ranked)
        assert found[0][0] == 0
        assert 1 < len(found) <= table.MOST_CHOICES
        names = [ranked[at].candidate.strategy for at, _ in found]
        assert len(set(names)) == len(names)
        assert all(ranked[at].candidate.strategy in text for at, text in found)


class TestCommands:
    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({}, {"--model": "Llama-3.1-8B", "--gpus": "8", "--seq-len": "4096"}),
            ({"lora": "16", "lora_target": "all-linear", "quant": "nf4"}, {"--lora": "16", "--quant": "nf4"}),
            ({"gpu": "p5.48xlarge"}, {"--machine": "p5.48xlarge"}),
            ({"micro_batch": "2", "dtype": "fp32"}, {"--micro-batch": "2", "--dtype": "fp32"}),
            ({"model": "7b 32 4096 32000"}, {"--params": "7000000000", "--layers": "32", "--vocab": "32000"}),
        ],
    )
    def test_the_command_has_what_was_answered(self, changed: dict[str, str], words: dict[str, str]) -> None:
        given = values(**changed)
        best = rows(**changed)[0]
        found = shlex.split(interview.plan_command(given, best, "job dir"))
        options = dict(zip(found[2::2], found[3::2], strict=True))
        assert words.items() <= options.items()
        assert options["--strategy"] == best.candidate.strategy
        assert options["--write"] == "job dir"
        assert start_command(best, "job dir").startswith("sh 'job dir'/launch.sh")
