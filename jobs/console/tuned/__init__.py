"""Tables of `indexmill tune` on the terminal: a file for each kind of index, and the frontier that both print."""
