"""A headless Chromium, driven through the pipe of its DevTools protocol: a page is opened, asked with JavaScript, and pressed keys on."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

LONGEST = 90
"""Seconds after which a browser that says nothing hangs."""


def path_of_browser():
    """The browser's path; the test is skipped where there is none."""
    if os.name == "nt":
        pytest.skip("the pipe to the browser is POSIX'")
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")


class Browser:
    """A running browser with one page.

    Attributes:
        requests: The addresses that the page has asked for.
        messages: What its console said, and what its policy refused.
    """

    def __init__(self, home, width=1280, height=900):
        to_read, write = os.pipe()
        read, to_write = os.pipe()
        command = [
            path_of_browser(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={home}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "browser", str(to_read), str(to_write), *command],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._out, self._in = os.fdopen(write, "wb"), os.fdopen(read, "rb")
        self._number, self._left = 0, b""
        self.requests, self.messages, self._loaded = [], [], False
        self._session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.call("Browser.close")
        self.process.kill()
        self.process.wait()
        for pipe in (self._out, self._in):
            with contextlib.suppress(OSError):
                pipe.close()

    def call(self, method, **parameters):
        """Calls a method of the protocol."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session and not method.startswith(("Browser.", "Target.")):
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self):
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._in], [], [], LONGEST)
            assert ready, f"the browser says nothing for {LONGEST} seconds"
            more = os.read(self._in.fileno(), 1 << 20)
            assert more, "the browser has ended"
            self._left += more
        text, _, self._left = self._left.partition(b"\0")
        message = json.loads(text)
        event, found = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif event == "Runtime.consoleAPICalled":
            self.messages.append(str(found["args"]))
        elif event == "Runtime.exceptionThrown":
            self.messages.append(str(found["exceptionDetails"]))
        elif event == "Log.entryAdded":
            self.messages.append(found["entry"]["text"])
        elif event == "Page.loadEventFired":
            self._loaded = True
        return message

    def resize(self, width, height, scale=1):
        """Gives the page a size; up to 500 pixels wide it is a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width <= 500,
        )

    def prefer(self, scheme):
        """Lets the system be ``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path):
        """Opens a file, and waits until its script has shown everything."""
        self._loaded = False
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while not self._loaded:
            self._next()
        ready = "new Promise(done => { const look = () => document.body.dataset.ready ? done(document.body.dataset.ready) : setTimeout(look, 5); look(); })"
        return self.run(ready)

    def run(self, script):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, *keys):
        """Presses keys, by their names."""
        codes = {
            "Enter": 13,
            "Escape": 27,
            "Tab": 9,
            "ArrowDown": 40,
            "ArrowUp": 38,
            "ArrowLeft": 37,
            "ArrowRight": 39,
            "End": 35,
            "Home": 36,
        }
        for key in keys:
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            code = codes.get(key, ord(key[0]))
            event = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def shot(self, path, whole=False):
        """Takes a picture of what can be seen, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(answer["data"]))
