"""Make the trees of synthetic/ from recorded ones: `python -m tests.recorded.derive`. Each is named by its defect."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
V1: Final = "k6.18-hybrid-limited"
V2: Final = "k6.12-v2-limited"
NESTED_V2: Final = "k6.12-v2-nested"


class Tree:
    """A copy of a recorded tree, to be damaged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.own = self.groups()[0]

    def groups(self) -> list[Path]:
        """The directories of the lab's groups in the memory hierarchy, outermost first."""
        return sorted(path for path in self.root.glob("sys/fs/cgroup/**/og-lab-*") if path.parent.name != "unified")

    def edit(self, path: str | Path, change: Callable[[str], str]) -> None:
        """Rewrite one file."""
        file = self.root / path
        file.write_text(change(file.read_text()))

    def lines(self, path: str | Path, keep: Callable[[str], bool]) -> None:
        """Keep some lines of a file."""
        self.edit(path, lambda text: "".join(line for line in text.splitlines(keepends=True) if keep(line)))


def psi_disabled(tree: Tree) -> None:
    """A kernel with psi=0: no cgroup has pressure files (V2)."""
    for file in tree.root.rglob("*.pressure"):
        file.unlink()
    shutil.rmtree(tree.root / "proc/pressure")


def v1_unlimited_page_rounded(tree: Tree) -> None:
    """No limit as a kernel with 64 KiB pages prints it (V1)."""
    (tree.own / "memory.limit_in_bytes").write_text("9223372036854710272\n")


def v1_before_4_13(tree: Tree) -> None:
    """No count of kills, no shmem line, no v2 tree beside (V1)."""
    tree.lines(tree.own / "memory.oom_control", lambda line: not line.startswith("oom_kill "))
    tree.lines(tree.own / "memory.stat", lambda line: "shmem" not in line and "workingset" not in line)
    tree.lines("proc/self/mountinfo", lambda line: "cgroup2" not in line)
    tree.lines("proc/self/cgroup", lambda line: not line.startswith("0::"))
    shutil.rmtree(tree.root / "sys/fs/cgroup/unified")


def memory_max_missing(tree: Tree) -> None:
    """A level with usage whose limit file is not there (V2)."""
    (tree.own / "memory.max").unlink()


def memory_max_cut(tree: Tree) -> None:
    """A limit without its last digits: must not be taken for a smaller one (V2)."""
    tree.edit(tree.own / "memory.max", lambda text: text[:-4])


def stat_cut(tree: Tree) -> None:
    """A memory.stat that ends in the middle of a number (V2)."""
    tree.edit(tree.own / "memory.stat", lambda text: text[: text.index("inactive_file") + 15])


def v2_before_5_2(tree: Tree) -> None:
    """No kernel line, no peak, no events.local (V2)."""
    tree.lines(tree.own / "memory.stat", lambda line: line.split()[0] not in ("kernel", "percpu", "vmalloc"))
    (tree.own / "memory.peak").unlink()
    (tree.own / "memory.events.local").unlink()


def no_cgroup_mount(tree: Tree) -> None:
    """A container without /sys/fs/cgroup (V2)."""
    tree.lines("proc/self/mountinfo", lambda line: " cgroup" not in line)
    shutil.rmtree(tree.root / "sys")


def moved_out_of_the_namespace(tree: Tree) -> None:
    """A process whose group lies beside the root of its namespace (V2)."""
    tree.edit("proc/self/cgroup", lambda _: "0::/../elsewhere\n")


def lxcfs(tree: Tree) -> None:
    """LXCFS serves /proc/meminfo (V2)."""
    mount = "99 48 0:77 /proc/meminfo /proc/meminfo rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0\n"
    tree.edit("proc/self/mountinfo", lambda text: text + mount)


def nested_cgroupns(tree: Tree) -> None:
    """A namespace whose root is the limited group: the parent is seen, the real root is not (NESTED_V2)."""
    moved = tree.root / "sys/fs/moved"
    tree.own.rename(moved)
    shutil.rmtree(tree.root / "sys/fs/cgroup")
    moved.rename(tree.root / "sys/fs/cgroup")
    tree.edit("proc/self/cgroup", lambda _: "0::/leaf\n")


DERIVED: Final = {
    psi_disabled: V2,
    v1_unlimited_page_rounded: V1,
    v1_before_4_13: V1,
    memory_max_missing: V2,
    memory_max_cut: V2,
    stat_cut: V2,
    v2_before_5_2: V2,
    no_cgroup_mount: V2,
    moved_out_of_the_namespace: V2,
    lxcfs: V2,
    nested_cgroupns: NESTED_V2,
}


def main() -> None:
    """Make all of them anew; expected.json of each stays."""
    for damage, source in DERIVED.items():
        name = damage.__name__.replace("_", "-")
        root = HERE / "synthetic" / name
        expected = (root / "expected.json").read_text() if (root / "expected.json").exists() else ""
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(HERE / source, root)
        (root / "expected.json").write_text(expected)
        damage(Tree(root))
        with (root / "origin.toml").open("a") as origin:
            about = (damage.__doc__ or "").rpartition(" (")[0]
            origin.write(f'\n[derived]\nfrom = "{source}"\nchange = "{about}"\n')
        sys.stdout.write(f"{root}\n")


if __name__ == "__main__":
    main()
