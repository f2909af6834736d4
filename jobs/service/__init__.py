"""The service of `indexmill serve-builds`: OpenSearch's contract of remote index builds over HTTP.

A request becomes a job in a queue of files; one process at a time builds. Imports no other folder of jobs.
"""
