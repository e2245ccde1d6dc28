"""``serve`` in a real headless Chromium: what its page paints, sends and loads."""

import psutil
import pytest
from helpers.browser import HAS_BROWSER, LIMIT_S, Browser, chromium
from helpers.jobs import wait_for
from helpers.web_server import web_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_BROWSER, reason="no chromium with chromedriver (Debian: chromium, chromium-driver)"),
]
ROW = "Check this machine"


def footer_fits(browser: Browser) -> bool:
    """Return whether the last row of the terminal ends with the last key of the footer."""
    return browser.text().splitlines()[-1].endswith("quit")


def test_page_shows_home_and_gets_keys_clicks_and_sizes() -> None:
    with web_server() as served, chromium() as browser:
        browser.open(served.url)
        browser.wait_for("My job hangs")
        wait_for(lambda: browser.bright_pixels() > 2000, "painted text", LIMIT_S)
        assert browser.message() == ""

        browser.press("?")  # without a click before it
        browser.wait_for("Quit at once")
        browser.press("Escape")
        browser.wait_for(ROW)

        rows = browser.text().splitlines()
        row = next(number for number, line in enumerate(rows) if ROW in line)
        height = browser.run("return document.querySelector('.xterm-screen').clientHeight") / len(rows)
        browser.click(100, int((row + 0.5) * height))
        browser.wait_for("show passed")

        columns = browser.screen.columns
        browser.resize(800, 600)
        wait_for(lambda: footer_fits(browser) and browser.screen.columns < columns, "the new size", LIMIT_S)

        base = served.url.removeprefix("http://")
        assert all(url.partition("://")[2].startswith(base) for url in browser.requested if not url.startswith("data:"))
        assert browser.errors() == []


def test_page_says_that_the_wizard_has_ended_and_starts_it_again() -> None:
    with web_server() as served, chromium() as browser:
        browser.open(served.url)
        browser.wait_for("What is wrong?")
        (first,) = served.tabs
        browser.press("q")
        wait_for(lambda: "has ended" in browser.message(), "the message", LIMIT_S)
        wait_for(lambda: not psutil.pid_exists(first), "the end of the tab's process", LIMIT_S)

        browser.open(served.url)
        browser.wait_for("What is wrong?")
        assert browser.message() == "" and served.tabs != [first]
        browser.open("about:blank")
        wait_for(lambda: not served.tabs, "the end of the second process", LIMIT_S)
