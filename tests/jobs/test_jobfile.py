"""Job files: keys, paths, precedence and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.formats.errors import ConfigError
from indexmill.jobs.choices import nearest, one_of
from indexmill.jobs.jobfile import load_job, resolve

GOOD = """
input = ["a.parquet", "/data/b.parquet", "s3://bucket/c.parquet"]
out = "index"
memory = "2GiB"
[parameters]
R = 24
metric = "cosine"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def test_relative_paths_are_relative_to_the_job_file(tmp_path: Path) -> None:
    spec = resolve(write(tmp_path, GOOD), {}, {})
    assert spec.input == [str(tmp_path / "a.parquet"), "/data/b.parquet", "s3://bucket/c.parquet"]
    assert spec.out == str(tmp_path / "index")


def test_job_file_beats_defaults_and_flags_beat_the_job_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    spec = resolve(path, {}, {})
    assert (spec.parameters.max_degree, spec.parameters.metric, spec.memory) == (24, "cosine", 2 << 30)
    assert spec.parameters.build_list_size == 75
    spec = resolve(path, {"memory": "1MB", "out": "elsewhere"}, {"max_degree": 48, "metric": None})
    assert (spec.parameters.max_degree, spec.parameters.metric, spec.memory) == (48, "cosine", 10**6)
    assert spec.out == "elsewhere"


def test_long_and_short_parameter_names_mean_the_same(tmp_path: Path) -> None:
    long = GOOD.replace("R = 24", "max_degree = 24")
    assert resolve(write(tmp_path, long), {}, {}).parameters.max_degree == 24
    assert resolve(write(tmp_path, long), {}, {"max_degree": 8}).parameters.max_degree == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("R = 24", "R = 24\nalhpa = 1.3"), ["parameters.alhpa", "did you mean 'alpha'?"]),
        (("out =", "worker = 3\nout ="), ["'worker'", "did you mean 'workers'?"]),
        (("out =", "metric = 'l2'\nout ="), ["'metric'", "[parameters]"]),
        (("R = 24", "R = 24\nworkers = 3"), ["parameters.workers", "top of the file"]),
        (("R = 24", "R = 24\nmax_degree = 25"), ["also set under its other name"]),
        (("R = 24", "R = 'many'"), ["parameters.max_degree (R)", "valid integer", "'many'"]),
        (("R = 24", "R = 1"), ["parameters.max_degree (R)", "greater than or equal to 2", "got 1"]),
        (('"2GiB"', '"2 gallons"'), ["memory", "'2 gallons' is not a size", "8GiB"]),
        (
            ('"cosine"', '"cosine"\norder = "stars"'),
            ["parameters.order", "'stars'", "'star', 'identity', 'random'"],
        ),
        (('out = "index"', ""), ["out: missing", "--out"]),
        (("R = 24", "R = "), ["not a TOML file"]),
        (("[parameters]", "parameters = 3\n[other]"), ["expected a table [parameters]"]),
    ],
)
def test_a_bad_job_file_is_refused_with_file_key_and_hint(
    tmp_path: Path, change: tuple[str, str], said: list[str]
) -> None:
    path = write(tmp_path, GOOD.replace(*change))
    with pytest.raises(ConfigError) as error:
        resolve(path, {}, {})
    message = str(error.value)
    for text in [str(path), *said]:
        assert text in message


def test_a_bad_flag_is_named_as_a_flag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--pq-bytes: .*got 0$"):
        resolve(write(tmp_path, GOOD), {}, {"pq_bytes": 0})


def test_every_wrong_value_is_reported_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("R = 24", "R = 1\nalpha = 0.5")
    with pytest.raises(ConfigError) as error:
        resolve(write(tmp_path, text), {}, {})
    assert len(str(error.value).splitlines()) == 2


def test_a_missing_job_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such job file"):
        load_job(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        load_job(tmp_path)


def test_nearest_lists_all_words_when_none_is_near() -> None:
    assert nearest("zzz", ["beta", "alpha"]) == "known: alpha, beta"
    assert nearest("bet", ["beta", "alpha"]) == "did you mean 'beta'?"


def test_a_word_that_is_no_choice_lists_the_choices_once() -> None:
    with pytest.raises(ConfigError, match=r"^--flag: expected one of beta, alpha, got 'zzz'$"):
        one_of("zzz", ["beta", "alpha"], "--flag")
    with pytest.raises(
        ConfigError, match=r"^--flag: expected one of beta, alpha, got 'bet'; did you mean 'beta'\?$"
    ):
        one_of("bet", ["beta", "alpha"], "--flag")
