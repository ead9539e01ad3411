"""Takes what Alertmanager posts, and prints each body on a line of its own."""

import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        print(body.decode(), flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Only bodies are printed."""


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("", 9000), Handler).serve_forever()
