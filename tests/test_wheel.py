"""The wheel: it holds all that weft needs, and trains where there is no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRAIN = """import sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
import weft, weft.kernels.native as native
from weft.cli import main
assert weft.__file__.startswith(sys.argv[1]), weft.__file__
assert native.extension is not None, "the C++ kernels are not in it"
sys.exit(main(["train", "karate", "--ranks", "1", "--epochs", "20", "--out", "run"]))
"""


@pytest.mark.slow
def test_a_wheel_has_everything_in_it_and_trains_without_a_compiler(tmp_path):
    """Unpacked into an empty folder; torch and numpy come from here, the editable weft does not."""
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed: ./dev does it")
    if not (ROOT / "build").is_dir():
        pytest.skip("weft was not built in this folder: a wheel would take minutes")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-build-isolation", "-w", str(tmp_path), str(ROOT)],
        check=True, env=os.environ | {"PATH": path},
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    here, empty = tmp_path / "here", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(here)
    assert "weft/py.typed" in names
    assert "weft/report/style.css" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    # -S: no .pth, so that no editable installation gets in the way.
    done = subprocess.run(
        [sys.executable, "-S", "-c", TRAIN, str(here), sysconfig.get_path("purelib")],
        capture_output=True, text=True, cwd=empty,
        env={"PATH": str(empty), "HOME": str(empty), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "C++ kernels" in done.stdout
    assert "accuracy  train 1.0000" in done.stdout
