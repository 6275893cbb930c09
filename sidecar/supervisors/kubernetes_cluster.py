"""Where the Kubernetes API is and who we are to it: by the variables and files that the kubelet gives every pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sidecar.supervisors.values import Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The API and our pod. The files of the service account change: each is read when it is needed."""

    url: str
    folder: str
    pod: str

    def read(self, name: str) -> str:
        """Read a file of the service account; raise `Trouble` where it cannot be read."""
        try:
            return Path(self.folder, name).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as exc:
            raise Trouble(f"{self.folder}/{name}: {exc}") from exc


def find(environ: Mapping[str, str], folder: str, pod: str | None) -> Cluster | None:
    """Find the cluster that we run in; None where there is none, or where no token was given to us."""
    host = environ.get("KUBERNETES_SERVICE_HOST")
    if not host or not Path(folder, "token").exists():
        return None
    port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT") or "443"
    name = pod or environ.get("HOSTNAME") or os.uname().nodename
    return Cluster(url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", folder=folder, pod=name)
