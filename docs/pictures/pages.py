"""Screenshots of a report and of the site, light and dark: python docs/pictures/pages.py RUN

Needs Chromium and Pillow, and the site as `./dev site` leaves it. Writes report.png, report-dark.png,
site.png and site-dark.png beside this file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from weft.report import page, read_run

HERE = Path(__file__).parent
SITE = HERE.parent.parent / "build/site"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars "
    "--disable-dev-shm-usage --disable-component-update --disable-sync"
)


def shot(url: str, out: Path, width: int, height: int, dark: bool, top: int = 0) -> None:
    """What a browser shows of a page, from `top` on, in few colours: a picture of some 100 kB."""
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed")
    told = ["--blink-settings=preferredColorScheme=0"] if dark else []
    with tempfile.TemporaryDirectory() as home:
        made = Path(home, "shot.png")
        subprocess.run(
            [chromium, *FLAGS.split(), *told, f"--user-data-dir={home}/profile",
             f"--window-size={width},{top + height}", f"--screenshot={made}", url],
            check=True, capture_output=True, timeout=120, env={"HOME": home, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        picture = Image.open(made).convert("RGB").crop((0, top, width, top + height))
        few = picture.quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(out, optimize=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.html")
        report.write_text(page([read_run(Path(sys.argv[1]))]), encoding="utf-8")
        shot(report.as_uri(), HERE / "report.png", 1000, 1400, dark=False)
        shot(report.as_uri(), HERE / "report-dark.png", 1000, 1500, dark=True, top=1660)
    shot((SITE / "index.html").as_uri(), HERE / "site.png", 1280, 800, dark=False)
    shot((SITE / "algorithms/halo.html").as_uri(), HERE / "site-dark.png", 1280, 800, dark=True)


if __name__ == "__main__":
    main()
