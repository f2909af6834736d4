"""The native reader: indexes opened, verified and searched (`index`, `lsh`, `ivf`), and its kernels for numba code.

Imports `formats`. `kernels` and `threads` import nothing else of indexmill, so builders and layouts may use them.
"""
