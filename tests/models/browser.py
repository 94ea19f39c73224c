"""Headless Chromium, driven over a pipe by the DevTools protocol: real clicks, and every error of the console."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time

import pytest

SECONDS = 60


class Browser:
    """One tab; `errors` are those of its console and its scripts."""

    def __init__(self, folder, scheme):
        command = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
        if command is None:
            pytest.skip("needs Chromium")
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
        theirs_in, self.input, self.output, theirs_out = ends
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
        ]
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        shell = ["bash", "-c", script, "bash", command, *options]
        self.process = subprocess.Popen(shell, pass_fds=(theirs_in, theirs_out), **quiet)
        os.close(theirs_in), os.close(theirs_out)
        self.errors, self.number, self.session, self.unread, self.loaded = [], 0, None, b"", 0
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setDeviceMetricsOverride", width=1200, height=1000, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.input), os.close(self.output)

    def send(self, method, **parameters):
        """Send a command, and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.input, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self.number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self):
        """Return the next message, and note what the console says."""
        end = time.monotonic() + SECONDS
        while b"\0" not in self.unread:
            assert select.select([self.output], [], [], max(0, end - time.monotonic()))[0], "no answer of the browser"
            self.unread += os.read(self.output, 1 << 16)
        text, self.unread = self.unread.split(b"\0", 1)
        message = json.loads(text)
        method, said = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(said["exceptionDetails"].get("exception", said["exceptionDetails"]))
        if method == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.errors.append(said["args"])
        if method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(said["entry"])
        self.loaded += method == "Page.loadEventFired"
        return message

    def open(self, path):
        """Open a file, and wait until it is drawn."""
        before = self.loaded
        self.send("Page.navigate", url=path.as_uri())
        while self.loaded == before:
            self._read()
        self.draw()

    def run(self, script):
        """Return what an expression is."""
        done = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, (script, done)
        return done["result"].get("value")

    def draw(self):
        """Wait for two frames."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def place(self, selector, across=0.5, down=0.5):
        """Return where on the screen a part of an element is."""
        return self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({ block: 'center' });"
            f" const b = e.getBoundingClientRect(); return [b.x + {across} * b.width, b.y + {down} * b.height]; }})()"
        )

    def mouse(self, kind, place, **more):
        self.send("Input.dispatchMouseEvent", type=f"mouse{kind}", x=place[0], y=place[1], **more)

    def hover(self, selector, across=0.5, down=0.5):
        self.mouse("Moved", self.place(selector, across, down))
        self.draw()

    def click(self, selector, across=0.5, down=0.5, to=None):
        """Click on an element, or drag from there to another place across it."""
        place = self.place(selector, across, down)
        self.mouse("Moved", place)
        self.mouse("Pressed", place, button="left", buttons=1, clickCount=1)
        if to is not None:
            place = self.place(selector, to, down)
            self.mouse("Moved", place, button="left", buttons=1)
        self.mouse("Released", place, button="left", clickCount=1)
        self.draw()

    def wheel(self, selector, delta, across=0.5):
        self.mouse("Wheel", self.place(selector, across), deltaX=0, deltaY=delta)
        self.draw()

    def press(self, key):
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))
        self.draw()
