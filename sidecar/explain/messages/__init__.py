"""Messages that say something, as tables of patterns: one module a kind."""
