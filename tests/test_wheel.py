"""The wheel: it holds all that weft needs, installs without an index, and trains without a compiler."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRAIN = """import runpy, sys
import weft
import weft.kernels.native as native
assert weft.__file__.startswith(sys.prefix), weft.__file__
assert native.extension is not None, "the C++ kernels are not in it"
sys.argv = ["weft", "train", "karate", "--ranks", "1", "--epochs", "20", "--out", "run"]
runpy.run_path(f"{sys.prefix}/bin/weft", run_name="__main__")
"""


@pytest.mark.slow
def test_a_wheel_installs_into_an_empty_environment_and_trains_without_a_compiler(tmp_path):
    """Made as `./dev wheel` makes it; pip puts it into a fresh environment, without an index or dependencies.

    torch, numpy and the like come from here, by a path file: the editable weft beside them does not.
    """
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed: ./dev does it")
    if not any((ROOT / "build").glob("cp3*")):  # a site in there is no build
        pytest.skip("weft was not built in this folder: a wheel would take minutes")
    wheel = repaired(built(tmp_path / "made"), tmp_path / "dist")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert "weft/py.typed" in names
    assert "weft/report/style.css" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    trains(wheel, tmp_path / "fresh")


def test_a_source_distribution_holds_what_a_build_needs_and_nothing_else(tmp_path):
    """Where no wheel fits, pip builds from this."""
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed: ./dev does it")
    make = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    run([sys.executable, "-c", make, tmp_path], cwd=ROOT)
    (packed,) = tmp_path.glob("weft-*.tar.gz")
    with tarfile.open(packed) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "PKG-INFO"} <= names
    for pattern in ("*.py", "*.cpp", "*.h", "*.css", "py.typed"):
        needed = {str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob(pattern)}
        assert needed, pattern
        assert needed <= names, pattern
    rooms = {name.partition("/")[0] for name in names if "/" in name}
    assert rooms == {"src"}
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def built(folder: Path) -> Path:
    """What has been compiled already is not compiled again."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-build-isolation", "-w", folder, ROOT],
        env=os.environ | {"PATH": path},
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    return wheel


def repaired(wheel: Path, folder: Path) -> Path:
    """Tagged for every Linux that has these libraries, where auditwheel is installed; else as it is."""
    if not sys.platform.startswith("linux") or importlib.util.find_spec("auditwheel") is None:
        return wheel
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run([sys.executable, "-m", "auditwheel", "repair", "-w", folder, wheel], env=os.environ | {"PATH": path})
    (wheel,) = folder.glob("*.whl")
    assert "-manylinux_" in wheel.name
    with zipfile.ZipFile(wheel) as file:  # nothing of the system had to be copied into it
        assert not [name for name in file.namelist() if "weft.libs" in name]
    return wheel


def trains(wheel: Path, fresh: Path) -> None:
    """Into a fresh environment, and one short run there: nothing but that environment is on the path."""
    run([sys.executable, "-m", "venv", "--without-pip", fresh])
    only = {"PATH": str(fresh / "bin"), "HOME": str(fresh), "OMP_NUM_THREADS": "1"}
    run(
        [sys.executable, "-m", "pip", "--python", fresh / "bin/python", "--disable-pip-version-check",
         "install", "--quiet", "--no-deps", "--no-index", "--no-cache-dir", wheel],
        env=only,
    )  # fmt: skip
    (packages,) = fresh.glob("lib/python*/site-packages")
    assert (packages / "weft").is_dir()
    # After the installation, or pip would find the editable weft. Path files of that folder are not read.
    (packages / "others.pth").write_text("".join(f"{folder}\n" for folder in homes()))
    done = run([fresh / "bin/python", "-c", TRAIN], env=only, cwd=fresh)
    assert "C++ kernels" in done.stdout
    assert "accuracy  train 1.0000" in done.stdout


def homes() -> list[str]:
    """The folders of what weft needs."""
    found = [importlib.util.find_spec(name) for name in ("torch", "numpy", "pyarrow", "rich")]
    return sorted({str(Path(spec.origin).parents[1]) for spec in found if spec and spec.origin})


def run(words: list, **more) -> subprocess.CompletedProcess:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
