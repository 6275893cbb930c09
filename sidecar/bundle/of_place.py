"""The parts that come from here and now: settings, doctor, versions, kernel files, logs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from guard.kernel import identity, tree
from guard.kernel.reader import Reader
from guard.model import Known
from sidecar import distribution, doctor
from sidecar.bundle.parts import PART_BYTES, Hiding, Part, document
from sidecar.outputs.shape import encode, plain
from sidecar.record.reading import RecordReader
from sidecar.settings import Settings
from sidecar.settings_load import keys

_PACKAGES: Final = (
    *("aiohttp", "msgspec", "nvidia-ml-py", "prometheus-client", "psutil", "rich", "tenacity", "grpcio", "pyarrow"),
    *("torch", "safetensors", "transformers", "vllm", "sglang", "ray"),
)
_LOG_BYTES: Final = 2 << 20
_WORDED: Final = ("proc/self/cgroup", "proc/self/mountinfo", "proc/sys/kernel/osrelease", "origin.toml")
"""Files with words of people in them; in all others but the two with the name of the process are figures alone."""
_COMM: Final = {"proc/self/status": re.compile(r"(?m)(^Name:\t)(.*)$"), "proc/self/stat": re.compile(r"(\()(.*)(?=\))")}


def versions() -> Mapping[str, Any]:
    """Name what runs here; a package that is not installed is null."""
    system = os.uname()
    return {
        "oomguard": distribution.release() or "from a checkout",
        "python": platform.python_version(),
        "kernel": system.release,
        "machine": system.machine,
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def settings_table(settings: Settings) -> Mapping[str, Any]:
    """Give every setting that is not the default. A URL is told without user and query by whoever hides."""
    found = {}
    for key in keys():
        value: object = settings
        for name in key.name.split("."):
            value = getattr(value, name)
        if value != key.default:
            found[key.name] = plain(value)
    return {"changed": found}


def parts(settings: Settings | str, hiding: Hiding) -> tuple[Part, ...]:
    """List what is small. `settings` as a text: why they cannot be read."""
    told = {"error": settings} if isinstance(settings, str) else settings_table(settings)
    used = Settings() if isinstance(settings, str) else settings
    return (
        Part("versions.json", "releases of oomguard, kernel, packages", lambda: document(hiding.value(versions()))),
        Part("settings.json", "settings that are not the default", lambda: document(hiding.value(told))),
        Part(
            "doctor.json",
            "what works here and what does not",
            lambda: document(hiding.value(json.loads(doctor.as_json(doctor.examine(used))))),
        ),
    )


def logs(names: list[str], hiding: Hiding) -> tuple[Part, ...]:
    """List the ends of log files."""
    return tuple(_log(number, name, hiding) for number, name in enumerate(names, 1))


def _log(number: int, name: str, hiding: Hiding) -> Part:
    about = f"the last {_LOG_BYTES >> 20} MiB of a log"
    return Part(
        f"logs/{number:02}.log",
        about,
        lambda: "".join(_hidden(line, hiding) for line in _last_lines(name)).encode() or None,
    )


def _last_lines(name: str) -> list[str]:
    with Path(name).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()
    return lines[1:] if size > _LOG_BYTES else lines


def _hidden(line: str, hiding: Hiding) -> str:
    """Hide in a line of a log: field by field where it is JSON, as ours is."""
    try:
        read = json.loads(line)
    except ValueError:
        read = None
    if isinstance(read, dict):
        return encode(hiding.value(read)).decode() + "\n"
    return hiding.text(line) + "\n"


def kernel_files(reader: RecordReader | None, hiding: Hiding) -> tuple[Part, ...]:
    """List the kernel files of the model's process where it lives and is seen from here, else of this one."""
    pid = None if reader is None else _living(reader)
    whose = "this process: the model's is not to be seen from here" if pid is None else "the model's process"
    found = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            tree.record(Reader(), f"{folder}/tree", pid)
        except OSError:
            return ()
        root = Path(folder, "tree")
        files = {
            path.relative_to(root).as_posix(): path.read_bytes()[:PART_BYTES]
            for path in root.rglob("*")
            if path.is_file()
        }
    for path in _cgroups(files.get("proc/self/cgroup", b"")):
        hiding.learn(path, "level")
    for name in sorted(files):
        shown = hiding.value(f"/{name}", "level") if not name.startswith("proc/") else f"/{name}"
        found.append(Part(f"tree{shown}", f"kernel file of {whose}", _tree_file(name, files[name], hiding)))
    return tuple(found)


def _living(reader: RecordReader) -> int | None:
    """Give the pid of the process that began last, where it is the same process here: boot and start say so."""
    kernel = Reader()
    boot = identity.boot_id(kernel)
    for event in reversed(reader.events()):
        pid, start = event.fields.get("pid"), event.fields.get("start_ticks")
        if event.kind != "model_started" or not isinstance(pid, int) or pid < 1:
            continue
        if boot == Known(event.fields.get("boot_id")) and identity.start_ticks(kernel, pid) == Known(start):
            return pid
    return None


def _cgroups(membership: bytes) -> Iterator[str]:
    for line in membership.decode("utf-8", "replace").splitlines():
        path = line.partition(":")[2].partition(":")[2]
        if len(path) > 1:
            yield path


def _tree_file(name: str, data: bytes, hiding: Hiding) -> Callable[[], bytes]:
    text = data.decode("utf-8", "replace")
    if f"/{name}" == identity.BOOT_ID_PATH:
        return f"{hiding.value(text.strip(), 'boot_id')}\n".encode
    if name in _WORDED:
        return lambda: hiding.text(text).encode()
    if (comm := _COMM.get(name)) is not None:
        return lambda: comm.sub(lambda found: found[1] + hiding.text(found[2]), text, count=1).encode()
    return lambda: data
