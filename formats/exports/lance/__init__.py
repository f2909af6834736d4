"""Lance: a dataset written from an index (`target`), and the index of a dataset that exists (`dataset`).

Both ask pylance through `library`. Imports nothing that `formats.exports` does not.
"""
