"""A headless Chromium, driven over its DevTools protocol with the `websockets` package, which verl needs anyway."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_S = 60.0

KEYS = {"Enter": 13, "Escape": 27, "Tab": 9}


def find_chromium() -> str | None:
    """The program of SEAL_TEST_CHROMIUM, or the first Chromium of the path; None without one."""
    return os.environ.get("SEAL_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. `problems` keeps what it logs as an error or refuses to load, `requests` what it asks for."""

    def __init__(self, connection: ClientConnection):
        self._connection = connection
        self._last = 0
        self.problems: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; RuntimeError if the browser refuses it."""
        self._last += 1
        self._connection.send(json.dumps({"id": self._last, "method": method, "params": params}))
        deadline = time.monotonic() + WAIT_S
        while True:
            message = json.loads(self._connection.recv(timeout=max(0.1, deadline - time.monotonic())))
            self._note(message)
            if message.get("id") == self._last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(str(details.get("exception", {}).get("description") or details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(
                    " ".join(str(each.get("value", each.get("description"))) for each in params["args"])
                )
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.problems.append(f"a dialog opened: {params['message']}")

    def run(self, expression: str) -> Any:
        """The JSON value of an expression, awaited; RuntimeError if it throws."""
        result = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(str(details.get("exception", {}).get("description") or details["text"]))
        return result["result"].get("value")

    def open(self, address: str) -> None:
        """Load an address, also when only its fragment differs from the present one."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)

    def wait(self, expression: str, what: str = "") -> None:
        """Wait until an expression is true; AssertionError with the page's text after WAIT_S."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError):  # the page is being loaded
                if self.run(f"Boolean({expression})"):  # an element has no value of its own here
                    return
            time.sleep(0.05)
        raise AssertionError(
            f"{what or expression} never came; the page shows: {self.run('document.body.innerText')[:1500]}"
        )

    def see(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.wait(f"document.body.innerText.includes({json.dumps(text)})", text)

    def text(self) -> str:
        """Return the text that the page shows."""
        return self.run("document.body.innerText")

    def click(self, selector: str) -> None:
        """Click the first element that a CSS selector finds."""
        self.wait(f"document.querySelector({json.dumps(selector)})")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        typed = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            given = typed if kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **given)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """The viewport in CSS pixels, and the theme that the system asks for."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write what the page shows as PNG."""
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(data["data"]))


@contextlib.contextmanager
def chromium(program: str) -> Iterator[Page]:
    """A tab of a browser with a profile of its own, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="seal-view-chromium-", ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "--disable-background-networking"]
        process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            address, waits = _address(Path(profile), process), {"open_timeout": WAIT_S, "ping_interval": None}
            with connect(address, max_size=None, **waits) as connection:  # every wait has a deadline of its own
                yield Page(connection)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)


def _address(profile: Path, process: subprocess.Popen) -> str:
    """The tab's address for the protocol."""
    import httpx

    file, deadline = profile / "DevToolsActivePort", time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"Chromium ended with status {process.returncode} before it could be used.")
        if file.is_file() and (lines := file.read_text().split()):
            with contextlib.suppress(httpx.TransportError):
                for tab in httpx.get(f"http://127.0.0.1:{lines[0]}/json/list", timeout=10, trust_env=False).json():
                    if tab["type"] == "page":
                        return tab["webSocketDebuggerUrl"]
        time.sleep(0.05)
    raise RuntimeError(f"Chromium did not answer within {WAIT_S:g} s.")
