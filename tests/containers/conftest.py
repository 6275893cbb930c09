"""One podman and one build of the images for all container tests."""

from __future__ import annotations

import pytest

from tests.containers import podman as images
from tests.containers.podman import Podman


@pytest.fixture(scope="session")
def podman() -> Podman:
    """Podman with the images of this checkout."""
    if reason := images.why_not():
        pytest.skip(reason)
    tool = Podman.prepare()
    images.build_images(tool)
    return tool
