"""Serves the page: as scripts/web has built it, or its sources with the native program (web/src/main.cc) in the place of the
module, so that the page is tested where there is no emscripten."""
import functools
import http.server
import json
import subprocess
import tempfile
import threading
from pathlib import Path

WORKER = b"""let asked = Promise.resolve();
onmessage = ({data}) => {
  asked = asked.then(async () => {
    const begin = performance.now();
    const answer = await (await fetch('/answer', {method: 'POST', body: JSON.stringify(data)})).text();
    postMessage({id: data.id, answer, milliseconds: performance.now() - begin});
  });
};
"""


class Handler(http.server.SimpleHTTPRequestHandler):
    native = None

    def log_message(self, *arguments): pass

    def send(self, kind, data):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.native and self.path == "/js/worker.js": self.send("text/javascript", WORKER)
        else: super().do_GET()

    def do_POST(self):
        data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.send("application/json", self.native.answer(data).encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # the page was closed


class Native:
    """The program, one request at a time; dropped files lie in a folder."""

    def __init__(self, executable, specs):
        self.folder = tempfile.TemporaryDirectory()
        self.lock = threading.Lock()
        self.process = subprocess.Popen([executable, specs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def answer(self, data):
        request = data["request"]
        if file := data.get("file"):
            path = Path(self.folder.name + file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["text"], encoding="utf-8")
            request["options"]["--model"] = str(path)
        with self.lock:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().replace(self.folder.name, "")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()


class Server:
    def __init__(self, page, native=None):
        handler = type("Served", (Handler,), {"native": native})
        self.native = native
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=page))
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.http.server_port}/"

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        if self.native: self.native.close()
