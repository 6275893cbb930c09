"""vLLM: the entry point `vllm.general_plugins`, which every vLLM process runs (API server, engine core, workers).

vLLM does not catch what a plugin raises, so this one raises nothing. VLLM_PLUGINS chooses among plugins; OOMGUARD=off
makes this one do nothing.
"""

from __future__ import annotations

from guard.fence import fence


def plugin() -> None:
    """Install the guard in this process."""
    with fence("vllm plugin"):
        import guard

        guard.install()
