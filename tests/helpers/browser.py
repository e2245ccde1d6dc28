"""A headless Chromium that chromedriver drives (W3C WebDriver), and the terminal that it shows of ``serve``."""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyte

from .pseudo_terminal import UNKNOWN_TO_PYTE

LIMIT_S = 60
PAUSE_S = 0.1
HAS_BROWSER = bool(shutil.which("chromedriver")) and any(map(shutil.which, ("chromium", "google-chrome", "chrome")))
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Control": "\ue009"}
OPTIONS = {
    "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,800"]
}
SHOWN_MESSAGE = """
  const messages = [...document.querySelectorAll(".message")];
  return messages.filter(each => each.checkVisibility()).map(each => each.innerText).join("");
"""
COUNT_BRIGHT = """
  const canvas = document.querySelector("canvas.xterm-text-layer");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) count += data[at] + data[at + 1] + data[at + 2] > 400;
  return count;
"""


class Browser:
    """One window. ``requested`` are the addresses it loads, ``screen`` shows the bytes that its terminal received."""

    def __init__(self, driver_url: str) -> None:
        self._driver_url = driver_url
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": OPTIONS,
            "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"},
        }
        created = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{created['sessionId']}"
        self.requested: list[str] = []
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)

    def open(self, url: str) -> None:
        """Open an address and wait until its page is loaded."""
        self._call("POST", f"{self._session}/url", {"url": url})

    def press(self, *keys: str) -> None:
        """Press and release each key, wherever the focus is."""
        values = [KEYS.get(key, key) for key in keys]
        actions = [{"type": step, "value": value} for value in values for step in ("keyDown", "keyUp")]
        self._act([{"type": "key", "id": "keyboard", "actions": actions}])

    def click(self, x: int, y: int) -> None:
        """Click at a point of the page."""
        steps: list[dict[str, Any]] = [{"type": "pointerMove", "x": x, "y": y}]
        steps += [{"type": step, "button": 0} for step in ("pointerDown", "pointerUp")]
        self._act([{"type": "pointer", "id": "mouse", "actions": steps}])

    def resize(self, width: int, height: int) -> None:
        """Resize the window."""
        self._call("POST", f"{self._session}/window/rect", {"width": width, "height": height})

    def run(self, script: str) -> Any:
        """Return what a script of the page returns."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def bright_pixels(self) -> int:
        """Return how many pixels of the terminal's text are bright."""
        return self.run(COUNT_BRIGHT)

    def message(self) -> str:
        """Return the message that covers the terminal, or an empty text."""
        return self.run(SHOWN_MESSAGE)

    def errors(self) -> list[str]:
        """Return the errors of the page, refusals by its content policy among them, since the last call."""
        entries = self._call("POST", f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def text(self) -> str:
        """Return the text of the terminal."""
        self._read_log()
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, text: str) -> None:
        """Wait until the terminal shows a text."""
        until = time.monotonic() + LIMIT_S
        while text not in self.text():
            assert time.monotonic() < until, f"no {text!r} within {LIMIT_S} s; terminal:\n{self.text()}"
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Close the window and end the browser."""
        self._call("DELETE", self._session)

    def _act(self, actions: list[dict[str, Any]]) -> None:
        self._call("POST", f"{self._session}/actions", {"actions": actions})

    def _read_log(self) -> None:
        for entry in self._call("POST", f"{self._session}/se/log", {"type": "performance"}):
            event = json.loads(entry["message"])["message"]
            values = event["params"]
            match event["method"]:
                case "Network.requestWillBeSent":
                    self.requested.append(values["request"]["url"])
                case "Network.webSocketCreated":
                    self.requested.append(values["url"])
                    size = parse_qs(urlsplit(values["url"]).query)
                    self.screen.reset()
                    self.screen.resize(int(size["height"][0]), int(size["width"][0]))
                case "Network.webSocketFrameSent":
                    self._note_size(json.loads(values["response"]["payloadData"]))
                case "Network.webSocketFrameReceived" if values["response"]["opcode"] == 2:
                    self._stream.feed(UNKNOWN_TO_PYTE.sub(b"", base64.b64decode(values["response"]["payloadData"])))
                case _:
                    pass

    def _note_size(self, message: list[Any]) -> None:
        if message[0] == "resize":
            self.screen.resize(message[1]["height"], message[1]["width"])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._driver_url}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)["value"]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser, which has ended when this is left, with all its processes."""
    with subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout
        try:
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            browser = Browser(f"http://127.0.0.1:{port}")
            yield browser
            browser.close()
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
