"""Memory of a part of an array, given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from indexmill.formats.released import release

ROWS, WIDTH = 4_000, 4_096


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_whole_pages_of_a_part_are_given_back_and_the_rest_stays() -> None:
    array = np.full((ROWS, WIDTH), 7, np.uint32)
    before = resident()
    release(array[1_000:3_000])
    assert before - resident() > 0.9 * 2_000 * WIDTH * 4 / 4096
    assert (array[:1_000] == 7).all()
    assert (array[3_000:] == 7).all()


def test_a_part_of_less_than_a_page_is_left_alone() -> None:
    array = np.full(100, 7, np.uint32)
    release(array[10:20])
    release(array[10:10])
    assert (array == 7).all()
