"""What the text of a switch means: the same words for every one of them.

People write a switch as their other tools take it. Who writes OOMGUARD=0 means off. An empty text is no word: a Compose
file's `${OOMGUARD:-}` gives one where nobody has said anything.
"""

from __future__ import annotations

import os

OFF = frozenset({"off", "0", "false", "no"})
ON = frozenset({"on", "1", "true", "yes"})


def is_off(variable: str) -> bool:
    """Whether an environment variable switches something off; not set or empty does not."""
    return os.environ.get(variable, "").strip().lower() in OFF
