"""The web server of ``ddpwizard serve``: textual-serve on loopback, behind a token.

Each tab of a browser is a process of its own. Everything is below a path with a random token: a cookie of 127.0.0.1
would be sent to servers of other users on other ports too.
"""

import hmac
import secrets
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from textual_serve.server import Server

from ..errors import UserError
from ..options import Options

TEMPLATES = Path(__file__).parents[2] / "assets" / "web"  # the page of textual-serve loads a font from elsewhere
LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "[::1]")
TOKEN_BYTES = 32
MOST_TABS = 8
SHUTDOWN_LIMIT_S = 2.0
PROGRAM = "ddpwizard"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer(Server):
    """The server, bound to a port of 127.0.0.1.

    Raises:
        UserError: The port is not free.
    """

    def __init__(self, options: Options, port: int) -> None:
        try:
            self._socket = socket.create_server((LOOPBACK, port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}", "leave it out, or name another port") from error
        bound: int = self._socket.getsockname()[1]
        line = f"exec {shlex.join(command_line(options))}"  # for a shell, as textual-serve starts it
        super().__init__(line, LOOPBACK, bound, title=PROGRAM, templates_path=TEMPLATES)
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._tabs = 0

    @property
    def url(self) -> str:
        """The address with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self._token}/"

    def run(self, announce: Callable[[], None]) -> None:
        """Serve until an interrupt or SIGTERM, then end the process of each tab; call ``announce`` first."""
        self._announce = announce
        web.run_app(
            self.guarded_app(), sock=self._socket, access_log=None, print=None, shutdown_timeout=SHUTDOWN_LIMIT_S
        )

    async def guarded_app(self) -> web.Application:
        """Return textual-serve's application below the token, with the checks before it."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await handler(request) if is_allowed(request, self._token) else web.Response(status=403)

        app = web.Application(middlewares=[check])
        app.on_response_prepare.append(_add_headers)
        app.add_subapp(f"/{self._token}", await self._make_app())
        return app

    async def handle_index(self, request: web.Request) -> Any:
        """Return the page; its links are to the name and port by which the browser has found it (a tunnel's, say)."""
        self.public_url = f"http://{request.host}"
        return await super().handle_index(request)

    async def handle_websocket(self, request: web.Request) -> Any:
        """Start a process for a tab, which ends with it."""
        if self._tabs >= MOST_TABS:
            raise web.HTTPServiceUnavailable
        self._tabs += 1
        try:
            return await super().handle_websocket(request)
        finally:
            self._tabs -= 1

    async def on_startup(self, app: web.Application) -> None:
        """Announce the address, instead of the banner of textual-serve."""
        self._announce()


def is_allowed(request: web.Request, token: str) -> bool:
    """Return whether a request has the token, names this machine as its host, and is not made by a page elsewhere."""
    given = request.path.split("/")[1]
    has_token = hmac.compare_digest(given.encode(errors="replace"), token.encode())
    origin = request.headers.get("Origin")
    from_here = origin is None or origin == f"http://{request.host}"
    return has_token and from_here and host_name(request.host) in LOOPBACK_NAMES


def host_name(host: str) -> str:
    """Return a ``Host`` header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(
        {
            "Cache-Control": "no-store",
            "Content-Security-Policy": CONTENT_POLICY.format(host=request.host),
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
    )


def command_line(options: Options) -> list[str]:
    """Return the command line of the wizard in a tab, with the options of this one."""
    own = Path(sys.argv[0])
    words = [str(own.absolute())] if own.name == PROGRAM else [sys.executable, "-m", PROGRAM]
    if options.python:
        words += ["--python", options.python]
    for directory in options.knowledge:
        words += ["--knowledge", str(directory)]
    if options.allow:
        words += ["--allow", options.allow]
    return words + ["--ascii"] * options.ascii + ["--no-mouse"] * options.no_mouse
