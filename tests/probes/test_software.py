"""The target interpreter: real interpreters, with torch, without, with one that breaks."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ddpwizard.app.errors import InspectionError
from ddpwizard.app.evidence import Check
from ddpwizard.app.probes import software
from ddpwizard.app.probes.context import ProbeContext
from ddpwizard.app.snapshot import Gpu, GpuSection, Snapshot, SoftwareSection
from msgspec.structs import replace

GPU = Gpu(index=0, uuid="GPU-1", name="NVIDIA H100", pci_id="0", memory_total_bytes=1, memory_used_bytes=0)
MACHINE = GpuSection(driver="570.124.06", gpus=[GPU])
FINE = SoftwareSection(
    python="/env/bin/python",
    python_version="3.12.1",
    torch="2.13.0+cu130",
    torch_path="/env/torch/__init__.py",
    cuda="13.0",
    cudnn="9.10.2",
    nccl="2.30.3",
    backends=["nccl", "gloo"],
    gpu_count_torch=1,
)


def look_at(python: str = sys.executable, limit_s: float = 60, path: Path | None = None) -> SoftwareSection:
    environ = {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
    return asyncio.run(software.collect(ProbeContext(python=python, environ=environ), limit_s))


def judge(section: SoftwareSection, gpus: GpuSection | None = None) -> list[Check]:
    return software.judge(Snapshot(taken_at=0, host="node", ddpwizard_version="0", software=section, gpus=gpus))


def findings(section: SoftwareSection, gpus: GpuSection | None = None) -> list[str]:
    return [check.finding for check in judge(section, gpus)]


def fake_torch(directory: Path, code: str) -> Path:
    (directory / "torch").mkdir()
    (directory / "torch" / "__init__.py").write_text(code)
    return directory


class TestCollect:
    def test_this_interpreter(self):
        import importlib.metadata

        section = look_at()
        assert section.torch.startswith(importlib.metadata.version("torch").split("+")[0])
        assert section.python_version == ".".join(map(str, sys.version_info[:3]))
        assert "gloo" in section.backends and section.problem == ""
        assert section.packages["numpy"] == importlib.metadata.version("numpy")
        assert findings(section) == ["software.torch-fine"]

    def test_an_interpreter_without_torch(self, tmp_path: Path):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
        python = str(tmp_path / "env" / "bin" / "python")
        section = look_at(python)
        assert (section.python, section.torch) == (python, "")
        (check,) = judge(section)
        assert (check.finding, check.where) == ("software.torch-missing", python)

    def test_failed_import_keeps_the_last_line(self, tmp_path: Path):
        code = "import sys\nprint('noise')\nraise ImportError('libcudnn.so.9: cannot open shared object file')"
        section = look_at(path=fake_torch(tmp_path, code))
        assert section.problem == "ImportError: libcudnn.so.9: cannot open shared object file"
        (check,) = judge(section)
        assert check.finding == "software.torch-broken"
        assert check.where == str(tmp_path / "torch" / "__init__.py")
        assert "libcudnn.so.9" in check.detail

    def test_import_that_kills_the_interpreter(self, tmp_path: Path):
        section = look_at(path=fake_torch(tmp_path, "import os; os.abort()"))
        assert "(signal 6)" in section.problem
        assert findings(section) == ["software.torch-broken"]

    def test_an_import_that_exits(self, tmp_path: Path):
        section = look_at(path=fake_torch(tmp_path, "raise SystemExit(3)"))
        assert section.problem == "SystemExit: 3"

    def test_missing_attributes_of_an_older_torch(self, tmp_path: Path):
        code = """if True:
            from types import SimpleNamespace as S
            import sys
            __version__ = "2.1.2"
            version = S(cuda="12.1")
            backends = S(cudnn=S(version=lambda: 8902))
            def broken(): raise RuntimeError("no driver")
            cuda = S(device_count=broken, get_arch_list=lambda: ["sm_80"])
            distributed = S(is_available=lambda: True, is_gloo_available=lambda: True)
            sys.modules["torch.distributed"] = distributed
        """
        section = look_at(path=fake_torch(tmp_path, code))
        assert (section.torch, section.cuda, section.cudnn) == ("2.1.2", "12.1", "8.9.2")
        assert (section.backends, section.arch_list, section.gpu_count_torch) == (["gloo"], ["sm_80"], 0)

    def test_a_torch_without_distributed(self, tmp_path: Path):
        code = """if True:
            from types import SimpleNamespace as S
            __version__ = "2.4.0"
            version = S(cuda=None)
            backends = S(cudnn=S(version=lambda: None))
            cuda = S(device_count=lambda: 0, get_arch_list=lambda: [])
            import sys
            distributed = S(is_available=lambda: False)
            sys.modules["torch.distributed"] = distributed
        """
        section = look_at(path=fake_torch(tmp_path, code))
        assert findings(section) == ["software.no-distributed"]


class TestNoAnswer:
    def test_no_such_program(self):
        with pytest.raises(InspectionError, match="/nowhere/python"):
            look_at("/nowhere/python")

    @pytest.mark.parametrize("program", ["/bin/true", "/bin/false"])
    def test_no_python(self, program: str):
        with pytest.raises(InspectionError, match="gave no answer"):
            look_at(program)

    def test_blocking_import_times_out(self, tmp_path: Path):
        code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"
        started = time.monotonic()
        with pytest.raises(InspectionError, match=r"importing torch in .* did not answer within"):
            look_at(path=fake_torch(tmp_path, code), limit_s=6)
        assert time.monotonic() - started < 40


class TestJudge:
    def test_fine(self):
        (check,) = judge(FINE, MACHINE)
        assert (check.status, check.finding) == ("ok", "software.torch-fine")
        assert check.title == "torch 2.13.0+cu130, CUDA 13.0, NCCL 2.30.3, cuDNN 9.10.2"

    def test_cpu_build_is_ok_only_without_a_gpu(self):
        cpu = replace(FINE, torch="2.13.0+cpu", cuda="", cudnn="", nccl="", backends=["gloo"], gpu_count_torch=0)
        assert findings(cpu) == ["software.torch-fine"]
        assert findings(cpu, GpuSection(problem="no driver")) == ["software.torch-fine"]
        assert findings(cpu, MACHINE) == ["software.no-nccl", "software.torch-sees-no-gpu"]

    def test_a_cuda_build_without_nccl(self):
        assert findings(replace(FINE, backends=["gloo"]), MACHINE) == ["software.no-nccl"]

    def test_torch_sees_no_gpu(self):
        (check,) = judge(replace(FINE, gpu_count_torch=0), MACHINE)
        assert check.finding == "software.torch-sees-no-gpu"
        assert "CUDA 13.0" in check.detail and "570.124.06" in check.detail

    def test_hidden_gpus_are_not_reported_as_a_torch_problem(self):
        assert findings(replace(FINE, gpu_count_torch=0), replace(MACHINE, visible="")) == ["software.torch-fine"]
