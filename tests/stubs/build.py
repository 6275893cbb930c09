"""Build stand-ins for the CUDA libraries, so that torch's CUDA wheel imports on a machine without GPU and CUDA.

    python tests/stubs/build.py [--site FOLDER]

torch's CUDA wheel carries the real caching allocator but needs some fifteen libraries (several GB of wheels) before
`import torch` works. This builds small ones with gcc, needs no CUDA headers, and puts them where torch's own RPATH
looks (`nvidia/cu13/lib` beside it), so no environment variable is needed. Without a configured pretend card
`torch.cuda.is_available()` is False. NVIDIA's own libraries, where installed, are never touched.

Exit status: 0 built, up to date or not needed; 1 it cannot be built here (the reason is printed).
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from needs import Need, cuda_needs, torch_files

SOURCES = Path(__file__).parent / "csrc"
STAMP = "oomguard-stubs.stamp"
CFLAGS = ("-std=gnu11", "-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-fvisibility=hidden")
UNWRITTEN = {"cudart": 801, "cuda": 801, "nvidia-ml": 3, "cublas": 0, "cublasLt": 0}
"""What functions answer that are not written by hand: "not supported", or success where nothing is computed."""
UNWRITTEN_ELSEWHERE = 1  # an error in every library of NVIDIA's
LATE = ("libnvidia-ml.so.1",)  # opened by name at run time, so no ELF file names them


class CannotBuildError(Exception):
    """The stubs cannot be built here; the text says what to do."""


def _loadable(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def _stamp(files: Iterable[Path]) -> str:
    """Everything the result depends on: our sources, and which torch libraries (size, time of change)."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for source in sorted((*SOURCES.glob("*/*"), here / "build.py", here / "needs.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    for path in files:
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _foreign(site: Path, target: Path) -> list[Path]:
    """CUDA libraries that somebody else installed beside torch."""
    if (target / STAMP).exists():
        return []
    return sorted(site.glob("nvidia/*/lib/lib*.so*"))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuildError(f"{' '.join(command)} failed:\n{done.stderr}")


def _exported(object_file: Path) -> set[str]:
    listing = subprocess.run(
        ("nm", "-g", "--defined-only", str(object_file)), check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1] for line in listing.splitlines() if line.strip()}


def _compile(stem: str, work: Path) -> list[Path]:
    """Compile the hand-written part of a library, if there is one, with the cards that all of them share."""
    own = sorted((SOURCES / stem).glob("*.c"))
    objects = []
    for source in (*own, SOURCES / "card" / "card.c") if own else ():
        compiled = work / f"{stem}-{source.stem}.o"
        _run("gcc", *CFLAGS, "-c", str(source), "-o", str(compiled))
        objects.append(compiled)
    return objects


def _link(need: Need, work: Path, target: Path) -> None:
    """One library: its hand-written part, and a fixed answer for every other symbol that torch wants."""
    stem = need.soname.split(".")[0].removeprefix("lib")
    objects = _compile(stem, work)
    written = {name for compiled in objects for name in _exported(compiled)}
    answer = UNWRITTEN.get(stem, UNWRITTEN_ELSEWHERE)
    rest = work / f"{stem}-rest.c"
    exported = '__attribute__((visibility("default")))'
    names = sorted(need.symbols - written)
    rest.write_text("".join(f"{exported} int {name}(void) {{ return {answer}; }}\n" for name in names))
    flags = [f"-Wl,-soname,{need.soname}"]
    if need.version:
        script = work / f"{stem}.map"
        script.write_text(f"{need.version} {{ global: *; }};\n")
        flags.append(f"-Wl,--version-script={script}")
    built = target / f".{need.soname}"
    _run("gcc", *CFLAGS, "-shared", *flags, *map(str, objects), str(rest), "-o", str(built), "-lpthread")
    built.rename(target / need.soname)  # a process that has the old one mapped keeps it


def build(site: Path) -> str:
    """Build what torch below `site` lacks, once.

    Returns:
        One sentence on what was done.

    Raises:
        CannotBuildError: no torch, no compiler, or a real NVIDIA driver on this machine.
    """
    files = torch_files(site)
    if not files:
        raise CannotBuildError(f"no torch below {site}")
    target = site / "nvidia" / "cu13" / "lib"
    if foreign := _foreign(site, target):
        return f"NVIDIA's own libraries are installed ({foreign[0].relative_to(site)}, ...): left alone"
    stamp = _stamp(files)
    if (target / STAMP).exists() and (target / STAMP).read_text() == stamp:
        return f"CUDA stubs in {target} are up to date"
    if missing := [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]:
        raise CannotBuildError(f"{', '.join(missing)} not found: install gcc and binutils")
    if _loadable("libcuda.so.1"):
        raise CannotBuildError("this machine has an NVIDIA driver: install torch together with its CUDA wheels")
    needs = dict(cuda_needs(files))
    for soname in LATE:
        needs.setdefault(soname, Need(soname))
    target.mkdir(parents=True, exist_ok=True)
    (target / STAMP).write_text("incomplete\n")
    with tempfile.TemporaryDirectory() as work:
        for need in needs.values():
            _link(need, Path(work), target)
    (target / STAMP).write_text(stamp)
    return f"built {len(needs)} CUDA stubs in {target}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--site", type=Path, default=Path(sysconfig.get_path("platlib")), help="site-packages of torch")
    arguments = parser.parse_args()
    try:
        print(build(arguments.site))  # noqa: T201 - a command speaks to people
    except CannotBuildError as error:
        print(f"tests/stubs: {error}", file=sys.stderr)  # noqa: T201 - same
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
