"""Neighbour graphs for scikit-learn: a transformer that answers as `KNeighborsTransformer` does, from an index."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from indexmill.formats.errors import ConfigError, IndexmillError, InputError
from indexmill.formats.index.manifest import read_manifest
from indexmill.formats.location import local_path
from indexmill.jobs.api.functions import build, open
from indexmill.pipeline.execution.capacity import cores_here
from indexmill.reader.choices import DEFAULT_SEARCH_LIST_SIZE

#: Metric of an index for each metric of the transformer.
_METRICS = {"euclidean": "l2", "sqeuclidean": "l2", "cosine": "cosine"}
_MODES = ("distance", "connectivity")
#: Keywords of a build that the transformer sets itself, and its parameters for them; None: it needs one graph.
_SET = {
    "metric": "metric", "force": "force", "workers": "n_jobs", "out": "path", "vectors": "X of fit", "kind": None,
    "parts": None,
}  # fmt: skip
#: Name of the index in a directory of its own.
_NAME = "neighbors.index"


class NeighborsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transform vectors into the sparse graph of their nearest neighbours among those that were fitted.

    It takes the place of `sklearn.neighbors.KNeighborsTransformer` before an estimator with ``metric="precomputed"``,
    such as `sklearn.manifold.TSNE`. The search is approximate: it uses a graph index, which is built within the memory
    that `index` states.

    Parameters
    ----------
    n_neighbors : int
        Neighbours of each row. With mode ``distance`` there is one more, as a fitted row is its own neighbour.
    mode : {"distance", "connectivity"}
        Whether entries are distances or ones.
    metric : {"euclidean", "sqeuclidean", "cosine"}
        ``cosine`` is one minus the cosine; rows of zeros have none and are refused.
    path : path, optional
        Directory of the index. By default it is temporary, deleted with the transformer, and part of its pickles.
    force : bool
        Whether `fit` may replace an index at `path` that another transformer or job wrote. The index that the last
        `fit` of this transformer wrote is replaced in either case, as long as it is still there.
    search_list_size : int, optional
        Candidates of a search; more are slower and find more. By default the larger of 64 and twice the neighbours.
    n_jobs : int, optional
        Threads; -1 for all cores. They do not change the result.
    index : dict, optional
        Further keywords of `indexmill.build`, such as ``{"R": 48, "memory": "2GiB"}``; none that this transformer sets:
        ``metric``, ``force``, ``workers``, ``kind``, ``parts``, ``out`` and ``vectors``.

    Attributes
    ----------
    index_ : Index
        The opened index of the fitted rows; vector ids are their positions.
    n_samples_fit_, n_features_in_ : int

    Examples
    --------
    >>> from sklearn.manifold import TSNE
    >>> from sklearn.pipeline import make_pipeline
    >>> neighbors = indexmill.NeighborsTransformer(n_neighbors=91)  # 3 x the perplexity of 30, and 1
    >>> points = make_pipeline(neighbors, TSNE(metric="precomputed", init="random")).fit_transform(vectors)
    """

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        mode: str = "distance",
        metric: str = "euclidean",
        path: str | os.PathLike[str] | None = None,
        force: bool = False,
        search_list_size: int | None = None,
        n_jobs: int | None = None,
        index: dict[str, Any] | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.metric = metric
        self.path = path
        self.force = force
        self.search_list_size = search_list_size
        self.n_jobs = n_jobs
        self.index = index

    def fit(self, X: ArrayLike, y: Any = None) -> NeighborsTransformer:
        """Build the index of the rows of `X`; a transformer that was fitted before stays so if that fails.

        Parameters
        ----------
        X : array, shape (n_samples, n_features)
            Narrowed to float32.
        y : ignored

        Raises
        ------
        TypeError, ValueError
            If a parameter or a row cannot be used.
        OutputExistsError
            If another index is at `path`, and `force` is false.
        IndexmillError
            If the build fails, such as for want of memory.
        """
        with self._as_it_was_on_failure():
            self._fit(X)
        return self

    def transform(self, X: ArrayLike) -> csr_matrix:
        """Find the neighbours of the rows of `X`.

        Returns
        -------
        scipy.sparse.csr_matrix, shape (n_queries, n_samples_fit)
            float32; each row has the same number of entries, the nearest first.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError, ValueError
            If `X` or a parameter cannot be used, if there are fewer fitted rows than neighbours, or if `metric` was
            changed to one that takes another index.
        """
        check_is_fitted(self, "index_")
        self._check_parameters()
        if _METRICS[self.metric] != (fitted := self.index_.metric):
            raise ValueError(
                f"metric: {self.metric} takes an index by {_METRICS[self.metric]}, but this one was fitted with "
                f"{fitted}; fit again"
            )
        rows = validate_data(self, X, dtype=np.float32, order="C", reset=False)
        k = self.n_neighbors + (self.mode == "distance")
        if k > self.n_samples_fit_:
            raise ValueError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, n_samples_fit = {self.n_samples_fit_}"
            )
        found, scores = self._nearest(rows, k)
        values = np.ones(found.shape, np.float32) if self.mode == "connectivity" else self._distances(scores)
        starts = np.arange(len(rows) + 1, dtype=np.int64) * k
        return csr_matrix((values.ravel(), found.ravel(), starts), shape=(len(rows), self.n_samples_fit_))

    @contextmanager
    def _as_it_was_on_failure(self) -> Iterator[None]:
        """Take back every attribute that was set, also what scikit-learn notes of rows, unless the block ends well."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _fit(self, X: ArrayLike) -> None:
        self._check_parameters()
        rows = validate_data(self, X, dtype=np.float32, order="C")
        settings = {"node_dtype": "same", "workers": self._threads(), **(self.index or {})}
        folder = None
        try:
            if self.path is None:
                folder = tempfile.TemporaryDirectory(prefix="indexmill-")
                out = Path(folder.name, _NAME)
            else:
                out = Path(os.path.abspath(local_path(self.path, "path")))
            force = self.force or self._owns(out)
            index = build(rows, out, metric=_METRICS[self.metric], force=force, **settings)
        except (ConfigError, InputError) as error:
            raise ValueError(str(error)) from error
        self._folder, self._wrote, self._build_id = folder, str(out), index.native.build_id
        self.n_samples_fit_ = self._n_features_out = len(rows)
        self.index_ = index

    def _owns(self, out: Path) -> bool:
        """Whether the index at `out` is the one that the last `fit` wrote."""
        if getattr(self, "_wrote", None) != str(out) or not out.exists():
            return False
        try:
            manifest = read_manifest(out)
        except IndexmillError:
            return False
        return bool(manifest.build_id == self._build_id)

    def _nearest(self, rows: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Search, with more candidates while a row has fewer than `k` neighbours."""
        candidates = self.search_list_size or max(DEFAULT_SEARCH_LIST_SIZE, 2 * k)
        while True:
            size = min(max(candidates, k), self.n_samples_fit_)
            try:
                found = self.index_.search(rows, k, L=size, threads=self._threads())
            except InputError as error:
                raise ValueError(str(error)) from error
            missing = (found.vector_ids < 0).any(axis=1)
            if not missing.any():
                return found.vector_ids, found.scores
            if size == self.n_samples_fit_:
                raise IndexmillError(
                    f"row {int(np.argmax(missing))}: found fewer than {k} neighbours among {size:,} vectors; expected "
                    "that the graph leads to all of them; fit with a larger R in index"
                )
            candidates = 2 * size

    def _distances(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.metric == "cosine":
            return np.maximum(1 - scores, 0)
        return np.sqrt(scores) if self.metric == "euclidean" else scores

    def _check_parameters(self) -> None:
        _check_whole("n_neighbors", self.n_neighbors, 1)
        if self.search_list_size is not None:
            _check_whole("search_list_size", self.search_list_size, 1)
        for name, value, known in (("mode", self.mode, _MODES), ("metric", self.metric, tuple(_METRICS))):
            if value not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
        if self.n_jobs is not None:
            _check_whole("n_jobs", self.n_jobs)
        if self.n_jobs == 0:
            raise ValueError("n_jobs: expected a number of threads, or -1 for all cores, got 0")
        if self.index is not None and not isinstance(self.index, dict):
            raise TypeError(f"index: expected a dict of keywords of build, got {self.index!r}")
        for key in sorted(_SET.keys() & (self.index or {})):
            advice = f"give it as {_SET[key]}" if _SET[key] else "it needs one graph, leave it out"
            raise ValueError(f"index: expected no key {key!r}, which the transformer sets; {advice}")

    def _threads(self) -> int:
        if self.n_jobs is None:
            return 1
        return int(self.n_jobs) if self.n_jobs > 0 else max(1, cores_here() + 1 + int(self.n_jobs))

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: the graph is float32, whatever the type of the rows."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, of a fitted transformer, the files of a temporary index or the build at `path`."""
        state = dict(super().__getstate__())
        if state.pop("index_", None) is None:
            return state
        if state.pop("_folder") is not None:
            state["_files"] = {file.name: file.read_bytes() for file in sorted(Path(self._wrote).iterdir())}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Write the files of a temporary index into a new directory, and open the index.

        Raises
        ------
        IndexmillError
            If the index at `path` is gone or of another build.
        """
        state = dict(state)
        files = state.pop("_files", None)
        super().__setstate__(state)
        if "_wrote" not in state:
            return
        self._folder = None
        if files is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="indexmill-")
            self._wrote = str(Path(self._folder.name, _NAME))
            Path(self._wrote).mkdir()
            for name, data in files.items():
                Path(self._wrote, name).write_bytes(data)
        self.index_ = open(self._wrote)
        if (found := self.index_.native.build_id) != self._build_id:
            raise IndexmillError(
                f"{self._wrote}: holds build {found}, but the pickled transformer wrote {self._build_id}; fit it again"
            )


def _check_whole(name: str, value: Any, least: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
