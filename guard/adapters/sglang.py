"""SGLang: the entry point `sglang.srt.plugins`, which the engine, the schedulers and the detokenizer run.

SGLANG_PLUGINS chooses among plugins; OOMGUARD=off makes this one do nothing.
"""

from __future__ import annotations

from guard.fence import fence


def plugin() -> None:
    """Install the guard in this process."""
    with fence("sglang plugin"):
        import guard

        guard.install()
