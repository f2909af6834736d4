"""The Python interface that `indexmill` exports, and what it shares with commands of the same name."""
