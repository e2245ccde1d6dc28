"""Home, the screen of the checks and ``doctor`` show the same counts for the same snapshot."""

from pathlib import Path

import msgspec
from ddpwizard.app.options import Options
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.snapshot import Snapshot
from ddpwizard.knowledge.schema import Intrusiveness
from ddpwizard.screens.app import WizardApp
from helpers.command import ddpwizard
from helpers.recorded_state import RecordedMachine
from helpers.screen_pilot import frame, rows, shows, until, walk
from msgspec.structs import replace

SIZE = (80, 24)


class SmallSharedMemory(RecordedMachine):
    """The recorded machine with a /dev/shm of 64 MiB and a taken port; a probe without a recording has failed."""

    async def _recorded_probes(self, probes: list[str], context: ProbeContext, granted: Intrusiveness) -> Snapshot:
        found = await super()._recorded_probes(probes, context, granted)
        limits = found.limits and replace(found.limits, shm_total_bytes=64 << 20, shm_free_bytes=64 << 20)
        ports = found.ports and replace(found.ports, free=False)
        return replace(found, limits=limits, ports=ports)


@walk
async def test_home_and_doctor_show_the_same_counts(tmp_path: Path) -> None:
    state = SmallSharedMemory(Options())
    async with WizardApp(state).run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "inspecting this machine" not in frame(pilot) and bool(state.checks))
        saved = tmp_path / "machine.json"
        saved.write_bytes(msgspec.json.encode(state.snapshot))
        counts = ddpwizard("doctor", "--replay", str(saved)).stdout.splitlines()[0].split("  ")[-1].strip()
        problems = [each for each in counts.split(" · ") if each.split()[1] in ("warn", "fail")]
        assert problems
        await shows(pilot, "Check this machine  ")
        row = next(row for row in rows(pilot) if "Check this machine" in row)
        assert row.endswith("  " + " · ".join(problems))
        await pilot.press("8")
        await shows(pilot, "This machine")
        assert rows(pilot)[0].endswith("  " + counts)
