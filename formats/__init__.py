"""Every byte that is read or written: vector sources, index files, manifest. No algorithm lives here."""
