"""Paths, directories, globs, lists and URLs lead to the right files in the right order."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from tests.support.s3 import flaky_server
from tests.support.sources import check_source, lists, make, write_bin, write_parquet, write_vecs

from indexmill.formats.errors import InputError
from indexmill.formats.location import shown_url
from indexmill.formats.sources.filesystem import InputFile, locate, reading, resolve
from indexmill.formats.sources.source import SUFFIXES, open_source


def names(found: list[InputFile], folder: Path) -> list[str]:
    return [str(Path(file.name).relative_to(folder)) for file in found]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    vectors = make("float32", 6, 2)
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for name in ("b.npy", "a.npy", "c.npy", ".hidden.npy", "sub/d.npy", "sub/deep/e.npy"):
        np.save(tmp_path / name, vectors)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "README.md").write_text("not vectors")
    return tmp_path


def test_directory_gives_supported_visible_files_by_name(tree: Path) -> None:
    assert names(resolve(tree, SUFFIXES), tree) == ["a.npy", "b.npy", "c.npy"]
    assert names(resolve(f"{tree}/", SUFFIXES), tree) == ["a.npy", "b.npy", "c.npy"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.npy", ["a.npy", "b.npy", "c.npy"]),
        ("[ac].npy", ["a.npy", "c.npy"]),
        ("?.npy", ["a.npy", "b.npy", "c.npy"]),
        ("*/*.npy", ["sub/d.npy"]),
        ("**/*.npy", ["a.npy", "b.npy", "c.npy", "sub/d.npy", "sub/deep/e.npy"]),
        ("sub/**/e.npy", ["sub/deep/e.npy"]),
    ],
)
def test_glob_gives_matching_files_by_name(tree: Path, pattern: str, expected: list[str]) -> None:
    assert names(resolve(f"{tree}/{pattern}", SUFFIXES), tree) == expected


def test_relative_paths_and_globs_start_at_the_working_directory(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert [file.name for file in resolve(["c.npy", "[ab].npy"], SUFFIXES)] == ["c.npy", "a.npy", "b.npy"]
    assert [file.name for file in resolve("sub/*.npy", SUFFIXES)] == ["sub/d.npy"]
    assert open_source("*.npy").n_vectors == 18


def test_home_directory_is_expanded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    assert open_source("~/a.npy").paths == [str(tree / "a.npy")]


def test_existing_file_with_glob_characters_is_itself(tmp_path: Path) -> None:
    np.save(tmp_path / "a[1].npy", make("float32"))
    assert open_source(tmp_path / "a[1].npy").n_vectors == 57


def test_list_keeps_its_order_and_vector_ids_run_on(tmp_path: Path) -> None:
    parts = [make("float32", n, 3, seed=n) for n in (7, 1, 12, 4)]
    write_bin(tmp_path / "z.fbin", parts[0])
    np.save(tmp_path / "y.npy", parts[1])
    write_parquet(tmp_path / "x.parquet", parts[2], group=5)
    write_vecs(tmp_path / "w.fvecs", parts[3])
    source = open_source([tmp_path / name for name in ("z.fbin", "y.npy", "x.parquet", "w.fvecs")])
    check_source(source, np.concatenate(parts), 5, [23, 0, 7, 8, 8, 19, 20, 6, 7])
    origins = [(Path(b.path).name, b.first_row, len(b.vectors)) for b in source.batches(5)]
    assert origins == [
        ("z.fbin", 0, 5),
        ("z.fbin", 5, 2),
        ("y.npy", 0, 1),
        ("x.parquet", 0, 5),
        ("x.parquet", 5, 5),
        ("x.parquet", 10, 2),
        ("w.fvecs", 0, 4),
    ]


def test_empty_files_among_others_are_left_out(tmp_path: Path) -> None:
    vectors = make("float32", 5, 3)
    pq.write_table(pa.table({"v": pa.array([], pa.list_(pa.float32()))}), tmp_path / "a.parquet")
    write_parquet(tmp_path / "b.parquet", vectors, "list")
    source = open_source(tmp_path)
    assert source.paths == [str(tmp_path / "b.parquet")]
    check_source(source, vectors, 2, [4])


def test_memory_url_file_directory_and_glob_are_read() -> None:
    root = f"indexmill-{uuid.uuid4().hex}"
    memory = fsspec.filesystem("memory")
    parts = [make("float32", 12, 3, seed) for seed in (1, 2)]
    for name, part in zip(("p-0", "p-1"), parts, strict=True):
        with memory.open(f"/{root}/{name}.parquet", "wb") as file:
            pq.write_table(pa.table({"v": lists(part, "list")}), file, row_group_size=5)
    check_source(open_source(f"memory://{root}/p-1.parquet"), parts[1], 5, [11, 0])
    for url in (f"memory://{root}", f"memory://{root}/p-*.parquet"):
        source = open_source(url)
        assert source.paths == [f"memory://{root}/p-{i}.parquet" for i in (0, 1)]
        check_source(source, np.concatenate(parts), 5, [23, 0, 12, 11])


@pytest.mark.parametrize("suffix", ["fbin", "npy", "arrow", "h5"])
def test_every_kind_of_file_is_read_from_a_url(tmp_path: Path, suffix: str) -> None:
    from tests.support.sources import write_hdf5, write_ipc

    vectors = make("float32", 20, 3)
    local = tmp_path / f"a.{suffix}"
    {"fbin": write_bin, "npy": np.save, "arrow": write_ipc, "h5": write_hdf5}[suffix](local, vectors)
    url = f"memory://indexmill-{uuid.uuid4().hex}/a.{suffix}"
    with fsspec.open(url, "wb") as file:
        file.write(local.read_bytes())
    check_source(open_source(url), vectors, 6, [19, 2, 2])


def test_file_uri_is_a_local_path(tree: Path) -> None:
    assert open_source((tree / "a.npy").as_uri()).paths == [str(tree / "a.npy")]


def test_missing_file_names_its_nearest_neighbour(tree: Path) -> None:
    with pytest.raises(InputError, match=r"cc\.npy: not found; .*did you mean .*/c\.npy\?"):
        open_source(tree / "cc.npy")
    with pytest.raises(
        InputError, match=r"nowhere/x\.npy: not found; .*directory .*nowhere cannot be listed"
    ):
        open_source(tree / "nowhere" / "x.npy")
    with pytest.raises(InputError, match=r"memory://indexmill-none/x\.npy: not found; .*check the path"):
        open_source("memory://indexmill-none/x.npy")


def test_unusable_inputs_say_what_was_expected(tree: Path) -> None:
    (tree / "empty").mkdir()
    for given, message in (
        (
            tree / "README.md",
            r"README\.md: file type \.md is not supported; expected one of \.parquet, .*convert",
        ),
        (tree / "_SUCCESS", r"file type without suffix is not supported"),
        (tree / "empty", r"empty: no input files in this directory; expected files ending in .*write .*\*\*"),
        (f"{tree}/*.fbin", r"\*\.fbin: no file matches; expected at least one"),
        (f"{tree}/none/*.npy", r"none/\*\.npy: no file matches"),
        ([tree / "a.npy", f"{tree}/*.npy"], r"a\.npy: listed twice in the input"),
        ([], r"no input files; expected at least one path"),
        ("nosuchscheme://x/a.npy", r"nosuchscheme://x/a\.npy: no file system for this URL .*installed"),
    ):
        with pytest.raises(InputError, match=message):
            open_source(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://AKIAKEY:SECRETSECRET@bucket/x.npy?bogus=1", "bogus"),
        ("s3://AKIAKEY:SEC/RETRET@bucket/x.npy", "%2F"),
        ("foo://user:SECRETSECRET@host/x.npy", "no file system"),
        ("s3://AKIAKEY:SECRETSECRET@bucket/x?scheme=ftp&endpoint_override=h", "ftp"),
    ],
)
def test_errors_of_urls_have_no_credentials(url: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        locate(url)
    message = str(caught.value)
    assert said in message
    assert not any(secret in message for secret in ("SECRET", "SEC/RET", "RETRET"))
    assert caught.value.__cause__ is None or "SECRET" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("reference://user:SECRET@host/x", "missing 1 required positional argument: 'fo'"),
        ("dir://x", "'NoneType' object has no attribute"),
    ],
)
def test_a_client_that_needs_more_than_a_url_is_named_with_what_to_do(url: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        locate(url)
    message = str(caught.value)
    assert message.startswith(f"{shown_url(url)}: no file system for this URL (")
    assert said in message
    assert "; expected a local path, a scheme of pyarrow.fs or" in message
    assert message.endswith("set them in the configuration of fsspec, or name another place")
    assert "SECRET" not in message


def test_broken_link_in_a_directory_is_not_skipped(tree: Path) -> None:
    (tree / "d.npy").symlink_to(tree / "gone.npy")
    with pytest.raises(InputError, match=r"d\.npy: not found"):
        open_source(tree)


def test_file_without_permission_says_so() -> None:
    with (
        pytest.raises(InputError, match=r"x/a\.npy: permission denied .*expected a readable file; change"),
        reading("x/a.npy", "a vector file"),
    ):
        raise PermissionError("x/a.npy is not yours")


def test_a_url_with_options_is_a_file_a_directory_or_a_glob(tmp_path: Path) -> None:
    vectors = make("float32", 6, 2)
    np.save(tmp_path / "a.npy", vectors)
    with flaky_server() as server:
        place, _, options = server.url.partition("?")
        filesystem, folder = fs.FileSystem.from_uri(server.url)
        for name in ("a.npy", "b.npy"):
            with filesystem.open_output_stream(f"{folder}/{name}") as file:
                file.write((tmp_path / "a.npy").read_bytes())
        urls = [f"{place}/{name}?{options}" for name in ("a.npy", "b.npy")]
        for inputs in (urls, f"{place}?{options}", f"{place}/?.npy?{options}", f"{place}/[ab].npy?{options}"):
            assert [file.address for file in resolve(inputs, SUFFIXES)] == urls
        source = open_source(urls[1])
        check_source(source, vectors, 5, [5, 0])
        assert source.paths == ["s3://bucket/work/b.npy"]  # no credentials in messages
        with pytest.raises(InputError, match=r"^s3://bucket/work/c\*: no file matches"):
            resolve(f"{place}/c*?{options}", SUFFIXES)
