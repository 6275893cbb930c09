"""A real Chromium without a window, driven over its debugging pipe: one JSON message after another, ended by NUL.

The protocol: https://chromedevtools.github.io/devtools-protocol/. No port is opened and nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.lab.kit.cgroups import NotOfferedError
from tests.lab.kit.wait import TooLateError

_PATIENCE_SECONDS: Final = 40.0
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class Browser:
    """One tab. `events` are the messages that came by themselves, oldest first."""

    def __init__(self, orders: int, answers: int) -> None:
        self.events: list[Mapping[str, Any]] = []
        self._orders = orders
        self._answers = answers
        self._unread = b""
        self._last = 0
        self._session: str | None = None
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._send(f"{domain}.enable")

    def look(self, *, width: int, height: int = 900, dark: bool = False, printed: bool = False) -> None:
        """Take the size of a screen in CSS pixels, light or dark, or paper."""
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", media="print" if printed else "screen", features=[scheme])

    def open(self, page: Path) -> None:
        """Load a file and wait until all of it is there."""
        self.events.clear()
        self._send("Page.navigate", url=page.absolute().as_uri())
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive(deadline)

    def run(self, script: str) -> Any:  # noqa: ANN401 - JSON
        """Give the value of a JavaScript expression, as JSON."""
        answer = self._send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Give the addresses that were asked for since the page was opened."""
        return [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[Mapping[str, Any]]:
        """Give what the console would show since the page was opened."""
        loud = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [one for one in self.events if one["method"] in loud]

    def _send(self, method: str, **parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        self._last += 1
        order: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            message = self._receive(deadline)
            if message.get("id") == self._last:
                assert "error" not in message, message
                result: Mapping[str, Any] = message["result"]
                return result

    def _receive(self, deadline: float) -> Mapping[str, Any]:
        """Read one message; keep it where it came by itself."""
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TooLateError("the browser to answer")
            chunk = os.read(self._answers, 1 << 20)
            if not chunk:
                raise TooLateError("the browser to answer; it is gone")
            self._unread += chunk
        text, _, self._unread = self._unread.partition(b"\0")
        message: Mapping[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium with a profile of its own, and end and remove both. Raises NotOfferedError where there is none."""
    program = shutil.which("chromium")
    if program is None:
        raise NotOfferedError("chromium is not installed: apt-get install chromium")
    orders_theirs, orders = os.pipe()
    answers, answers_theirs = os.pipe()
    # The browser wants its ends as descriptors 3 and 4. The shell puts them there, from above: none is overwritten.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (orders_theirs, answers_theirs)]
    script = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
    with tempfile.TemporaryDirectory(prefix="oomguard-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
            start_new_session=True,
        )
        for end in (*ends, orders_theirs, answers_theirs):
            os.close(end)
        try:
            yield Browser(orders, answers)
        finally:
            os.close(orders)
            os.close(answers)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
