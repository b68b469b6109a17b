"""Colours by day and by night, and the page's style sheet."""

from __future__ import annotations

from pathlib import Path

LIGHT = {
    "paper": "#f7f6f3", "surface": "#ffffff", "ink": "#1c2130", "muted": "#5a6273", "line": "#e2dfd8",
    "accent": "#2459a9", "heat": "#1f4e98", "over": "#ffffff", "warn": "#8a4b00", "warn-paper": "#fdf3e1",
    "s1": "#2a63b8", "s2": "#c2560c", "s3": "#0e7c70", "s4": "#7a4cb8", "s5": "#b3263f", "s6": "#66750f",
    "s7": "#0b6f9c", "s8": "#9a3f86",
    "s9": "#8a6a00", "s10": "#3f8f3a", "s11": "#d0578a", "s12": "#4a5a8c",
    "calm": "#a9aeb8", "calmer": "#d4d6da",
}  # fmt: skip
DARK = {
    "paper": "#12151c", "surface": "#1a1f29", "ink": "#e7e9ee", "muted": "#a0a8b8", "line": "#2f3642",
    "accent": "#8ab8ff", "heat": "#7fb2ff", "over": "#0e1420", "warn": "#ffcf87", "warn-paper": "#33280f",
    "s1": "#79aef7", "s2": "#f3a05c", "s3": "#4fcdbb", "s4": "#c1a2f5", "s5": "#f58a97", "s6": "#c3cf5c",
    "s7": "#63c6ee", "s8": "#eb9ad9",
    "s9": "#e3c15a", "s10": "#8fd48a", "s11": "#ff9dc0", "s12": "#a5b4e6",
    "calm": "#6d7686", "calmer": "#434b59",
}  # fmt: skip


def style_sheet() -> str:
    """Day by default, night where the system asks for it, and either where the reader does: no script."""

    def named(colours: dict[str, str]) -> str:
        return "".join(f"--{name}:{value};" for name, value in colours.items())

    night = f"color-scheme:dark;{named(DARK)}"
    rest = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    series = "".join(
        f".{name}{{stroke:var(--{name})}}.fill.{name},.dot.{name}{{fill:var(--{name})}}"
        for name in LIGHT
        if name[1:].isdigit()
    )
    return (
        f":root{{color-scheme:light;{named(LIGHT)}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not(:has(#day:checked)){{{night}}}}}\n"
        f":root:has(#night:checked){{{night}}}\n{series}\n{rest}"
    )
