"""Figures that papers report, to stand beside ours: other data, other machines, so only ratios compare."""

from __future__ import annotations

from typing import NamedTuple


class Ablation(NamedTuple):
    """A row of DiskANN++ Table VI at one recall."""

    qps: float
    ratio: float
    ios: float
    hops: float


#: DiskANN++ Table VI, sift100M: components to figures at recall@100 of 85% and of 97%.
TABLE_6 = {
    "-": (Ablation(946.42, 1.00, 181.54, 24.66), Ablation(385.88, 1.00, 447.49, 57.61)),
    "A": (Ablation(1033.64, 1.09, 164.57, 22.51), Ablation(401.14, 1.04, 431.58, 55.62)),
    "B": (Ablation(959.8, 1.01, 181.54, 24.66), Ablation(387.17, 1.00, 447.49, 57.61)),
    "C": (Ablation(1065.09, 1.13, 179.24, 24.38), Ablation(440.34, 1.14, 438.87, 56.6)),
    "AB": (Ablation(1022.24, 1.08, 164.57, 22.51), Ablation(397.41, 1.03, 431.58, 55.62)),
    "AC": (Ablation(1152.38, 1.22, 163.79, 22.41), Ablation(447.22, 1.16, 425.35, 54.92)),
    "BC": (Ablation(1281.32, 1.35, 148.32, 20.58), Ablation(660.6, 1.71, 291.85, 38.25)),
    "ABC": (Ablation(1412.35, 1.49, 133.41, 18.72), Ablation(691.88, 1.79, 278.65, 36.62)),
}

#: DiskANN++ Table IV: N_cluster to the speed-up at each of `BANDWIDTHS`.
TABLE_4 = {
    4096: (1.176, 1.065, 1.085, 1.189, 1.127, 1.213, 1.221),
    8192: (1.156, 1.086, 1.126, 1.132, 1.175, 1.305, 1.166),
    16384: (1.180, 1.113, 1.190, 1.237, 1.219, 1.334, 1.147),
    32768: (1.189, 1.159, 1.225, 1.354, 1.418, 1.238, 1.077),
    65536: (1.240, 1.161, 1.223, 1.275, 1.153, 1.124, 0.915),
}
#: Megabytes a second.
BANDWIDTHS = (100, 200, 300, 400, 500, 600, 700)

#: AIO-ANN section 3: share of reads below 100 microseconds, and the slowest read in microseconds.
AIO_FAST_SHARE, AIO_SLOWEST_US = 0.985, 10_000
#: AIO-ANN section 5: gain in queries a second over DiskANN, least and most.
AIO_GAIN = (0.20, 0.30)

#: DiskANN++ Table I: page compactness in the original layout and remapped.
TABLE_1 = {"sift100M": (0.000004, 0.658033), "deep100M": (0.0, 0.560141), "turing100M": (0.0, 0.547292)}


class Reordering(NamedTuple):
    """A method of DiskANN++ Table V."""

    memory_gb: float
    seconds: float
    speedup: float


#: DiskANN++ Table V, sift100M, R = 32, 8 threads: our name of the order to its figures; speed-ups at recall@100 of 97%.
TABLE_5 = {
    "random": Reordering(2.2, 449.5, 1.02),
    "gorder-windowed": Reordering(75.1, 2739.1, 1.84),
    "star": Reordering(6.3, 222.3, 1.69),
}
