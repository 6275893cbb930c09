"""Which container is a model's, and where we are ourselves."""

from __future__ import annotations

import pytest

from sidecar.supervisors.place import Place, place_of
from sidecar.supervisors.values import Container, Subject
from sidecar.supervisors.whose import container_of

ID = "0123456789abcdef" * 4


def container(name: str, *, shares: bool = True, container_id: str | None = None) -> Container:
    """Make a container."""
    return Container(supervisor="docker", name=name, id=container_id, shares=shares)


def subject(model: str = "llm", *groups: str) -> Subject:
    """Make a model."""
    return Subject(model=model, groups=groups, alive=True)


@pytest.mark.parametrize("group", [f"/docker/{ID}", f"/kubepods/burstable/podx/cri-containerd-{ID}.scope/init"])
def test_the_id_in_the_path_decides(group: str) -> None:
    """A visible path names the container, whatever else shares the directory."""
    ours, other = container("a", shares=False, container_id=ID), container("llm")
    assert container_of(subject("llm", group), [other, ours], {}, alone=True) is ours


def test_the_settings_decide_before_anything_else() -> None:
    """By name or the beginning of the id, for one model or for any."""
    ours, other = container("web", shares=False), container("llm", container_id=ID)
    both = [ours, other]
    assert container_of(subject(), both, {"llm": "web", None: "llm"}, alone=False) is ours
    assert container_of(subject("x"), both, {None: ID[:12]}, alone=False) is other
    assert container_of(subject(), both, {"llm": "gone"}, alone=True) is None


def test_the_only_one_that_shares_is_the_only_models() -> None:
    """One model and one container beside us: no name is needed. With two models it would be a guess."""
    ours, stranger = container("server"), container("proxy", shares=False)
    assert container_of(subject(), [stranger, ours], {}, alone=True) is ours
    assert container_of(subject(), [stranger, ours], {}, alone=False) is None


def test_a_name_tells_several_apart() -> None:
    """Of several that share, the one called like the model; else none."""
    containers = [container("llm"), container("embed")]
    assert container_of(subject("embed"), containers, {}, alone=False) is containers[1]
    assert container_of(subject("other"), containers, {}, alone=True) is None


_KUBELET = (
    b"1 2 0:9 /var/lib/kubelet/pods/0a1b2c3d-1111-2222-3333-444455556666/containers/oomguard/1f2e3d4c "
    b"/dev/termination-log rw - ext4 /dev/sda1 rw\n"
)
_DOCKER = b"1 2 0:9 /var/lib/docker/containers/%s/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n" % ID.encode()
_PODMAN = (
    b"1 2 0:9 /run/containers/storage/overlay-containers/%s/userdata/hostname /etc/hostname rw - ext4 /dev/vda rw\n"
    % ID.encode()
)
_PLAIN = b"1 2 0:9 / / rw - ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    ("mounts", "place"),
    [
        (_KUBELET, Place(pod_uid="0a1b2c3d-1111-2222-3333-444455556666", container_name="oomguard")),
        (_PLAIN + _DOCKER, Place(container_id=ID)),
        (_PODMAN, Place(container_id=ID)),
        (_PLAIN, Place()),
        (b"", Place()),
    ],
    ids=["kubelet", "docker", "podman", "host", "empty"],
)
def test_our_own_place_is_told_by_our_mounts(mounts: bytes, place: Place) -> None:
    """The kubelet and the engines bind files from folders that are called after us."""
    assert place_of(mounts) == place
