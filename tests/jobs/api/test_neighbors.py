"""The transformer answers as `KNeighborsTransformer`, and keeps the rules of scikit-learn's estimators."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import HDBSCAN
from sklearn.exceptions import NotFittedError
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.support.indexes.builds import clustered
from tests.support.processes.forks import run_forked

import indexmill
from indexmill import NeighborsTransformer
from indexmill.formats.errors import BudgetError, IndexmillError, OutputExistsError
from indexmill.jobs.api import neighbors

ROWS = clustered(300, 8)
#: Of indexes whose answers are not compared.
QUICK = {"R": 8, "L": 16, "order": "identity", "navigation": 0.0}


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_graph_is_that_of_scikit_learn(metric: str, mode: str) -> None:
    ours = NeighborsTransformer(7, mode=mode, metric=metric, search_list_size=300)
    theirs = KNeighborsTransformer(n_neighbors=7, mode=mode, metric=metric, algorithm="brute")
    for given in (ROWS, ROWS[:20] + 0.25):
        found, expected = ours.fit(ROWS).transform(given), theirs.fit(ROWS).transform(given)
        assert (found.shape, found.nnz) == (expected.shape, expected.nnz)
        assert np.array_equal(found.indptr, expected.indptr)
        same = np.mean(found.indices == expected.indices)
        assert same > 0.99, same  # ties, and rounding of float32
        np.testing.assert_allclose(found.data, expected.data, rtol=1e-3, atol=2e-3)


def test_a_fitted_row_is_its_own_nearest_neighbour() -> None:
    graph = NeighborsTransformer(4).fit_transform(ROWS)
    assert np.array_equal(graph.indices.reshape(-1, 5)[:, 0], np.arange(300))
    assert not graph.data.reshape(-1, 5)[:, 0].any()
    assert (np.diff(graph.data.reshape(-1, 5)) >= 0).all()


def test_t_sne_takes_the_graph() -> None:
    settings: dict[str, Any] = {"perplexity": 30, "init": "random", "random_state": 0, "max_iter": 250}
    ours = make_pipeline(
        NeighborsTransformer(91, search_list_size=150), TSNE(metric="precomputed", **settings)
    )
    points = ours.fit_transform(ROWS[:150])
    assert points.shape == (150, 2)
    assert np.isfinite(points).all()


def two_groups() -> tuple[np.ndarray, np.ndarray]:
    """Rows around two centres, and the centre of each."""
    of = np.arange(120) % 2
    return np.random.default_rng(3).normal(8 * of[:, None], 1, (120, 8)).astype(np.float32), of


def test_hdbscan_takes_the_graph_made_symmetric() -> None:
    rows, of = two_groups()
    graph = NeighborsTransformer(80).fit_transform(
        rows
    )  # so many that the groups are connected, which it needs
    found = HDBSCAN(metric="precomputed", min_samples=5, copy=True).fit(graph.maximum(graph.T))
    for label in (0, 1):
        values, counts = np.unique(found.labels_[of == label], return_counts=True)
        assert counts.max() > 50  # of 60; some are noise
        assert values[counts.argmax()] >= 0
    assert found.labels_.max() == 1


def test_fitted_twice_it_answers_for_the_second_rows(tmp_path: Path) -> None:
    for path in (None, tmp_path / "ix"):
        twice = NeighborsTransformer(3, path=path).fit(ROWS).fit(ROWS[100:, :5])
        once = NeighborsTransformer(3).fit(ROWS[100:, :5])
        assert twice.n_features_in_ == 5
        assert (twice.transform(ROWS[:9, :5]) != once.transform(ROWS[:9, :5])).nnz == 0


def test_asked_before_it_is_fitted_it_says_so() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        NeighborsTransformer().transform(ROWS)


def test_an_index_that_another_job_wrote_is_replaced_by_force_only(tmp_path: Path) -> None:
    indexmill.build(ROWS, tmp_path / "ix", R=8, L=20)
    with pytest.raises(OutputExistsError):
        NeighborsTransformer(path=tmp_path / "ix").fit(ROWS)
    NeighborsTransformer(path=tmp_path / "ix", force=True).fit(ROWS)


@pytest.mark.parametrize("unpickled", [False, True])
def test_fitted_again_it_keeps_an_index_that_another_job_put_in_the_place_of_its_own(
    unpickled: bool, tmp_path: Path
) -> None:
    path = tmp_path / "ix"
    fitted = NeighborsTransformer(3, path=path).fit(ROWS)
    if unpickled:
        fitted = pickle.loads(pickle.dumps(fitted))
    fitted.fit(ROWS[:200])
    other = indexmill.build(ROWS + 1, path, R=8, L=20, force=True).native.build_id
    with pytest.raises(OutputExistsError):
        fitted.fit(ROWS)
    assert indexmill.open(path).native.build_id == other


@pytest.mark.parametrize("kept", [False, True])
def test_a_pickle_answers_in_another_process(kept: bool, tmp_path: Path) -> None:
    fitted = NeighborsTransformer(3, path=tmp_path / "ix" if kept else None).fit(ROWS)
    expected = fitted.transform(ROWS[:9])
    (tmp_path / "pickle").write_bytes(pickle.dumps(fitted))
    np.save(tmp_path / "rows.npy", ROWS[:9])
    del fitted
    code = """
