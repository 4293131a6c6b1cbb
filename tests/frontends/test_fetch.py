"""Models behind an address: a real server, asked once, then gone."""

from __future__ import annotations

import http.server
import io
import json
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS, downloads
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.lowered_cache import load_cached

from ..command_line import op_profiler
from ..installed import needs

pytestmark = needs("onnx")


class Server:
    """Answers every request with `content`, or that it has not changed where `etag` says so."""

    def __init__(self) -> None:
        self.content, self.etag, self.answers = b"", "", 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802 - the library's name
                outer.answers += 1
                if outer.etag and self.headers["If-None-Match"] == outer.etag:
                    self.send_response(304)
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(outer.content)))
                if outer.etag:
                    self.send_header("ETag", outer.etag)
                self.end_headers()
                self.wfile.write(outer.content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/net.onnx"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    one = Server()
    one.content = model(4)
    yield one
    one.stop()


def model(width: int) -> bytes:
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, width])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(made.SerializeToString())


def test_a_model_is_fetched_once_and_used_without_the_server(server: Server) -> None:
    frontend, request = FRONTENDS.get("remoteonnx"), ModelRequest(source="remoteonnx", name=server.address)
    content = frontend.fingerprint(request)
    assert load_cached(frontend, request).inputs[0].shape == (1, 4)
    assert server.answers == 1
    server.stop()
    assert frontend.fingerprint(request) == content
    assert load_cached(frontend, request).inputs[0].shape == (1, 4)


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"x"), lambda file: file.unlink()])
def test_a_kept_file_that_is_not_what_was_fetched_is_fetched_again(server: Server, damage: Any) -> None:
    file = downloads.download(server.address)
    damage(file)
    assert downloads.download(server.address).read_bytes() == server.content and server.answers == 2
    damage(file)
    server.stop()
    with pytest.raises(ModelError, match="does not answer"):
        downloads.download(server.address)


def test_a_file_with_the_name_of_the_state_beside_it_stays_whole(server: Server) -> None:
    address = server.address.replace("net.onnx", "state.json")
    for _ in range(2):
        assert downloads.download(address).read_bytes() == server.content and server.answers == 1


def test_what_is_no_address_is_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match="is no http or https address: Invalid IPv6"):
        downloads.download("http://[::1/net.onnx")


def test_an_archive_with_a_name_that_no_file_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    with tarfile.open(tmp_path / "nul.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("net.onnx")
        member.pax_headers = {"path": "net\0.onnx"}
        tar.addfile(member, io.BytesIO())
    with pytest.raises(ModelError, match="cannot be unpacked"):
        downloads.unpack(tmp_path / "nul.tar.gz", "digest")


@pytest.mark.parametrize("etags", [("", ""), ('"a"', '"b"')])
def test_a_changed_file_is_fetched_when_it_is_asked_for_again(server: Server, etags: tuple[str, str]) -> None:
    server.etag = etags[0]
    file = downloads.download(server.address)
    assert downloads.download(server.address, again=True).read_bytes() == model(4)
    server.content, server.etag = model(8), etags[1]
    assert downloads.download(server.address).read_bytes() == model(4)
    assert (
        downloads.download(server.address, again=True).read_bytes()
        == model(8)
        == downloads.download(server.address).read_bytes()
    )
    server.stop()
    with pytest.raises(ModelError, match="does not answer"):
        downloads.download(server.address, again=True)
    assert file.read_bytes() == model(8)


def test_a_complete_collection_is_answered_off_line(server: Server, tmp_path: Path) -> None:
    words = ["--modelsource=remoteonnx", f"--modelname={server.address}", "--threads=1", "--summary-json=s.json"]

    def collect(*more: str) -> subprocess.CompletedProcess[str]:
        return op_profiler("collect", *words, *more, folder=tmp_path)

    assert collect().returncode == 0 and server.answers == 1
    server.stop()
    done = collect()
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads((tmp_path / "s.json").read_text())
    assert entry["measured"] == 0 and entry["reused"] == 1
    assert collect("--refetch").returncode == 4
    done = collect("--refetch", "--modelsource=local", "--modelname=mlp")
    assert done.returncode == 2 and "address" in done.stderr
