"""``serve`` over a real loopback socket: who is answered, the wizard in a tab, and the end of its processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import aiohttp
import jsonschema
import psutil
import pytest
from helpers.command import ddpwizard, refused
from helpers.jobs import wait_for
from helpers.web_server import Served, web_server
from public_documents import json_schema

LIMIT_S = 60


@pytest.fixture
def served() -> Iterator[Served]:
    with web_server() as server:
        yield server


def answers(requests: list[tuple[str, Mapping[str, str]]]) -> list[tuple[int, int]]:
    """Return status and length of the answer to each request."""

    async def ask() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        async with aiohttp.ClientSession() as session:
            for url, headers in requests:
                async with session.get(url, headers=headers) as answer:
                    found.append((answer.status, len(await answer.read())))
        return found

    return asyncio.run(ask())


def test_only_requests_with_the_token_and_this_host_are_answered(served: Served):
    script = f"{served.url}static/js/textual.js"
    wrong = served.url[:-2] + ("A" if served.url[-2] != "A" else "B") + "/"
    rejected = [
        (f"http://{served.host}/", {}),
        (f"http://{served.host}/ws", {}),
        (f"http://{served.host}/static/js/textual.js", {}),
        (wrong, {}),
        (f"{wrong}static/js/textual.js", {}),
        (served.url, {"Host": "rebound.example"}),
        (served.url, {"Host": f"rebound.example:{served.host.rpartition(':')[2]}"}),
        (f"{served.url}ws", {"Origin": "http://other.example"}),
        (script, {"Host": "rebound.example"}),
    ]
    assert answers(rejected) == [(403, 0)] * len(rejected)
    allowed = answers([(served.url, {}), (script, {}), (served.url, {"Host": "localhost:9000"})])
    assert [status for status, _ in allowed] == [200] * 3 and all(length > 500 for _, length in allowed)


def test_page_loads_from_this_server_only_and_says_so(served: Served):
    async def page(host: str) -> tuple[str, Mapping[str, str]]:
        async with aiohttp.ClientSession() as session, session.get(served.url, headers={"Host": host}) as answer:
            return await answer.text(), answer.headers

    text, headers = asyncio.run(page("localhost:9000"))
    links = [part.split('"')[0] for part in text.split('"') if "://" in part]
    token = served.url.split("/")[3]
    assert links and all(link.split("://")[1].startswith(f"localhost:9000/{token}/") for link in links)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")


def test_it_listens_on_loopback_only_and_the_token_is_in_no_command_line(served: Served):
    listening = [
        each.laddr.ip for each in psutil.Process(served.process.pid).net_connections() if each.status == "LISTEN"
    ]
    assert listening == ["127.0.0.1"]
    token = served.url.split("/")[3]
    assert len(token) >= 43

    async def while_open() -> list[str]:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{served.url}ws") as tab:
            await tab.receive(timeout=LIMIT_S)
            return [command_line(pid) for pid in (served.process.pid, *served.tabs)]

    lines = asyncio.run(while_open())
    assert len(lines) == 2 and not any(token in line for line in lines)


def command_line(pid: int) -> str:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text()


async def open_tab(session: aiohttp.ClientSession, served: Served) -> aiohttp.ClientWebSocketResponse[bool]:
    """Open a tab and wait for Home."""
    tab = await session.ws_connect(f"{served.url}ws?width=100&height=30")
    await shown(tab, b"My job hangs")
    return tab


async def shown(tab: aiohttp.ClientWebSocketResponse[bool], text: bytes) -> None:
    """Wait until the wizard has written a text."""

    async def read() -> None:
        written = b""
        while text not in written:
            message = await tab.receive()
            assert isinstance(message.data, bytes), (message, written)
            written += message.data

    await asyncio.wait_for(read(), LIMIT_S)


def test_wizard_runs_in_a_tab_and_ends_with_it(served: Served):
    async def use() -> list[int]:
        async with aiohttp.ClientSession() as session:
            tab = await open_tab(session, served)
            pids = served.tabs
            assert "--ascii" in command_line(pids[0])
            await tab.send_json(["stdin", "?"])
            await shown(tab, b"Find any action by its name")
            await tab.close()
            return pids

    (pid,) = asyncio.run(use())
    wait_for(lambda: not psutil.pid_exists(pid), "the end of the tab", LIMIT_S)
    assert answers([(served.url, {})])[0][0] == 200


@pytest.mark.slow
def test_number_of_tabs_is_limited(served: Served):
    async def open_all() -> int:
        async with aiohttp.ClientSession() as session:
            tabs = [await session.ws_connect(f"{served.url}ws") for _ in range(8)]
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await session.ws_connect(f"{served.url}ws")
            for tab in tabs:
                await tab.close()
            return refusal.value.status

    assert asyncio.run(open_all()) == 503
    wait_for(lambda: not served.tabs, "the end of the tabs", LIMIT_S)
    assert answers([(served.url, {})])[0][0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_tabs_end_with_the_server(served: Served, number: signal.Signals):
    async def end() -> int:
        async with aiohttp.ClientSession() as session:
            await open_tab(session, served)
            (pid,) = served.tabs
            os.kill(served.process.pid, number)
            served.process.wait(LIMIT_S)
            return pid

    pid = asyncio.run(end())
    assert served.process.returncode == (-number if number == signal.SIGKILL else 0)
    wait_for(lambda: not psutil.pid_exists(pid), "the end of the tab", LIMIT_S)


def test_a_port_that_is_taken_and_the_document(served: Served):
    port = served.host.rpartition(":")[2]
    assert "Address already in use" in refused(ddpwizard("serve", "--port", port), 2)
    command = [sys.executable, "-m", "ddpwizard", "serve", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        process.send_signal(signal.SIGINT)
    document = json.loads(text)
    jsonschema.validate(document, json_schema("serve", closed=True))
    assert document["url"].startswith("http://127.0.0.1:")
    assert process.returncode == 0


def test_without_the_extra_one_line_names_it():
    code = "import sys; sys.modules['textual_serve'] = None\nfrom ddpwizard.cli import run; sys.exit(run(['serve']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and 'pip install "ddpwizard[serve]"' in done.stderr and not done.stdout
