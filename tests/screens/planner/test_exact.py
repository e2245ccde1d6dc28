"""The planner's screen and the user's own code: asked for before it is imported, built in a child, tracked."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.plan import exact_comparison, exact_memory, form_fields, plan_answer
from ddpwizard.app.plan.model_source import ModelSource
from ddpwizard.app.plan.request import PlanRequest
from ddpwizard.app.plan.types import Model, PlanRow
from ddpwizard.app.system.procfs import all_processes
from ddpwizard.app.text.units import GIB
from ddpwizard.screens.app import WizardApp
from ddpwizard.screens.planner.breakdown import tracked_comparison
from ddpwizard.screens.planner.form import PlanForm
from ddpwizard.screens.planner.screen import PlanScreen
from helpers.recorded_state import RecordedState, snapshot
from helpers.screen_pilot import frame, shows, until, walk
from textual.pilot import Pilot
from textual.widgets import Input

SIZE = (80, 24)
CHILD_LIMIT_S = 120.0  # torch is imported and a model built, while other tests may run
OWN = """
from pathlib import Path
Path("imported").touch()

def tiny():
    from llama import tiny
    return tiny()

def slow():
    model = tiny()
    model.forward = lambda *args, **kwargs: never()
    return model

def wrong():
    raise ValueError("no such weights")

def never():
    Path("begun").touch()
    while True:
        pass
