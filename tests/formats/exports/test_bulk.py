"""Files for the bulk interface of OpenSearch and Elasticsearch: names, types, files, and the printed commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from tests.oracles.files.small_index import write_small_index
from tests.support.indexes.append import points

import indexmill
from indexmill.formats.errors import ConfigError
from indexmill.formats.exports import bulk


def test_no_field_s_type_or_name_is_left_to_the_engine(tmp_path: Path) -> None:
    n = 40
    columns = {
        "_id": pa.array(range(n), pa.uint64()),
        "slot": [f"2026-01-{i % 28 + 1:02}" for i in range(n)],  # text that looks like a date
        "half": pa.array([float(i) for i in range(n)]),  # floats that look whole
        "flag": [i % 2 == 0 for i in range(n)],
        "a.b": list(range(n)),
    }
    indexmill.build(points(n, 1), tmp_path / "ix", metadata=pa.table(columns), pq_bytes=2)
    indexmill.export(tmp_path / "ix", "bulk", tmp_path / "out")
    properties = json.loads((tmp_path / "out" / "opensearch.json").read_text())["mappings"]["properties"]
    document = json.loads((tmp_path / "out" / "bulk-00000.ndjson").read_bytes().splitlines()[1])
    assert list(document) == [*sorted(properties, key=list(document).index)]
    kinds = {name: properties[name]["type"] for name in list(document)[5:]}
    assert kinds == {
        "metadata__id": "unsigned_long",
        "metadata_slot": "text",
        "half": "double",
        "flag": "boolean",
        "a.b": "long",
    }


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((" ", "b"), "named ' '"),
        (("a..b", "b"), r"named 'a\.\.b'"),
        (("b", "b.c"), r"columns 'b' and 'b\.c'"),
        (("a", "id.source"), r"columns 'id' and 'id\.source'"),
    ],
)
def test_names_that_no_field_can_have_are_refused(
    tmp_path: Path, names: tuple[str, str], message: str
) -> None:
    table = pa.table({name: list(range(40)) for name in names})
    indexmill.build(points(40, 1), tmp_path / "ix", metadata=table, pq_bytes=2)
    with pytest.raises(ConfigError, match=message):
        indexmill.export(tmp_path / "ix", "bulk", tmp_path / "out")


def test_lines_are_cut_into_files_a_server_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "FILE_BYTES", 20_000)
    monkeypatch.setattr(bulk, "STEP_BYTES", 8_000)
    small = write_small_index(tmp_path / "ix", dtype="int8", dim=300, R=100, id_type="none", n=120)
    indexmill.export(small.path, "bulk", tmp_path / "out", ids="slot")
    files = sorted((tmp_path / "out").glob("bulk-*.ndjson"))
    assert len(files) > 2
    lines = [json.loads(line) for path in files for line in path.read_bytes().splitlines()]
    assert [line["index"]["_id"] for line in lines[::2]] == [str(slot) for slot in range(120)]
    assert [line["vector"] for line in lines[1::2]] == small.stored.tolist()
    assert [line["id"] for line in lines[1::2]] == small.vector_ids.tolist()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed commands are curl's")
@pytest.mark.parametrize("refused", [False, True])
def test_the_printed_commands_send_every_document(tmp_path: Path, refused: bool) -> None:
    small = write_small_index(tmp_path / "ix", dim=8, id_type="none", n=60)
    found = indexmill.export(small.path, "bulk", tmp_path / "it's here")
    asked: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append((self.command, self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps({"errors": refused}, separators=(",", ":")).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = answer

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = found["open"].replace("localhost:9200", f"localhost:{server.server_port}")
        done = subprocess.run(
            ["bash", "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "no_proxy": "*"},
        )
        server.shutdown()
    assert [(method, path) for method, path, _ in asked] == [("PUT", "/vectors"), ("POST", "/vectors/_bulk")]
    assert asked[0][2] == (tmp_path / "it's here" / "elasticsearch.json").read_bytes()
    assert asked[1][2] == (tmp_path / "it's here" / "bulk-00000.ndjson").read_bytes()
    assert ("documents were refused" in done.stdout) == refused
