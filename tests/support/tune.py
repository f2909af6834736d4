"""The task that whole runs of `tune` share."""

N = 4400
#: One graph, so that a run takes seconds; codes are left open.
GRAPH = ("-R", "12", "-L", "30", "--alpha", "1.2")
