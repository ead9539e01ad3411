"""A small HTTP server that answers as Grafana's documentation says its API does. It is not Grafana: what it
proves is
that the client follows the documented requests, answers and status codes.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TOKEN = "glsa_test"


@dataclass
class Store:
    folders: dict[str, str] = field(default_factory=dict)
    versions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """uid -> versions, oldest first: dashboard, message, folderUid."""
    provisioned: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    """Uids of dashboards that are said to be wrong."""
    writes: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request that changes something."""

    def edit(self, uid: str, **changes: Any) -> None:
        """Somebody edits a dashboard in the browser."""
        last = self.versions[uid][-1]
        document = {**last["dashboard"], **changes, "version": len(self.versions[uid]) + 1}
        self.versions[uid].append({**last, "dashboard": document, "message": ""})

    def newest(self, uid: str) -> dict[str, Any]:
        document: dict[str, Any] = self.versions[uid][-1]["dashboard"]
        return document


class _Handler(http.server.BaseHTTPRequestHandler):
    store: Store

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if found := re.fullmatch(r"/api/dashboards/uid/([\w-]+)/versions\?limit=1", self.path):
            last = self.store.versions[found[1]][-1]
            version = {"version": last["dashboard"]["version"], "message": last["message"]}
            self._answer(200, {"continueToken": "", "versions": [version]})
        elif found := re.fullmatch(r"/api/dashboards/uid/([\w-]+)", self.path):
            uid = found[1]
            if uid not in self.store.versions:
                self._answer(404, {"message": "Dashboard not found"})
                return
            meta = {
                "provisioned": uid in self.store.provisioned,
                "folderUid": self.store.versions[uid][-1]["folderUid"],
            }
            self._answer(200, {"dashboard": {**self.store.newest(uid), "id": 7}, "meta": meta})
        elif found := re.fullmatch(r"/api/folders/([\w-]+)", self.path):
            title = self.store.folders.get(found[1])
            self._answer(
                *(
                    (200, {"uid": found[1], "title": title})
                    if title
                    else (404, {"message": "folder not found"})
                )
            )
        else:
            self._answer(404, {"message": "Not found"})

    def do_POST(self) -> None:
        if not self._allowed():
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.store.writes.append(("POST", self.path))
        if self.path == "/api/folders":
            self.store.folders[body["uid"]] = body["title"]
            self._answer(200, {"uid": body["uid"], "title": body["title"]})
        elif self.path == "/api/dashboards/db":
            self._write(body)
        else:
            self._answer(404, {"message": "Not found"})

    def _write(self, body: dict[str, Any]) -> None:
        uid = body["dashboard"]["uid"]
        if body["folderUid"] not in self.store.folders:
            self._answer(400, {"message": "folder not found"})
            return
        if uid in self.store.refused:
            self._answer(400, {"message": "Dashboard is not valid"})
            return
        versions = self.store.versions.setdefault(uid, [])
        if versions and not body["overwrite"] and body["dashboard"]["version"] != len(versions):
            message = "The dashboard has been changed by someone else"
            self._answer(412, {"status": "version-mismatch", "message": message})
            return
        document = {key: value for key, value in body["dashboard"].items() if key != "id"}
        document["version"] = len(versions) + 1
        versions.append({"dashboard": document, "message": body["message"], "folderUid": body["folderUid"]})
        self._answer(200, {"uid": uid, "status": "success", "version": document["version"], "id": 7})

    def _allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return True
        self._answer(401, {"message": "Invalid API key"})
        return False

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *unused: object) -> None:
        """Keep test output clean."""


@contextlib.contextmanager
def grafana_stand_in() -> Iterator[tuple[str, Store]]:
    store = Store()
    handler = type("Handler", (_Handler,), {"store": store})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