"""
LLAMA = (Path(__file__).parents[2] / "helpers" / "llama.py").read_text()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with code of the user's, run by the interpreter of the tests."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    here = tmp_path / f"a directory whose path {'fills more than the line it is shown in ' * 2}"
    here.mkdir()
    (here / "own.py").write_text(OWN)
    (here / "llama.py").write_text(LLAMA)
    monkeypatch.chdir(here)
    return here


def children(directory: Path) -> list[int]:
    """Return the processes in the directory other than the tests."""
    alive = [proc for proc in all_processes().values() if proc.state != "Z" and proc.cwd == str(directory)]
    return [proc.pid for proc in alive if proc.pid != os.getpid()]


async def entered(pilot: Pilot[int], model: str) -> PlanScreen:
    """Write a model into the form and press enter."""
    screen = pilot.app.screen
    assert isinstance(screen, PlanScreen)
    await shows(pilot, "per GPU")
    field = screen.query_one("#model", Input)
    field.value = model
    field.focus()
    await until(pilot, lambda: screen._shown == screen._number)
    await pilot.press("enter")
    return screen


@walk
async def test_code_is_imported_only_after_confirmation(here: Path) -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=SIZE) as pilot:
        screen = await entered(pilot, "own:tiny")
        await shows(pilot, "Import own to build the model?", "importing own in", "24 GiB", "No")
        await pilot.press("enter")
        await shows(pilot, "own:tiny is a Python function and has not been imported yet", "press Enter in that field")
        await entered(pilot, "gpt2")
        await until(pilot, lambda: screen._rows[0].setting.model.name == "gpt2")
        await entered(pilot, "own:a b")
        await shows(pilot, "own:a b names no function")
    assert not (here / "imported").exists()


@pytest.mark.jobs
@pytest.mark.slow
@walk
async def test_a_model_from_code_is_planned_and_tracked_as_by_the_command(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[exact_memory.TrackedStrategy] = []

    async def track(*arguments: Any) -> exact_memory.TrackedStrategy:
        found.append(await track_candidate(*arguments))
        return found[-1]

    track_candidate = exact_memory.track_candidate
    monkeypatch.setattr(exact_memory, "track_candidate", track)
    async with WizardApp(RecordedState(), "plan").run_test(size=SIZE) as pilot:
        screen = await entered(pilot, "own:tiny")
        await shows(pilot, "Yes, import it")
        await pilot.press("2")
        await shows(pilot, "0.203 M parameters", "Fits: ", "assumed layers: the 3 Block", limit_s=CHILD_LIMIT_S)
        assert (here / "imported").exists()
        assert screen._rows[0].setting.model.layers == 3
        row = screen._rows[0]
        assert row.candidate.strategy == "DDP"
        screen.query_one("#strategies").focus()
        await pilot.press("enter")
        await shows(pilot, "1 of ", "x exact")
        await pilot.press("x")
        await shows(pilot, "tracking DDP", f"/ {exact_memory.LIMIT_S:g} s")
        await shows(pilot, "Exact: what PyTorch allocates", "peak in", limit_s=CHILD_LIMIT_S)
        notes = exact_comparison.render_comparison(found)
        printed = next(line for line in notes if line.startswith("  total")).split()
        assert printed == next(line for line in frame(pilot).splitlines() if line.startswith(" total")).split()
        assert "tracking DDP" not in frame(pilot)
        await pilot.press("escape")
        await shows(pilot, "Fits: ")
        await pilot.press("enter")
        await shows(pilot, "Exact: what PyTorch allocates")  # still known
        await pilot.press("escape")
        screen.query_one(PlanForm).set("seq_len", "64")
        await until(pilot, lambda: screen._rows[0].setting.train.seq_len == 64)
        await pilot.press("enter")
        await shows(pilot, "1 of ")
        assert "Exact: " not in frame(pilot)  # of another plan


@pytest.mark.jobs
@pytest.mark.slow
@walk
async def test_failing_code_is_reported_in_the_form() -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=SIZE) as pilot:
        await entered(pilot, "own:wrong")
        await shows(pilot, "Yes, import it")
        await pilot.press("2")
        await shows(pilot, "building own:wrong failed: ValueError: no such weights", limit_s=CHILD_LIMIT_S)
        await entered(pilot, "own:wrong")
        await shows(pilot, "Import own to build the model?")  # it may be fixed now


@pytest.mark.jobs
@pytest.mark.slow
@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
@walk
async def test_code_that_never_returns_is_cancelled_with_a_key(key: str, here: Path) -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=SIZE) as pilot:
        screen = await entered(pilot, "own:never")
        await shows(pilot, "Yes, import it")
        await pilot.press("2")
        await shows(pilot, "building own:never", "/ 60 s")
        await until(pilot, lambda: (here / "begun").exists(), CHILD_LIMIT_S)
        assert children(here)
        await pilot.press(key)
        await shows(pilot, "Cancelled.", "has not been imported yet")
        assert "building own:never" not in frame(pilot)
        assert pilot.app.screen is screen
        await until(pilot, lambda: not children(here))


@pytest.mark.jobs
@pytest.mark.slow
@walk
async def test_tracking_is_cancelled_with_escape(here: Path) -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=SIZE) as pilot:
        screen = await entered(pilot, "own:slow")
        await shows(pilot, "Yes, import it")
        await pilot.press("2")
        await shows(pilot, "0.203 M parameters", limit_s=CHILD_LIMIT_S)
        screen.query_one("#strategies").focus()
        await pilot.press("enter")
        await shows(pilot, "1 of ")
        await pilot.press("x")
        await shows(pilot, "tracking ", "esc cancels it")
        await until(pilot, lambda: (here / "begun").exists(), CHILD_LIMIT_S)
        await pilot.press("escape")
        await shows(pilot, "Cancelled.", "1 of ")
        assert "tracking " not in frame(pilot)
        await until(pilot, lambda: not children(here))
        await pilot.press("escape")
        await shows(pilot, "Fits: ")


@walk
async def test_untrackable_strategy_is_reported() -> None:
    async with WizardApp(RecordedState(), "plan").run_test(size=SIZE) as pilot:
        screen = await entered(pilot, "7b 32 4096 32000")
        await until(pilot, lambda: screen._rows[0].setting.model.hidden == 4096 and not screen._error)
        await pilot.press("enter")
        await shows(pilot, "1 of ")
        await pilot.press("x")
        await shows(pilot, "not tracked: tracking needs the module itself", "pkg.mod:build")
        await pilot.press("escape")
        await entered(pilot, "Llama-3.1-8B")
        await until(pilot, lambda: screen._rows[0].setting.model.name == "Llama-3.1-8B")
        at = next(at for at, row in enumerate(screen._rows) if row.setting.layout.kind == "deepspeed")
        await pilot.press(*["down"] * at, "enter")
        await shows(pilot, f"{at + 1} of ")
        await pilot.press("x")
        await shows(pilot, "not tracked: torch's trackers do not know DeepSpeed", "n shows the next")


def test_model_paths_work_as_in_the_command(here: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    config |= {"vocab_size": 100, "intermediate_size": 128}
    (here / "llama").mkdir()
    (here / "llama" / "config.json").write_text(json.dumps(config))
    header = json.dumps({"w": {"dtype": "F32", "shape": [10, 64], "data_offsets": [0, 2560]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes(2560)
    (here / "some.safetensors").write_bytes(weights)
    for model in ("llama", "llama/config.json", str(here / "llama")):
        source = asked(model).source
        assert source.model.hidden == 64
        assert Path(source.config).samefile(here / "llama") or Path(source.config).samefile(here / "llama/config.json")
    assert asked("some.safetensors").setting.model.params == 640
    assert not asked("some.safetensors").source.config
    assert asked("gpt2").source.config.startswith("{")
    (here / "gpt2").mkdir()
    with pytest.raises(UserError, match=r"config\.json"):  # what is there goes before a name
        asked("gpt2")


def test_weights_frozen_by_code_are_not_trained() -> None:
    built = ModelSource(Model(params=1e9, layers=4, hidden=64, vocab=100), [], "own:tiny", frozen=0.25)
    machine = form_fields.form_machine(snapshot())
    values = form_fields.initial_values(machine, Path.cwd()) | {"model": "own:tiny"}
    assert form_fields.request_from_form(values, machine, {"own:tiny": built}).setting.train.frozen == 0.25
    with pytest.raises(UserError, match="no memory"):
        form_fields.request_from_form(values, machine, {"own:tiny": UserError("no memory")})


def asked(model: str) -> PlanRequest:
    machine = form_fields.form_machine(snapshot())
    return form_fields.request_from_form(form_fields.initial_values(machine, Path.cwd()) | {"model": model}, machine)


def test_comparison_of_formula_and_tracker() -> None:
    question = asked("gpt2")
    row = PlanRow(plan_answer.make_answer(question).rows[0].candidate, question.setting)
    formula = exact_memory.PeakParts(
        params=GIB, grads=0, optimizer=2 * GIB, activations=3.5 * GIB, buffers=0, temporaries=0
    )
    seen = exact_memory.PeakParts(params=GIB, grads=0, optimizer=2 * GIB, activations=3 * GIB, buffers=0, temporaries=0)
    found = exact_memory.TrackedStrategy(
        strategy=row.candidate.strategy,
        recompute="none",
        formula_peak_bytes_per_gpu=6.5 * GIB,
        formula_phase="loss",
        formula_bytes=formula,
        tracked_peak_bytes_per_gpu=6.0 * GIB,
        tracked_phase="backward",
        tracked_bytes=seen,
        differs=["activations"],
    )
    shown = [line.plain for line in tracked_comparison(found, 56)]
    assert "params                           1.00     1.00      same" in shown
    assert "activations and loss             3.50     3.00     +0.50" in shown
    assert "total                            6.50     6.00     +8.3%" in shown
    assert next(line for line in shown if line.startswith("peak in")).split()[2:] == ["the", "loss", "backward"]
    assert all(len(line) <= 56 for line in shown)
    failed = exact_memory.TrackedStrategy(
        strategy="DDP", recompute="none", formula_peak_bytes_per_gpu=1, formula_phase="loss", formula_bytes=formula,
        problem="it reads a value of a tensor",
    )  # fmt: skip
    assert "not tracked: it reads a value of a tensor" in [line.plain for line in tracked_comparison(failed, 56)]
