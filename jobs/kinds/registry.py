"""The kinds of index by name, and what they say together."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from indexmill.formats.errors import ConfigError
from indexmill.jobs.kinds import graph, ivf, lsh
from indexmill.jobs.kinds.kind import Kind
from indexmill.jobs.options.declare import flags_given, made_of, parameters_of

KINDS: Mapping[str, Kind] = {kind.NAME: kind for kind in (graph, lsh, ivf)}


class FlagsOfKinds:
    """The options that single kinds take, of all kinds together: a model of options.

    Attributes
    ----------
    FLAGS : str
        Attribute of a kind that holds its own.
    """

    FLAGS: ClassVar[str]

    def __init__(self, **given: Any) -> None:
        self._flags = {name: made_of(getattr(kind, self.FLAGS), given) for name, kind in KINDS.items()}

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Return a parameter for each option."""
        return [one for kind in KINDS.values() for one in parameters_of(getattr(kind, cls.FLAGS))]

    def of(self, kind: str) -> Any:
        """Return the options of a kind.

        Raises
        ------
        ConfigError
            If one that belongs to another kind was given.
        """
        for other, flags in self._flags.items():
            for flag in flags_given(flags) if other != kind else ():
                raise ConfigError(
                    f"{flag}: for an index of kind {other}, and this one is of kind {kind}; leave it out"
                )
        return self._flags[kind]


class SearchFlagsOfKinds(FlagsOfKinds):
    """The options of `search` that single kinds take."""

    FLAGS = "SearchFlags"


class ScoreFlagsOfKinds(FlagsOfKinds):
    """The options of `score` that single kinds take."""

    FLAGS = "ScoreFlags"
