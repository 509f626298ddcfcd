"""A headless Chromium that opens one page, over the DevTools protocol on two pipes.

Needs no package beside Python and Chromium.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium():
    """The program's path, or None. KEEL_CHROMIUM names another program."""
    wanted = os.environ.get("KEEL_CHROMIUM")
    if wanted:
        return shutil.which(wanted)
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser with one page. Use it in a `with` statement."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="keel-pages-")
        to_read, self.out = os.pipe()
        self.inp, to_write = os.pipe()

        # The browser reads commands from descriptor 3 and writes answers to 4.
        def connect():
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        arguments = [program, "--headless=new", "--no-sandbox", "--disable-gpu",
                     "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                     "--user-data-dir=" + self.folder, "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(arguments, preexec_fn=connect, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number, self.session = b"", 0, None
        self.errors = []  # messages of the console and exceptions
        self.seen = set()  # names of events
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inp)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, timeout):
        end = time.monotonic() + timeout
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.inp], [], [], max(0, end - time.monotonic()))
            part = os.read(self.inp, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser did not answer in %g seconds" % timeout)
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        self.seen.add(event["method"])
        values = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.errors.append("exception: %s %s" % (details["text"], thrown))
        if event["method"] == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append("log: " + values["entry"]["text"])
        if event["method"] == "Runtime.consoleAPICalled" and values["type"] == "error":
            self.errors.append("console: " + json.dumps(values["args"]))

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(60)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            if "method" in answer:
                self.note(answer)

    def wait_for(self, event):
        while event not in self.seen:
            answer = self.receive(60)
            if "method" in answer:
                self.note(answer)

    def show(self, width, height=900, colours="light", medium="screen"):
        """Sets the size of the window, and light or dark colours."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": colours}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def open(self, path):
        self.seen.discard("Page.loadEventFired")
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("Page.loadEventFired")
        self.settle()

    def settle(self):
        """Waits until two frames are drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """The value of a JavaScript expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True,
                           returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise RuntimeError("%s: %s" % (script, json.dumps(answer["exceptionDetails"])))
        return answer["result"].get("value")

    def press(self, key, code=0, text=""):
        """Presses a key as a user does."""
        common = {"key": key, "code": key if len(key) > 1 else "", "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def tab(self):
        self.press("Tab", 9)

    def enter(self):
        self.press("Enter", 13, "\r")

    def screenshot(self, path, whole=False, clip=None):
        options = {"format": "png", "captureBeyondViewport": whole}
        if clip:
            options["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        elif whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"],
                               "height": min(size["height"], 16000), "scale": 1}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
