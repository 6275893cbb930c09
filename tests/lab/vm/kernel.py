"""A Debian kernel for the machine, only unpacked, never installed; kept in the user's cache for the next clone.

The cloud flavour of 6.12 has virtiofs, fuse and virtio-pci built in, so that the initramfs needs a static busybox and
four small modules. It has no 9p at all (CONFIG_NET_9P unset), and no cgroup v1 memory controller (CONFIG_MEMCG_V1 off).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

METAPACKAGE: Final = "linux-image-6.12-cloud-amd64"
MODULES: Final = ("overlay", "virtio_blk", "ext4")
TOOLS: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "cpio": "cpio",
    "zstd": "zstd",
    "xz": "xz-utils",
    "mkfs.ext4": "e2fsprogs",
    "apt-get": "apt",
}
_INIT: Final = Path(__file__).with_name("init.sh")
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class NotAvailableError(OSError):
    """The machine cannot be built here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What qemu boots: the uncompressed kernel (seconds faster than a bzImage under emulation) and the initramfs."""

    release: str
    image: Path
    initramfs: Path


def ensure() -> Kernel:
    """Return the kernel, from the cache or fetched by apt. Raises `NotAvailableError` with what to do."""
    missing = sorted(package for tool, package in TOOLS.items() if _which(tool) is None)
    if missing:
        raise NotAvailableError(f"missing packages: apt-get install {' '.join(missing)}")
    package = _package()
    folder = _cache() / package
    if not folder.is_dir():
        _build(package, folder)
    release = package.removeprefix("linux-image-")
    image = folder / "vmlinux"
    return Kernel(release, image, _initramfs(folder))


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "oomguard-lab"


def _package() -> str:
    """Return the package that the metapackage names, or the newest one in the cache when apt knows none."""
    name = _apt_depends()
    if name is None:
        _run(["apt-get", "update", "-qq"], "apt has no package lists")
        name = _apt_depends()
    if name is not None:
        return name
    cached = sorted(_cache().glob("linux-image-*"))
    if cached:
        return cached[-1].name
    raise NotAvailableError(f"apt knows no package {METAPACKAGE}")


def _apt_depends() -> str | None:
    answer = subprocess.run(["apt-cache", "depends", METAPACKAGE], capture_output=True, text=True, check=False)
    found = re.search(r"Depends: (linux-image-6\.12\S+)", answer.stdout)
    return found[1] if found else None


def _build(package: str, folder: Path) -> None:
    """Fetch and unpack into a folder of its own name in one step, so that an interrupted build leaves nothing half."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as work_name:
        work = Path(work_name)
        _run(["apt-get", "-o", "APT::Sandbox::User=root", "-qq", "download", package], "no download", cwd=work)
        (archive,) = work.glob("*.deb")
        _run(["dpkg-deb", "-x", str(archive), str(work / "root")], "cannot unpack")
        release = package.removeprefix("linux-image-")
        done = work / "done"
        done.mkdir()
        (done / "vmlinux").write_bytes(_uncompress((work / "root/boot" / f"vmlinuz-{release}").read_bytes()))
        _take_modules(work / "root", release, done)
        try:
            done.rename(folder)
        except OSError:  # another run was faster
            if not folder.is_dir():
                raise


def _uncompress(bz_image: bytes) -> bytes:
    """Cut the zstd stream out of a bzImage and unpack it: an ELF file with a PVH entry, which qemu boots directly."""
    for found in re.finditer(re.escape(_ZSTD_MAGIC), bz_image):
        # the stream is followed by other bytes of the image, about which zstd complains after writing it all
        result = subprocess.run(["zstd", "-dcq"], input=bz_image[found.start() :], capture_output=True, check=False)
        if result.stdout.startswith(b"\x7fELF"):
            return result.stdout
    raise NotAvailableError("the kernel image holds no zstd stream with an ELF file")


def _take_modules(root: Path, release: str, target: Path) -> None:
    """Copy the needed modules, unpacked (busybox insmod reads no .xz), numbered in the order to load them."""
    _run(["/usr/sbin/depmod", "-b", str(root), release], "depmod failed")
    order: list[str] = []
    for module in MODULES:
        command = ["/usr/sbin/modprobe", "-d", str(root), "-S", release, "--show-depends", module]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        order += [line.split()[1] for line in lines if line.startswith("insmod")]
    (target / "modules").mkdir()
    for number, name in enumerate(dict.fromkeys(order)):
        packed = subprocess.run(["xz", "-dc", name], capture_output=True, check=True).stdout
        (target / "modules" / f"{number:02}-{Path(name).name.removesuffix('.xz')}").write_bytes(packed)


def _initramfs(folder: Path) -> Path:
    """Pack busybox, the modules and our init. Made anew each time: it takes 50 ms and init may have changed."""
    target = folder / f"initramfs-{os.getpid()}"
    with tempfile.TemporaryDirectory() as tree_name:
        tree = Path(tree_name)
        (tree / "bin").mkdir()
        shutil.copy(_which("busybox") or "", tree / "bin/busybox")
        shutil.copytree(folder / "modules", tree / "modules")
        shutil.copy(_INIT, tree / "init")
        (tree / "init").chmod(0o755)
        (tree / "bin/sh").symlink_to("busybox")
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        packed = subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(), capture_output=True, check=True
        )
    target.write_bytes(packed.stdout)
    return target


def _run(command: list[str], problem: str, cwd: Path | None = None) -> None:
    result = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    if result.returncode:
        raise NotAvailableError(f"{problem}: {' '.join(command)}: {result.stderr.strip()}")
