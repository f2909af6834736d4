"""The whole system of AIO-ANN, where some reads are slow: `python -m indexmill.jobs.bench.aio_ann`.

Imports `common`, `counts`, `programs` and `sift1m`.
"""
