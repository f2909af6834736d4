"""The `indexmill` command: its options, exit codes and, in `commands`, one file a verb."""
