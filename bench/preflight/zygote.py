"""Runs pieces of code each in a fork of one interpreter that has imported the libraries already.

    python -m bench.preflight.zygote MODULE ...

Standard input takes one JSON string of code after the other. For each a child is forked; it prints its pid, waits for
one line, runs the code, prints "done" and waits for another line. The code may call `begin()`, which prints "begun",
and `wait()`, which waits for a line. When the child has ended, `ended STATUS` is printed. So the same imports serve
every measurement, and a child may be killed at any moment.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings

from bench.preflight import checkpoints


def main(modules: list[str]) -> None:
    """Serve until standard input ends."""
    warnings.simplefilter("ignore")
    for name in modules:
        importlib.import_module(name)
    if "transformers" in modules:
        from transformers import LlamaForCausalLM  # noqa: F401 - the package imports its models when they are asked for
    if "diffusers" in modules:
        from diffusers import DDPMPipeline, UNet2DModel  # noqa: F401
    _say("imported")
    while line := _hear():
        if line.isspace():  # meant for a child that was killed before it could read it
            continue
        pid = os.fork()
        if pid == 0:
            _child(json.loads(line))
        _say(f"ended {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


def _child(code: str) -> None:
    status = 1
    try:
        _say(str(os.getpid()))
        _hear()
        names = {"checkpoints": checkpoints, "begin": lambda: _say("begun"), "wait": _hear}
        exec(code, names)  # what it loaded stays until somebody has looked
        _say("done")
        _hear()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent's loop must never run in a child
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def _hear() -> str:
    """Read one line without a buffer, which a fork would copy."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            break
        line += byte
    return line.decode()


if __name__ == "__main__":
    main(sys.argv[1:])
