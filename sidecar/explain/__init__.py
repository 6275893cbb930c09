"""`oomguard explain`: why did it die, from the files people already have. Parsers are pure; `reading` does the IO."""
