"""A few lines each that put the public functions where a server or framework has a place for them.

None of them is imported by the guard itself, except `torchelastic`, which is standard library alone.
"""
