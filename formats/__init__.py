"""All file I/O; no algorithms: vector sources, files at URLs, chunk and index files, device profiles, others' files.

Imports nothing else of indexmill. `errors` is imported by all, `kernel` by all that compile loops;
`kinds` imports the folders of every kind of index.
`docs/formats/` specifies every file byte by byte.
"""