import pickle, sys, numpy
from pathlib import Path
folder = Path(sys.argv[1])
fitted = pickle.loads((folder / "pickle").read_bytes())
graph = fitted.transform(numpy.load(folder / "rows.npy"))
numpy.savez(folder / "graph.npz", indices=graph.indices, data=graph.data)
del fitted  # and its temporary index
"""
    done = run_forked(code, tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "graph.npz") as graph:
        assert np.array_equal(graph["indices"], expected.indices)
        assert np.array_equal(graph["data"], expected.data)


def test_pickled_before_it_is_fitted_it_can_be_fitted() -> None:
    copy = pickle.loads(pickle.dumps(NeighborsTransformer(3, metric="cosine")))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.transform(ROWS)
    assert copy.fit(ROWS).transform(ROWS[:9]).shape == (9, 300)


def test_a_pickle_with_its_own_index_outlives_the_transformer_and_is_fitted_again() -> None:
    fitted = NeighborsTransformer(3).fit(ROWS)
    expected, pickled = fitted.transform(ROWS[:9]), pickle.dumps(fitted)
    del fitted
    one, two = pickle.loads(pickled), pickle.loads(pickled)
    folder = Path(one.index_.path)
    assert one.fit(ROWS[:100]).transform(ROWS[:9]).shape == (9, 100)
    assert not folder.exists()  # the temporary index that the pickle brought
    assert (two.transform(ROWS[:9]) != expected).nnz == 0


def test_a_pickle_refuses_another_index_at_its_path(tmp_path: Path) -> None:
    pickled = pickle.dumps(NeighborsTransformer(3, path=tmp_path / "ix").fit(ROWS))
    NeighborsTransformer(3, path=tmp_path / "ix", force=True).fit(ROWS + 1)
    with pytest.raises(IndexmillError, match="but the pickled transformer wrote"):
        pickle.loads(pickled)


def test_a_temporary_index_goes_with_its_transformer() -> None:
    fitted = NeighborsTransformer(3).fit(ROWS)
    folder = Path(fitted.index_.path)
    assert folder.is_dir()
    assert clone(fitted).get_params() == fitted.get_params()
    del fitted
    assert not folder.exists()


def test_wrong_parameters_are_named() -> None:
    for wrong, said in (
        ({"mode": "near"}, "mode"),
        ({"metric": "l1"}, "metric"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"search_list_size": -5}, "search_list_size"),
        ({"search_list_size": 0}, "search_list_size"),
        ({"index": {"metric": "cosine"}}, "index"),
        ({"index": {"R": 8, "kind": "ivf"}}, "index"),
        ({"index": {"parts": 2}}, "index"),
    ):
        with pytest.raises(ValueError, match=f"^{said}: expected"):
            NeighborsTransformer(**wrong).fit(ROWS)
    for of_type in ({"n_jobs": "2"}, {"n_jobs": 1.0}, {"search_list_size": "9"}, {"n_neighbors": True}):
        [name] = of_type
        with pytest.raises(TypeError, match=f"^{name}: expected a whole number"):
            NeighborsTransformer(**of_type).fit(ROWS)
    with pytest.raises(TypeError, match=r"^index: expected a dict"):
        NeighborsTransformer(index=["R"]).fit(ROWS)
    for wrong, said in (({"R": -1}, r"max_degree \(R\): "), ({"degree": 8}, "degree")):
        with pytest.raises(ValueError, match=said):
            NeighborsTransformer(index=wrong).fit(ROWS)
    with pytest.raises(ValueError, match="Expected n_neighbors <= n_samples_fit"):
        NeighborsTransformer(5).fit(ROWS[:5]).transform(ROWS[:5])


def test_with_another_metric_it_has_to_be_fitted_again() -> None:
    fitted = NeighborsTransformer(3).fit(ROWS)
    expected = fitted.transform(ROWS[:9]).data
    np.testing.assert_allclose(
        fitted.set_params(metric="sqeuclidean").transform(ROWS[:9]).data, expected**2, rtol=1e-5
    )
    for one in (fitted, pickle.loads(pickle.dumps(fitted))):
        with pytest.raises(ValueError, match=r"^metric: cosine .* was fitted with l2; fit again"):
            one.set_params(metric="cosine").transform(ROWS[:9])
    assert fitted.fit(ROWS).transform(ROWS[:9]).shape == (9, 300)


def test_a_url_is_no_path_of_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"^path: s3://bucket/index is a URL; expected a path of this machine"
    ):
        NeighborsTransformer(path="s3://bucket/index").fit(ROWS)
    assert list(tmp_path.iterdir()) == []
    NeighborsTransformer(path=(tmp_path / "ix").as_uri()).fit(ROWS)
    assert [one.name for one in tmp_path.iterdir()] == ["ix"]


def test_what_cannot_be_fitted_leaves_it_unfitted() -> None:
    unfitted = NeighborsTransformer(3, index={"R": -1})
    with pytest.raises(ValueError, match="max_degree"):
        unfitted.fit(ROWS)
    assert vars(unfitted) == unfitted.get_params()
    with pytest.raises(NotFittedError):
        unfitted.transform(ROWS)


@pytest.mark.parametrize(
    ("index", "error"),
    [({"R": -1}, ValueError), ({"memory": "1MiB"}, BudgetError), ({"R": 8}, KeyboardInterrupt)],
)
def test_a_fit_that_fails_leaves_it_fitted_as_it_was(
    index: dict[str, Any], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = NeighborsTransformer(3).fit(ROWS)
    expected = fitted.transform(ROWS[:9])
    before = dict(vars(fitted.set_params(index=index)))
    if error is KeyboardInterrupt:
        monkeypatch.setattr(neighbors, "build", interrupted)
    with pytest.raises(error):
        fitted.fit(ROWS[:100, :5])
    assert vars(fitted) == before
    assert (fitted.transform(ROWS[:9]) != expected).nnz == 0


def interrupted(*given: Any, **settings: Any) -> None:
    raise KeyboardInterrupt


def test_all_cores_are_counted_where_none_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert NeighborsTransformer(3, n_jobs=-1).fit(ROWS).transform(ROWS[:9]).shape == (9, 300)


def test_the_rules_of_estimators_hold() -> None:
    """All of scikit-learn's checks of a transformer.

    One cannot hold, and the transformer's tags say so: `check_transformer_preserve_dtypes`, as distances are float32.
    """
    failed, n_passed = {}, 0
    for estimator, check in estimator_checks_generator(NeighborsTransformer(index=QUICK)):
        name = check.func.__name__
        try:
            check(estimator)
            n_passed += 1
        except SkipTest:  # `check_array_api_input`, without SCIPY_ARRAY_API
            continue
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    assert failed == {}
    assert NeighborsTransformer().__sklearn_tags__().transformer_tags.preserves_dtype == []
    assert n_passed > 30
