"""The check that `guard` and `sidecar` are ours, on real installs made by hand in a folder."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar import distribution

ASK = "from sidecar import distribution as d; print(d.complaint(d.imported_packages()))"


def install(site: Path, name: str, packages: dict[str, str]) -> None:
    """Make an installed distribution: packages of one file, metadata and RECORD with hashes."""
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = [f"{info.name}/METADATA,,", f"{info.name}/RECORD,,"]
    for package, source in packages.items():
        file = site / package / "__init__.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
        digest = base64.urlsafe_b64encode(hashlib.sha256(source.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{package}/__init__.py,sha256={digest},{len(source)}")
    (info / "RECORD").write_text("\n".join(lines) + "\n")


def ask(site: Path, script: str = ASK) -> str:
    """Ask a fresh interpreter that imports from this folder alone."""
    checker = site / "sidecar" / "distribution.py"
    checker.write_text(Path(distribution.__file__).read_text())
    # -S keeps this environment's own packages away; the real checker is copied beside the fake packages.
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=site,
    )
    return done.stdout.strip()


def test_an_ordinary_install_is_ours(tmp_path: Path) -> None:
    """Files that match RECORD raise no complaint."""
    install(tmp_path, "oomguard", {"guard": "A = 1\n", "sidecar": "B = 1\n"})
    assert ask(tmp_path) == "None"


@pytest.mark.parametrize("package", ["guard", "sidecar"])
def test_an_overwritten_package_names_the_other_claimant(tmp_path: Path, package: str) -> None:
    """A stranger that was installed over one of the packages is named, with the way out."""
    install(tmp_path, "oomguard", {"guard": "A = 1\n", "sidecar": "B = 1\n"})
    install(tmp_path, "stranger", {package: "C = 2\n"})
    said = ask(tmp_path)
    assert package in said
    assert "the distribution stranger claims it" in said
    assert "pip install --force-reinstall oomguard" in said


def test_a_shadowing_folder_is_named(tmp_path: Path) -> None:
    """A package found in another folder than the installed one is a complaint."""
    install(tmp_path / "site", "oomguard", {"guard": "A = 1\n", "sidecar": "B = 1\n"})
    shadow = tmp_path / "site" / "shadow" / "guard" / "__init__.py"
    shadow.parent.mkdir(parents=True)
    shadow.write_text("")
    said = ask(tmp_path / "site", f"import sys; sys.path.insert(0, {str(shadow.parent.parent)!r}); {ASK}")
    assert str(shadow.parent) in said


def test_this_checkout_is_ours() -> None:
    """The packages under test, editable or from PYTHONPATH, raise no complaint."""
    assert distribution.complaint(distribution.imported_packages()) is None


def test_packages_from_two_places_without_metadata(tmp_path: Path) -> None:
    """Without an installed distribution, two different places are a complaint."""
    for name in ("guard", "sidecar"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / name / "__init__.py").write_text("")
    (tmp_path / "sidecar" / "sidecar" / "distribution.py").write_text(Path(distribution.__file__).read_text())
    paths = [str(tmp_path / "guard"), str(tmp_path / "sidecar")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {paths!r}; {ASK}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "different places" in done.stdout
