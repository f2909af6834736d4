"""The index of a Lance dataset that exists: its segments, written by tasks on any machine (`tasks`), and the run."""
