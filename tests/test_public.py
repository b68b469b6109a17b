from __future__ import annotations

import subprocess
import sys

import pytest

import weft


def test_every_public_name_is_there():
    for name in weft.__all__:
        assert getattr(weft, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        weft.Grpah  # noqa: B018
    assert dir(weft) == sorted([*weft.__all__, "__version__"])


def test_importing_weft_does_not_load_torch():
    code = "import sys, weft, weft.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
