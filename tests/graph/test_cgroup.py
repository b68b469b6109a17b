"""Limits of control groups, out of files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.graph import cgroup
from weft.graph.cgroup import Limit, limits, own_limits

TWO = ("memory.max", "memory.current", "inactive_file")
ONE = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def group(path: Path, names: tuple[str, str, str], most: object, used: object = None, idle: int = 0) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / names[0]).write_text(f"{most}\n")
    if used is not None:
        (path / names[1]).write_text(f"{used}\n")
        (path / "memory.stat").write_text(f"anon 5\nfile 9\n{names[2]} {idle}\nactive_file 7\n")


def test_every_group_above_counts_and_idle_pages_of_files_are_free(tmp_path: Path) -> None:
    group(tmp_path / "slurm" / "job_1" / "step_0", TWO, "max", 40)
    group(tmp_path / "slurm" / "job_1", TWO, 1000, 640, 240)
    group(tmp_path / "slurm", TWO, 5000, 4900)
    assert list(limits("0::/slurm/job_1/step_0\n", tmp_path)) == [Limit(1000, 600), Limit(5000, 100)]
    # The group of the process is not there, those above it are.
    assert next(limits("0::/slurm/job_1/step_9/task_0\n", tmp_path)) == Limit(1000, 600)


def test_in_a_container_the_top_is_its_own_group(tmp_path: Path) -> None:
    group(tmp_path, TWO, 2000, 500)
    for said in ("0::/", "0::/docker/4f2a", "0::/../other"):
        assert list(limits(said, tmp_path)) == [Limit(2000, 1500)]


def test_version_one_has_a_folder_for_memory(tmp_path: Path) -> None:
    group(tmp_path / "memory" / "slurm" / "job_1", ONE, 3000, 1200, 200)
    group(tmp_path / "memory", ONE, 9223372036854771712, 1)
    said = "12:cpu,cpuacct:/slurm/job_1\n9:memory:/slurm/job_1\n1:name=systemd:/x\n0::/slurm/job_1\n"
    assert list(limits(said, tmp_path)) == [
        Limit(3000, 2000),
        Limit(9223372036854771712, 9223372036854771711),
    ]


@pytest.mark.parametrize("said", ["", "0::/a\n", "nonsense", "9:memory:/a\n", "::\n"])
def test_where_nothing_is_told_there_is_no_limit(tmp_path: Path, said: str) -> None:
    assert list(limits(said, tmp_path)) == []
    (tmp_path / "memory.max").write_text("many\n")
    assert list(limits(said, tmp_path)) == []


def test_what_is_over_its_limit_has_nothing_left_and_what_is_not_told_is_not_taken(tmp_path: Path) -> None:
    group(tmp_path, TWO, 100, 180)
    assert list(limits("0::/", tmp_path)) == [Limit(100, 0)]
    (tmp_path / "memory.current").unlink()
    assert list(limits("0::/", tmp_path)) == [Limit(100, 100)]


def test_this_process_is_asked_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_MOUNTED", tmp_path)
    monkeypatch.setattr(cgroup, "_SAID", tmp_path / "said")
    assert own_limits() == []
    group(tmp_path / "me", TWO, 77)
    (tmp_path / "said").write_text("0::/me\n")
    assert own_limits() == [Limit(77, 77)]
