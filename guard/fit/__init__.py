"""Whether a load will fit: what it needs by its path, against what is left. See docs/preflight.md."""
