"""The options of a job are the fields of its models."""

from __future__ import annotations

from typing import Any

import pytest

from indexmill.jobs.cli.commands.explain import HeldMemory
from indexmill.jobs.cli.commands.tune import TunedJob
from indexmill.jobs.kinds.job import JobOptions
from indexmill.pipeline.spec import KINDS, BuildSpec


def infos(model: type[JobOptions] = JobOptions) -> dict[str, Any]:
    return {one.name: one.annotation.__metadata__[0] for one in model.parameters()}


def test_every_field_of_a_job_is_an_option_with_a_description() -> None:
    fields = {name for model in (*KINDS.values(), BuildSpec) for name in model.model_fields}
    assert set(infos()) == fields - {"parameters"}
    for name, info in infos().items():
        assert len(info.help) > 5, name
        assert "Undefined" not in info.help, name
        assert info.rich_help_panel, name


def test_parameters_that_kinds_share_have_one_default() -> None:
    """One option stands for all of them, and says one default."""
    for name in infos():
        defaults = {
            repr(model.model_fields[name].default) for model in KINDS.values() if name in model.model_fields
        }
        assert len(defaults) <= 1 or name == "kind", name


def test_one_letter_names_of_the_papers_are_short_flags() -> None:
    short = {flag: name for name, info in infos().items() for flag in info.param_decls if len(flag) == 2}
    short |= {info.default: name for name, info in infos().items() if str(info.default).startswith("-")}
    short = {flag: name for flag, name in short.items() if len(flag) == 2}
    assert short == {
        "-R": "max_degree", "-L": "build_list_size", "-c": "ratio", "-w": "width", "-m": "n_functions",
        "-S": "candidates",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "words"), TunedJob.DEFAULTS.items())
def test_a_command_says_what_it_does_without_an_option(name: str, words: str) -> None:
    assert f"(default {words})" in infos(TunedJob)[name].help
    assert f"(default {words})" not in infos()[name].help


@pytest.mark.parametrize("model", [JobOptions, TunedJob, HeldMemory])
def test_the_memory_of_searches_has_the_same_words_in_all_commands(model: type[JobOptions]) -> None:
    info = infos(model)["search_memory"]
    assert info.metavar == "SIZE|N/vector"
    assert info.help.startswith(
        "Memory that searches may hold: all of it, such as 2GB, or of a code, such as 64/vector. "
    )
