"""Recipes on the forms in which their mistake is written, and on look-alikes that they leave as they are."""

import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.evidence import Evidence
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from ddpwizard.app.fixes.recipes.limited_request import limited_request
from ddpwizard.app.fixes.user_code import UserFile
from ddpwizard.app.jobs.types import Job
from ddpwizard.app.snapshot import Snapshot
from ddpwizard.app.triage.types import JobReport, Observation, Verdict
from helpers.built_in_knowledge import built_in_knowledge
from helpers.machines import interface, snapshot

KNOWLEDGE = built_in_knowledge()
IMPORTS = "import os\nimport threading\n\nimport torch\nimport torch.distributed as dist\n"
LEAVING = Evidence(id="job.rank-leaving", source="job", what="rank 0 does not exit")


def patched(
    tmp_path: Path,
    cause: str,
    fix: str,
    code: str,
    *,
    evidence: tuple[Evidence, ...] = (),
    machine: Snapshot | None = None,
    report: JobReport | None = None,
) -> str | None:
    """Return the script, without its imports, with the patch of a fix; None if there is none."""
    script = tmp_path / "train.py"
    script.write_text(IMPORTS + textwrap.dedent(code))
    context = FixContext(script=str(script), evidence=list(evidence), snapshot=machine, report=report)
    found = next(each for each in build_fixes(KNOWLEDGE.causes[cause], context, KNOWLEDGE) if each.id == fix)
    return found.patches[0].after.removeprefix(IMPORTS) if found.patches else None


def report_of(cause: str, where: str | None = None) -> JobReport:
    """Return the report of a job that hangs for a cause."""
    verdict = Verdict(
        state="hung", cause=cause, culprits=[0], collective=None, where=where, branch=None, why="", confidence=0.9
    )
    job = Job(launcher="torchrun", launcher_pid=40, launcher_command=[], world_size=2, master="", host="", processes=[])
    observed = Observation(job=job, seen=[])
    return JobReport(launcher="torchrun", world_size=2, nodes=["here"], ranks=[], verdict=verdict, observed=observed)


class TestSavedKeys:
    fix = ("incomplete-resume", "save-what-is-loaded")
    code = """
def train(path):
    net, optimizer, scheduler = make()
    {start}print(path)
    if os.path.exists(path):
        state = torch.load(path, map_location="cpu")
        net.load_state_dict(state["model"])
        {load}
    for epoch in range(9):
        step(net, optimizer)
    {save}
"""

    def test_missing_states_are_saved(self, tmp_path: Path) -> None:
        load = 'optimizer.load_state_dict(state["optimizer"]); scheduler.load_state_dict(state["sched"])'
        save = 'torch.save({{"model": net.state_dict(), {}"epoch": epoch}}, path)'
        before = self.code.format(start="", load=load, save=save.format(""))
        missing = '"optimizer": optimizer.state_dict(), "sched": scheduler.state_dict(), '
        assert patched(tmp_path, *self.fix, before) == self.code.format(start="", load=load, save=save.format(missing))

    def test_dictionary_with_a_name(self, tmp_path: Path) -> None:
        load = 'optimizer.load_state_dict(state["optimizer"])'
        save = 'held = {{\n        {}"model": net.state_dict(),\n    }}\n    torch.save(held, path)'
        before = self.code.format(start="", load=load, save=save.format(""))
        after = self.code.format(start="", load=load, save=save.format('"optimizer": optimizer.state_dict(), '))
        assert patched(tmp_path, *self.fix, before) == after

    @pytest.mark.parametrize(
        ("start", "load", "save"),
        [
            ("", 'optimizer.load_state_dict(state["a"])', 'torch.save({"model": 1, "a": 2}, path)'),
            ("", 'optimizer.load_state_dict(state["a"])', 'torch.save({"model": 1}, path + ".best")'),
            ("", 'optimizer.load_state_dict(state["a"])', 'torch.save({"model": 1, **more}, path)'),
            ("", 'other.load_state_dict(state["a"])', 'torch.save({"model": 1}, path)'),
            ("if net: ema = 1\n    ", 'ema.load_state_dict(state["a"])', 'torch.save({"model": 1}, path)'),
            ("", 'start = state["epoch"]', 'torch.save({"model": 1}, path)'),
            ("import torch.distributed.optim as o; o.ZeroRedundancyOptimizer(net); ",
             'optimizer.load_state_dict(state["a"])', 'torch.save({"model": 1}, path)'),
        ],
        ids=["complete", "another file", "more keys", "elsewhere", "may be unbound", "a number", "sharded"],
    )  # fmt: skip
    def test_what_is_not_sure_stays(self, tmp_path: Path, start: str, load: str, save: str) -> None:
        assert patched(tmp_path, *self.fix, self.code.format(start=start, load=load, save=save)) is None


