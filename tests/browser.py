"""A headless Chromium, controlled through pipes with its DevTools protocol; nothing else needs to be installed."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import pytest

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
_PATIENCE = 600.0  # seconds, for a busy machine


def find_chromium() -> str:
    """$CHROMIUM or a browser on the path; skips the test if there is none."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and (path := shutil.which(name)):
            return path
    pytest.skip("no Chromium: install it (Debian: apt-get install chromium) or set CHROMIUM to its path")


class Browser:
    """A browser with one open page. `events` contains its reports, such as requests and console output."""

    def __init__(self, profile: Path) -> None:
        # Chromium reads commands from descriptor 3 and writes to 4; each message ends with a zero byte.
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        pair = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        for end in (theirs_in, theirs_out):
            os.close(end)
        script = f'exec "$0" "$@" 3<&{pair[0]} 4>&{pair[1]}'
        command = ["/bin/bash", "-c", script, find_chromium(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(  # noqa: S603 - the browser, with our own arguments
            command, pass_fds=pair, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in pair:
            os.close(end)
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        found = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(_PATIENCE)
        finally:
            self._process.kill()  # in case it did not exit by itself
            os.close(self._out)
            os.close(self._in)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._in, 2**16) if ready else b""
            if not more:
                raise TimeoutError("Chromium does not answer")
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a protocol command and return its result. Events that arrive first are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _PATIENCE
        while (answer := self._receive(end)).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return dict(answer["result"])

    def open(self, path: Path) -> None:
        """Load a file and wait until its scripts have run."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + _PATIENCE
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(end))

    def run(self, expression: str) -> Any:
        """Evaluate a JavaScript expression, await it if it is a promise, and wait for the next frame."""
        code = f"new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done({expression}))))"
        found = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def resize(self, width: int, height: int = 900, *, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def media(self, *, scheme: str = "light", medium: str = "") -> None:
        """Set the preferred colour scheme, and the medium: `print` for paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def move_to(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
