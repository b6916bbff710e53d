"""How files are found and searched: by ripgrep, or by a search of our own that finds the same."""
