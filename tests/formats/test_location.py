"""Paths and URLs: what is on this machine, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.formats.errors import ConfigError
from indexmill.formats.location import (
    has_scheme,
    is_mirrored,
    is_url,
    local_name,
    local_path,
    path_or_url,
    shown_url,
    without_credentials,
    work_folder,
)

URLS = ["s3://bucket/x", "gs://bucket/x", "memory://x", "S3://b", "simplecache::s3://b/x", "s3:/bucket/x"]
LOCAL = ["x", "/tmp/x", "./s3:/x", "a/b:/c", "../x", "", "x:y", "1:/x", "/data/s3://x"]


@pytest.mark.parametrize("url", URLS)
def test_a_url_is_no_local_path(url: str) -> None:
    assert is_url(url)
    with pytest.raises(ConfigError, match=r"^out: .* is a URL; expected a path of this machine") as caught:
        local_path(url, "out")
    assert shown_url(url) in str(caught.value)


@pytest.mark.parametrize("path", LOCAL)
def test_a_local_path_stays_as_it_is(path: str) -> None:
    assert not is_url(path)
    assert not has_scheme(path)
    assert local_path(path, "out") == path_or_url(path, "out") == path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///tmp/a%20b", "/tmp/a b"),
        ("file://localhost/tmp/x", "/tmp/x"),
        ("file:/tmp/x", "/tmp/x"),
        ("FILE:///x", "/x"),
        ("file:///", "/"),
    ],
)
def test_a_file_url_is_a_local_path(url: str, path: str) -> None:
    assert not is_url(url)
    assert has_scheme(url)
    assert local_path(url, "out") == path_or_url(url, "out") == path


@pytest.mark.parametrize("url", ["file://host/x", "file://x"])
def test_a_file_of_another_machine_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^out: file://\w+(/x)? names the machine"):
        local_path(url, "out")


def test_pathlib_takes_a_slash_of_a_url_and_it_is_given_back() -> None:
    assert str(Path("s3://bucket/x")) == "s3:/bucket/x"
    assert path_or_url(Path("s3://bucket/x"), "out") == "s3://bucket/x"
    assert path_or_url("s3://bucket/x?region=a", "out") == "s3://bucket/x?region=a"


@pytest.mark.parametrize("path", LOCAL)
def test_a_work_folder_of_this_machine_has_no_mirror(path: str) -> None:
    assert work_folder(path) == path
    assert not is_mirrored(path)


def test_a_work_folder_at_a_url_is_mirrored_and_stays_a_url() -> None:
    assert not is_mirrored(None)
    for url in ("s3://bucket/x?region=a", "memory://x", "file:///tmp/x"):
        assert is_mirrored(url)
        assert work_folder(url) == url
    assert work_folder(Path("s3://bucket/x")) == "s3://bucket/x"
    assert work_folder(Path("file:///tmp/x")) == "/tmp/x"


def test_files_that_belong_to_a_url_are_named_after_its_last_part() -> None:
    assert local_name("s3://key:secret@bucket/a/x/?region=a") == "x"
    assert local_name(Path("/tmp/x")) == "/tmp/x"


def test_messages_show_no_credentials() -> None:
    assert shown_url("s3://key:secret@bucket/x?region=eu&endpoint_override=h:1") == "s3://bucket/x"


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:SEC/RET+X@bucket/x?region=eu",
        "s3://AKIAKEY:SEC%2FRET@bucket/x",
        "S3://AKIAKEY:SECRET/@bucket/x#part",
        "s3://AKIAKEY@bucket/x",
        "s3:/AKIAKEY:SECRET@bucket/x",
    ],
)
def test_secrets_with_slashes_are_not_shown(url: str) -> None:
    assert shown_url(url) == "s3://bucket/x"


def test_an_at_sign_in_a_name_is_shown() -> None:
    assert shown_url("s3://bucket/a@b/x?region=eu") == "s3://bucket/a@b/x"


def test_what_libraries_say_of_a_url_is_told_without_its_credentials() -> None:
    url = "s3://AKIAKEY:SEC%2FRET@bucket/x?token=abcdefgh&region=eu"
    said = f"Cannot parse {url}: AKIAKEY:SEC%2FRET or SEC/RET with abcdefgh in eu"
    assert without_credentials(said, url) == "Cannot parse s3://bucket/x: *** or *** with *** in eu"
