"""What the system lets this process take: control groups, as Slurm, systemd and containers set them.

A group's limit is for it and all below it, so every group above this process counts.

    version 2   /sys/fs/cgroup/PATH          memory.max, memory.current, memory.stat
    version 1   /sys/fs/cgroup/memory/PATH   memory.limit_in_bytes, memory.usage_in_bytes, memory.stat

PATH stands in /proc/self/cgroup. Inside a container it may be that of the host, which is not seen there: then
the top of what is mounted is the container's own group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MOUNTED = Path("/sys/fs/cgroup")
_SAID = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Limit:
    """What a group may take, and what it has left of it, bytes."""

    most: int
    left: int


def own_limits() -> list[Limit]:
    """The limits that hold for this process; none where the system sets or tells none."""
    try:
        said = _SAID.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return list(limits(said, _MOUNTED))


def limits(said: str, mounted: Path) -> Iterator[Limit]:
    """The limits of the groups that `said`, a /proc/PID/cgroup, names, and of those above them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     group = Path(folder) / "job_7"
    ...     group.mkdir()
    ...     _ = (group / "memory.max").write_text("1000\\n")
    ...     _ = (group / "memory.current").write_text("700\\n")
    ...     _ = (group / "memory.stat").write_text("anon 300\\ninactive_file 400\\n")
    ...     list(limits("0::/job_7/step_0\\n", Path(folder)))
    [Limit(most=1000, left=700)]
    """
    for line in said.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _above(mounted, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            yield from _above(
                mounted / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                "total_inactive_file",
            )  # fmt: skip


def _above(mounted: Path, path: str, most: str, used: str, cache: str) -> Iterator[Limit]:
    inside = PurePosixPath(path.lstrip("/"))
    if ".." in inside.parts:  # a group beside the container's own
        inside = PurePosixPath()
    for group in (inside, *inside.parents) if inside.parts else (inside,):
        folder = mounted / group
        limit = _number(folder / most)
        if limit is None:
            continue
        taken = _number(folder / used) or 0
        # Pages of files that nobody has used for a while are given back before anybody is refused.
        yield Limit(limit, max(0, limit - max(0, taken - _line(folder / "memory.stat", cache))))


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", and where there is no such file."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _line(path: Path, key: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    except (OSError, ValueError):
        pass
    return 0
