"""Command line and answer file of every client: FOLDER QUERIES.npy ANSWER.npz OPTIONS."""

from __future__ import annotations

import json
import sys

import numpy as np


def question() -> tuple[str, np.ndarray, dict]:
    return sys.argv[1], np.load(sys.argv[2]), json.loads(sys.argv[4])


def answer(**arrays: np.ndarray) -> None:
    np.savez(sys.argv[3], **arrays)