class TestShareByTurns:
    fix = ("straggler-rank", "share-in-turns")
    start = "dist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\n"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (
                "each = len(texts) // world\nown = texts[rank * each : (rank + 1) * each]\n",
                "each = len(texts) // world\nown = texts[rank : each * world : world]\n",
            ),
            (
                "texts = read()\ntexts.sort(key=len)\n"
                "n = len(texts) // dist.get_world_size()\nown = texts[n * rank : n * (rank + 1)]\n",
                "texts = read()\ntexts.sort(key=len)\n"
                "n = len(texts) // dist.get_world_size()\n"
                "own = texts[rank : n * dist.get_world_size() : dist.get_world_size()]\n",
            ),
            (
                "n = len(texts) // world\nown = Subset(texts, range(rank * n, (rank + 1) * n))\n",
                "n = len(texts) // world\nown = Subset(texts, range(rank, n * world, world))\n",
            ),
        ],
    )
    def test_as_many_elements_in_turns(self, tmp_path: Path, before: str, after: str) -> None:
        texts = "" if "sort" in before else "texts = sorted(read(), key=len)\n"
        assert patched(tmp_path, *self.fix, self.start + texts + before) == self.start + texts + after

    def test_turns_give_each_rank_as_many_elements_and_all_together_the_same(self) -> None:
        for length in range(12):
            for world in range(1, 5):
                each, texts = length // world, list(range(length))
                parts = [texts[rank : each * world : world] for rank in range(world)]
                assert [len(part) for part in parts] == [each] * world
                assert sorted(text for part in parts for text in part) == texts[: each * world]

    @pytest.mark.parametrize(
        "code",
        [
            "n = layer.size // world\nown = weight[rank * n : (rank + 1) * n]\n",
            "n = len(texts) // world\nown = texts[chunk * n : (chunk + 1) * n]\n",
            "n = len(others) // world\nown = texts[rank * n : (rank + 1) * n]\n",
            "n = len(texts) // 4\nown = texts[rank * n : (rank + 1) * n]\n",
            "n = len(texts) // world\nown = texts[rank * n : (rank + 2) * n]\n",
            "n = len(others) // world\nown = others[rank * n : (rank + 1) * n]\n",
            "n = len(texts) // world\ntexts = texts[1:]\nown = texts[rank * n : (rank + 1) * n]\n",
        ],
        ids=["a weight", "no rank", "another length", "no world size", "overlap", "not sorted", "changed since"],
    )
    def test_other_parts_stay(self, tmp_path: Path, code: str) -> None:
        texts = "texts, others, chunk = sorted(read(), key=len), read(), int(input())\n"
        assert patched(tmp_path, *self.fix, self.start + texts + code) is None


