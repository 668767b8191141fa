"""The server of the page: local, at an address with a secret token, until it is ended in its terminal.

Every path begins with the token, so requests without it get no answer. Requests for another host, which a page
elsewhere could make a browser send, are refused before they are read, and so are web sockets from other pages.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.resources import Resources
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.util.token import get_session_id, get_token_payload
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.routing import HostMatches, Rule, RuleRouter

from reference_attention.errors import InvalidInput
from theorems.explore.event_handlers import connect
from theorems.explore.link import NAME, unpack_link
from theorems.explore.page import Page
from theorems.explore.page_style import TEMPLATE
from theorems.explore.state import State

HOST = "127.0.0.1"
TOKEN_BYTES = 16
COMPONENTS = ("bokeh", "bokeh-widgets", "bokeh-tables")


class _Server(BokehTornado):  # type: ignore[misc]  # bokeh has no types
    """Bokeh's server without the scripts for formulas and WebGL, which are larger than all others together."""

    def resources(self, absolute_url: Any = None) -> Resources:
        """Return the scripts that a page loads."""
        resources: Resources = super().resources(absolute_url)
        resources.components = list(COMPONENTS)
        return resources


class _Ours(HostMatches):
    """A matcher of requests for this host; a web socket must present a session token."""

    def __init__(self) -> None:
        super().__init__(f"^({'|'.join(map(re.escape, (HOST, 'localhost')))})$")

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Return the match of the request for the router; None for a request that is not answered."""
        for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(",")[1:]:
            try:
                get_session_id(protocol.strip())
                get_token_payload(protocol.strip())
            except Exception:  # bokeh raises exceptions of any type
                return None
        arguments: dict[str, Any] | None = super().match(request)
        return arguments


class ExploreServer:
    """A server of pages that begin with a state, one page per tab.

    Attributes:
        address: the address that the browser opens.

    Raises:
        InvalidInput: the port is taken.
    """

    def __init__(self, state: State, port: int = 0, token: str = "") -> None:
        """Bind the port, or any free one if it is 0, and serve the pages below a secret token."""
        token = token or secrets.token_urlsafe(TOKEN_BYTES)
        try:
            sockets = bind_sockets(port, HOST)
        except OSError as error:
            raise InvalidInput(f"--port: {port} cannot be used ({error.strerror or error}); give another.") from None
        port = sockets[0].getsockname()[1]
        origins = [f"{HOST}:{port}", f"localhost:{port}"]
        application = Application(FunctionHandler(_page_maker(state)))
        inner = _Server({"/": application}, prefix=token, extra_websocket_origins=origins, use_index=False)
        hosts = RuleRouter([Rule(_Ours(), inner)])
        http = HTTPServer(hosts)
        http.add_sockets(sockets)
        self.loop = IOLoop.current()
        self._server = BaseServer(self.loop, inner, http)
        self.address = f"http://{HOST}:{port}/{token}/"

    def start(self) -> None:
        """Begin to answer requests."""
        self._server.start()

    def run(self) -> None:
        """Answer requests until the process is ended."""
        self.loop.start()

    def stop(self) -> None:
        """End the server and the work of its pages."""
        self._server.stop()
        self.loop.stop()


def _page_maker(state: State) -> Callable[[Document], None]:
    def make(document: Document) -> None:
        document.title, document.template = f"{state.case.name}, explored", TEMPLATE
        first_state, error = _requested_state(document, state)
        page = Page(document, first_state)
        connect(page)
        page.begin(error)
        document.on_session_destroyed(lambda _: page.close())

    return make


def _requested_state(document: Document, state: State) -> tuple[State, str]:
    """Return the state in the address of a document, and an error message, which is "" if there is no error.

    If the address has no state, or one that cannot be read, return the command's state.
    """
    context = document.session_context
    arguments = context.request.arguments if context is not None and context.request is not None else {}
    packed = arguments.get(NAME, [b""])[0].decode("ascii", "replace")
    if not packed:
        return state, ""
    try:
        return unpack_link(packed), ""
    except InvalidInput as error:
        return state, str(error)
