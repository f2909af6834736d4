"""One file a verb of the `indexmill` command."""