class TestThreadEnd:
    fix = ("exit-hang", "end-the-thread")
    code = """
class Writer:
    def __init__(self):
        self.worker = threading.Thread(target=self._run{daemon})
        self.worker.start()
{register}
    def _run(self):
        while self.lines.get() is not None:
            pass

    def {end}(self{argument}):
        self.lines.put(None)
        self.worker.join()

writer = Writer()
"""

    def filled(self, **parts: str) -> str:
        return self.code.format_map({"daemon": "", "register": "", "end": "close", "argument": ""} | parts)

    def test_thread_ends_with_the_script(self, tmp_path: Path) -> None:
        after = self.filled(daemon=", daemon=True", register="        atexit.register(self.close)\n")
        found = patched(tmp_path, *self.fix, self.filled(), evidence=(LEAVING,))
        assert found == "import atexit\n" + IMPORTS + after

    @pytest.mark.parametrize(
        "code",
        [
            {"daemon": ", daemon=True"},
            {"daemon": ", **options"},
            {"argument": ", timeout"},
            {"end": "__exit__"},
            {"register": "    def run(self):\n        self.close()\n"},
            {"register": "        self.worker.start()\n"},
        ],
    )
    def test_threads_that_are_joined_or_not_known_stay(self, tmp_path: Path, code: dict[str, str]) -> None:
        assert patched(tmp_path, *self.fix, self.filled(**code), evidence=(LEAVING,)) is None

    def test_file_without_an_import_at_its_top_stays(self, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text("try:\n    import threading\nexcept ImportError:\n    pass\n" + self.filled())
        context = FixContext(script=str(script), evidence=[LEAVING])
        built = build_fixes(KNOWLEDGE.causes["exit-hang"], context, KNOWLEDGE)
        assert not next(each for each in built if each.id == "end-the-thread").patches

    def test_threads_of_a_job_that_hangs_elsewhere_stay(self, tmp_path: Path) -> None:
        assert patched(tmp_path, *self.fix, self.filled()) is None


class TestRunAlways:
    fix = ("data-dependent-forward", "call-without-samples")
    code = """
class Mixture(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mine = (self.chosen(x) == number).nonzero().flatten()
{body}
        return out
"""

    def patched(self, tmp_path: Path, body: str, cause: str = "data-dependent-forward") -> str | None:
        report = report_of(cause)
        return patched(tmp_path, *self.fix, self.filled(body), report=report)

    def filled(self, body: str) -> str:
        return self.code.format(body=textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 12))

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("if len(mine):\n    out[mine] = expert(x[mine])", "out[mine] = expert(x[mine])"),
            (
                "if mine.numel() > 0:\n    y = expert(x[mine])\n\n    out.index_add_(0, mine, y)  # weighted",
                "y = expert(x[mine])\n\nout.index_add_(0, mine, y)  # weighted",
            ),
            (
                "if mine.shape[0] == 0:\n    continue\nout = out.index_add(\n    0, mine, expert(x[mine])\n)",
                "out = out.index_add(\n    0, mine, expert(x[mine])\n)",
            ),
            ("if mine.any().item():\n    out[mine] += expert(x[mine])", "out[mine] += expert(x[mine])"),
        ],
    )
    def test_layer_is_called_without_samples(self, tmp_path: Path, before: str, after: str) -> None:
        assert self.patched(tmp_path, before) == self.filled(after)

    @pytest.mark.parametrize(
        "body",
        [
            "if len(mine):\n    out[mine] = expert(x[mine])\n    used += 1",
            "if len(mine):\n    out = expert(x[mine])",
            "if len(mine) > 1:\n    out[mine] = expert(x[mine])",
            "if len(mine):\n    out[mine] = expert(x[mine])\nelse:\n    print(number)",
            "if len(mine):\n    scale = x[mine].max()\n    out[mine] = scale",
            "if len(mine):\n    seen = expert(x[mine])\n    out[mine] = seen\nprint(seen)",
            "if self.training:\n    out[mine] = expert(x[mine])",
            "if len(mine) == 0:\n    continue\ncount += 1\nout[mine] = expert(x[mine])",
        ],
    )
    def test_conditions_that_decide_more_stay(self, tmp_path: Path, body: str) -> None:
        assert self.patched(tmp_path, body) is None

    def test_conditions_of_another_hang_stay(self, tmp_path: Path) -> None:
        assert self.patched(tmp_path, "if len(mine):\n    out[mine] = expert(x[mine])", "straggler-rank") is None


class TestWithoutPause:
    fix = ("rank-paused", "take-it-out")
    imports = "import pdb\nimport signal\nfrom ipdb import set_trace\n"

    def patched(self, tmp_path: Path, code: str) -> str | None:
        text = self.imports + "def step(rank):\n" + textwrap.indent(code, "    ")
        lines = (IMPORTS + text).splitlines()
        line = next(number for number, each in enumerate(lines, 1) if "# here" in each)
        where = f"{tmp_path / 'train.py'}:{line}"
        found = patched(tmp_path, *self.fix, text, report=report_of("rank-paused", where))
        return found and textwrap.dedent(found.removeprefix(self.imports + "def step(rank):\n"))

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("if rank == 0:\n    breakpoint()  # here\nrun()\n", "if rank == 0:\n    pass  # here\nrun()\n"),
            ("run()\npdb.set_trace()  # here\nrun()\n", "run()\nrun()\n"),
            ("run()\nset_trace()  # here\n", "run()\n"),
            ('run()\ninput("go on?")  # here\n', "run()\n"),
            ("run()\nos.kill(\n    os.getpid(), signal.SIGSTOP\n)  # here\n", "run()\n"),
            ("run()\nsignal.raise_signal(signal.SIGTSTP)  # here\n", "run()\n"),
        ],
    )
    def test_statement_that_only_stops_is_taken_out(self, tmp_path: Path, before: str, after: str) -> None:
        assert self.patched(tmp_path, before) == after

    @pytest.mark.parametrize(
        "code",
        [
            'answer = input("name?")  # here\n',
            "os.kill(other, signal.SIGSTOP)  # here\n",
            "os.kill(os.getpid(), signal.SIGTERM)  # here\n",
            "dist.barrier()  # here\n",
            "run(); breakpoint()  # here\n",
            "debugger.set_trace()  # here\n",
        ],
    )
    def test_statements_that_do_more_stay(self, tmp_path: Path, code: str) -> None:
        assert self.patched(tmp_path, code) is None


