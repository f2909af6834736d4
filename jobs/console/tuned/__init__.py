"""What `indexmill tune` prints: one file a kind, and the table that both kinds fill."""
