"""Kernel files: bytes to values. `reader` is the only module that opens anything."""