class TestInterfaceInScript:
    fix = ("wrong-nic", "interface-of-this-machine")
    machine = snapshot(interfaces=[interface("bond0", default=True)])

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('os.environ["GLOO_SOCKET_IFNAME"] = "enp65s0f0"\n', 'os.environ["GLOO_SOCKET_IFNAME"] = "bond0"\n'),
            (
                'os.environ.setdefault("NCCL_SOCKET_IFNAME", "=ib9")\n',
                'os.environ.setdefault("NCCL_SOCKET_IFNAME", "bond0")\n',
            ),
        ],
    )  # fmt: skip
    def test_name_of_this_machine(self, tmp_path: Path, before: str, after: str) -> None:
        assert patched(tmp_path, *self.fix, before, machine=self.machine) == after

    @pytest.mark.parametrize(
        "code",
        [
            'os.environ["GLOO_SOCKET_IFNAME"] = "bond0"\n',
            'os.environ["NCCL_SOCKET_IFNAME"] = "bond"\n',
            'os.environ["NCCL_SOCKET_IFNAME"] = "^docker,lo"\n',
            'os.environ["GLOO_SOCKET_IFNAME"] = options.interface\n',
            'os.environ["MY_INTERFACE"] = "enp65s0f0"\n',
            'settings["GLOO_SOCKET_IFNAME"] = "enp65s0f0"\n',
        ],
    )
    def test_names_that_fit_and_other_variables_stay(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, code, machine=self.machine) is None

    def test_without_the_machine_nothing_changes(self, tmp_path: Path) -> None:
        assert patched(tmp_path, *self.fix, 'os.environ["GLOO_SOCKET_IFNAME"] = "enp65s0f0"\n') is None


class TestLimitedRequest:
    imports = "import urllib.request\nimport requests\nfrom urllib.request import urlopen\n"

    def limited(self, code: str, at: str) -> str | None:
        text = self.imports + code
        first = len(self.imports.splitlines()) + 1
        line = next(number for number, each in enumerate(code.splitlines(), first) if at in each)
        patch = limited_request(UserFile("train.py", text), line)
        return patch.after.removeprefix(self.imports) if patch else None

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (
                "def f():\n    requests.post(url, json=x)\n",
                "def f():\n    try:\n        requests.post(url, json=x, timeout=10)\n"
                '    except OSError as error:\n        print("went on without it:", error)\n',
            ),
            (
                "with urlopen(url) as reply:\n    reply.read()\nx = 1\n",
                "try:\n    with urlopen(url, timeout=10) as reply:\n        reply.read()\n"
                'except OSError as error:\n    print("went on without it:", error)\nx = 1\n',
            ),
            (
                "def f():\n    with urlopen(url) as reply:\n        return reply.read()\n",
                "def f():\n    for attempt in range(3):\n        try:\n"
                "            with urlopen(url, timeout=10) as reply:\n                return reply.read()\n"
                "        except OSError:\n            if attempt == 2:\n"
                "                raise\n",
            ),
            (
                "answer = requests.get(\n    url,\n).json()\n",
                "for attempt in range(3):\n    try:\n        answer = requests.get(\n            url, timeout=10,\n"
                "        ).json()\n        break\n    except OSError:\n        if attempt == 2:\n            raise\n",
            ),
        ],
    )  # fmt: skip
    def test_limit_and_what_comes_after_it(self, before: str, after: str) -> None:
        at = "post" if "post" in before else "urlopen" if "urlopen" in before else "requests.get"
        assert self.limited(before, at) == after

    @pytest.mark.parametrize(
        ("others", "limit"),
        [
            ("requests.get(url, timeout=2.5)\nurlopen(url, timeout=2.5)\n", "2.5"),
            ("requests.get(url, timeout=2)\nurlopen(url, timeout=4)\n", "10"),
            ("requests.get(url, timeout=LIMIT_S)\nurlopen(url, timeout=None)\n", "10"),
            ("queue.get(timeout=3)\n", "10"),
        ],
    )
    def test_limit_is_that_of_the_other_requests_of_the_file(self, others: str, limit: str) -> None:
        after = self.limited(f"{others}requests.post(url, json=x)\ny = 1\n", "post")
        assert after and f"    requests.post(url, json=x, timeout={limit})\n" in after

    @pytest.mark.parametrize(
        "code",
        [
            "requests.post(url, timeout=3)\n",
            "requests.post(url, **options)\n",
            "queue.get()  # requests\n",
            "httpx.get(url)  # requests\n",
            "def f(requests_):\n    requests_.get(url)\n",
            "session.post(url)  # requests\n",
            "if requests.get(url).ok:\n    pass\n",
            "for x in y:\n    with urlopen(url) as requests_:\n        break\n",
            "x = 1; requests.post(url)\n",
        ],
    )
    def test_calls_with_a_limit_and_calls_that_are_not_known_stay(self, code: str) -> None:
        assert self.limited(code, "requests") is None
