"""Parts *build* and *default*: `indexmill build --metric cosine`, without other flags, beside DiskANN."""

from __future__ import annotations

from statistics import median
from typing import Any

from indexmill.jobs.bench.common.calibration import calibration
from indexmill.jobs.bench.common.curves import LONG_SIZES, RECALLS, ratio, summaries, tuned_trial
from indexmill.jobs.bench.common.dataset import touch
from indexmill.jobs.bench.common.intervals import curve, curve_ratios, figures_at, over_rounds
from indexmill.jobs.bench.common.parameters import THREADS
from indexmill.jobs.bench.embed import formats
from indexmill.jobs.bench.embed.sets import SENTENCES, Embeddings
from indexmill.jobs.bench.programs import diskann, rates
from indexmill.jobs.bench.programs.ours import DISKANN_WIDTH

NAME = "default"
#: Builds of ours, of which medians are taken; DiskANN builds once.
BUILDS = 3
#: Queries of a thread of ours: with two threads 32 are in flight, as many as threads of DiskANN in one series.
IN_FLIGHT = (16,)
_COSTS = ("wall_s", "cpu_s", "peak_bytes", "index_bytes")


def measure_build(space: Embeddings) -> dict[str, Any]:
    """Build DiskANN's index once and ours in several rounds, each from an empty work folder."""
    case = space.case(SENTENCES)
    place = case.space
    diskann.python(place)  # an environment is not made while something is measured
    formats.warm_up(case)
    before = calibration(place.data)
    touch(place.data.base)
    theirs = diskann.build(place)
    theirs["index_bytes"] = sum(path.stat().st_size for path in place.diskann_index.iterdir())
    touch(place.data.base)
    runs = [formats.build(case, NAME) for _ in range(space.rounds or BUILDS)]
    mine = {**runs[-1], **{name: median(run[name] for run in runs) for name in _COSTS}}
    return {
        "threads": THREADS,
        "calibration_s": [before, calibration(place.data)],
        "diskann": theirs,
        "indexmill": mine,
        "ratio": {name: ratio(mine[name], theirs[name]) for name in _COSTS},
        "format_s": over_rounds([_format_seconds(run) for run in runs]),
        "format_added": over_rounds([added_by_format(run) for run in runs]),
        "rounds": [{name: run[name] for name in _COSTS} for run in runs],
    }


def added_by_format(run: dict[str, Any]) -> float:
    """Return the time of the stage *format* as a share of that of the rest of a build."""
    seconds = _format_seconds(run)
    return seconds / float(run["wall_s"] - seconds)


def _format_seconds(run: dict[str, Any]) -> float:
    return float(run["stage_s"].get("format", 0.0))


def measure(space: Embeddings) -> dict[str, Any]:
    """Search both indexes: page reads of each query, then queries a second in turns."""
    case = space.case(SENTENCES)
    place = case.space
    formats.ensure(case, NAME)
    diskann.ensure(place)
    mine = formats.page_reads(place, NAME)
    with diskann.DiskAnn(place) as peer:
        _, rows = tuned_trial(peer.search("single"), LONG_SIZES, peer.search())
    theirs = curve([rows], "pages_read")
    return {
        "recalls": RECALLS,
        "queries": place.halves,
        "setting": formats.SETTING.to_dict(),
        "indexmill": {**formats.facts(place.index(NAME)), **mine.facts()},
        "diskann": {
            "pages_read": figures_at(theirs),
            "rows": summaries(rows),
            "beam_width": DISKANN_WIDTH,
            "counted": diskann.COUNTED,
        },
        "to_diskann": curve_ratios(mine.curve, theirs),
        "rates": rates.beside_diskann(
            place, NAME, rounds=space.rounds or rates.ROUNDS, in_flight=IN_FLIGHT, coarse=LONG_SIZES
        ),
    }
