"""Podman for the tests: a configuration of its own, a Debian base image made by debootstrap, images of this checkout.

Facts that shape it: crun refuses hybrid cgroups, runc does not (podman 4.3.1); without CAP_SYS_RESOURCE the default
ulimits cannot be raised; without systemd only the cgroupfs manager and the file event log work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
BASE = "localhost/oomguard/base:bookworm"
SIDECAR = "localhost/oomguard/sidecar:latest"
MODEL = "localhost/oomguard/example-model:latest"

CONFIG = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{runtime}"
"""


def why_not() -> str | None:
    """Say why containers cannot be played here, or None."""
    if os.geteuid() != 0:
        return "containers: needs root"
    missing = [name for name in ("podman", "debootstrap", "podman-compose") if not shutil.which(name)]
    return f"containers: not installed: {', '.join(missing)} (make apt-lab)" if missing else None


@dataclass(frozen=True)
class Podman:
    """Runs podman with our configuration."""

    config: Path

    @classmethod
    def prepare(cls) -> Podman:
        """Write the configuration for this kind of host."""
        BUILD.mkdir(exist_ok=True)
        config = BUILD / "containers.conf"
        pure_v2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        config.write_text(CONFIG.format(runtime="crun" if pure_v2 else "runc"))
        return cls(config)

    @property
    def environment(self) -> dict[str, str]:
        """The environment podman and podman-compose run in."""
        return {**os.environ, "CONTAINERS_CONF": str(self.config)}

    def __call__(self, *arguments: str, check: bool = True, timeout: float = 120) -> str:
        """Run `podman ARGUMENTS`, give its standard output; a failure shows both streams."""
        return self.run(["podman", *arguments], check=check, timeout=timeout)

    def run(self, command: list[str], *, check: bool = True, timeout: float = 120) -> str:
        """Run any command in podman's environment."""
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} -> {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def get(self, container: str, url: str) -> tuple[int, str]:
        """GET `url` from inside `container`; give status and body."""
        script = (
            "import sys, urllib.request, urllib.error\n"
            "try: r = urllib.request.urlopen(sys.argv[1], timeout=10)\n"
            "except urllib.error.HTTPError as e: r = e\n"
            "print(r.status); sys.stdout.write(r.read().decode())"
        )
        status, _, body = self("exec", container, "python3", "-c", script, url).partition("\n")
        return int(status), body

    def get_json(self, container: str, url: str) -> dict[str, Any]:
        """GET a JSON object from inside `container`."""
        document: dict[str, Any] = json.loads(self.get(container, url)[1])
        return document


def build_images(podman: Podman) -> None:
    """Make the base image once a machine and the two images of this checkout."""
    if not _exists(podman, BASE):
        _import_base(podman)
    wheels = BUILD / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(wheels), "-c", ".ci/constraints.txt"]
    podman.run([*pip, "hatchling", ".[sidecar,docker]"], timeout=300)
    for tag, file in ((SIDECAR, "Dockerfile.sidecar"), (MODEL, "integrations/example-model/Dockerfile")):
        offline = "PIP_ARGS=--no-index --find-links=build/wheels"
        arguments = ["--build-arg", f"BASE={BASE}", "--build-arg", offline, "--network=none"]
        podman("build", "-q", "-f", file, *arguments, "-t", tag, ".", timeout=300)


def _exists(podman: Podman, image: str) -> bool:
    return image in podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()


def _import_base(podman: Podman) -> None:
    with tempfile.TemporaryDirectory(prefix="oomguard-base-") as folder:
        packages = "python3,python3-venv,ca-certificates"
        podman.run(["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", folder], timeout=600)
        path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        archive = f"{folder}.tar"
        podman.run(["tar", "-C", folder, "--exclude=./dev", "-cf", archive, "."])
        try:
            podman("import", "-c", path, archive, BASE)
        finally:
            Path(archive).unlink(missing_ok=True)
