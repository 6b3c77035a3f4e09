"""An HTTP server for files, with the faults that real ones have."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 1024 * 1024


@dataclass
class Request:
    """A request as it was answered."""

    method: str
    range: str | None
    sent: int = 0
    """Bytes of the file that were sent."""


@dataclass
class FileServer:
    """What it serves, how, and what it was asked.

    :param files: path → content
    :param breaks: one entry per GET: the connection is broken after so many bytes; an empty list breaks nothing
    :param ranges: it can send the rest of a file
    :param delay: seconds that each MiB takes
    :param lengths: it says how long a file is
    :param redirects: path → path
    :param head_status: how it answers HEAD where that is not as it answers GET
    :param statuses: path → status in place of the file
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    ranges: bool = True
    delay: float = 0
    lengths: bool = True
    redirects: dict[str, str] = field(default_factory=dict)
    head_status: int | None = None
    statuses: dict[str, int] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    @property
    def gets(self) -> list[Request]:
        return [request for request in self.requests if request.method == "GET"]


@contextmanager
def serve(address: str = "127.0.0.1") -> Iterator[FileServer]:
    """Serve on a free port of that address."""
    found = FileServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            found.requests.append(Request("HEAD", self.headers["Range"]))
            if found.head_status is None:
                self._begin()
            else:
                self._refuse(found.head_status)

        def do_GET(self) -> None:
            request = Request("GET", self.headers["Range"])
            found.requests.append(request)
            rest = self._begin()
            end = found.breaks.pop(0) if found.breaks else len(rest)
            for start in range(0, min(end, len(rest)), CHUNK):
                time.sleep(found.delay)
                self.wfile.write(rest[start : min(start + CHUNK, end)])
            request.sent = min(end, len(rest))
            self.close_connection = self.close_connection or end < len(rest)

        def _begin(self) -> bytes:
            """Send the head of the answer; what is left to be sent of the file."""
            if self.path in found.redirects:
                self._refuse(302, Location=found.redirects[self.path])
                return b""
            status = found.statuses.get(self.path, 200 if self.path in found.files else 404)
            if status != 200:
                self._refuse(status)
                return b""
            content = found.files[self.path]
            start = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "") if found.ranges else None
            if start is None:
                self.send_response(200)
                rest = content
            elif int(start[1]) >= len(content):
                self._refuse(416)
                return b""
            else:
                rest = content[int(start[1]) :]
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start[1]}-{len(content) - 1}/{len(content)}")
            if found.lengths:
                self.send_header("Content-Length", str(len(rest)))
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            return rest

        def _refuse(self, status: int, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """The tests read `requests`."""

    server = ThreadingHTTPServer((address, 0), Handler)
    found.url = f"http://{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
