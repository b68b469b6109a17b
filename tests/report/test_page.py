"""The page: what is on it, of whole runs, of damaged ones, of several; and in a real browser."""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from weft import __version__
from weft.report import page, read_run
from weft.report.html import tiles
from weft.report.style import DARK, LIGHT

from .folders import trained, written

VOID = {"meta", "input", "br", "path", "circle", "rect", "link", "img"}


class Reader(html.parser.HTMLParser):
    """Checks that tags are closed in order; keeps ids, links, attributes, headings and cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: dict[str, list[str]] = {"h3": [], "h4": [], "th": [], "td": [], "li": [], "caption": []}

    def handle_starttag(self, tag, attrs):
        self.seen[tag] += 1
        self.attributes += attrs
        named = dict(attrs)
        self.ids += [named["id"]] if "id" in named else []
        self.links += [named["href"]] if "href" in named else []
        if tag not in VOID:
            self.open.append(tag)
        if tag in self.words:
            self.words[tag].append("")

    def handle_startendtag(self, tag, attrs):
        self.seen[tag] += 1
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.words:
            if tag in self.open:
                self.words[tag][-1] += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    for link in reader.links:
        assert link.startswith("#"), link
        assert link[1:] in reader.ids, link
    return reader


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "mine")


def test_a_run_has_every_section_and_its_numbers_stand_in_tables(run):
    seen = read(page([read_run(run)]))
    sections = ["Curves", "Scores", "Where the time went", "Time line", "Messages", "Balance", "Settings"]
    assert seen.words["h3"] == sections
    cards = {"Loss", "Accuracy", "Who was taken for whom", "One epoch in time", "Who sent how much to whom"}
    cards |= {"Predicted and measured", "Vertices", "Arcs", "Memory, at most"}
    assert cards <= set(seen.words["h4"])
    cells = seen.words["td"] + seen.words["th"]
    measured = json.loads((run / "measured.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    assert f"{summary['test_accuracy']:.4f}" in cells
    for phase, words in measured["words"].items():
        assert phase in cells
        assert f"{sum(words):,}" in cells
    assert "as predicted" in cells
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"{last['val_accuracy']:.4f}" in cells


def test_the_map_of_messages_adds_up_to_what_every_rank_received(run):
    measured = json.loads((run / "measured.json").read_text())
    for rank, row in enumerate(measured["received"]):
        assert sum(words for _, words, _ in row) == sum(words[rank] for words in measured["words"].values())
        assert rank not in [sender for sender, _, _ in row]
    assert sum(measured["vertices"]) == 160
    confusion = measured["details"]["confusion"]
    summary = json.loads((run / "summary.json").read_text())
    right = sum(confusion[i][i] for i in range(len(confusion)))
    assert right / sum(map(sum, confusion)) == pytest.approx(summary["test_accuracy"])


def test_the_page_is_self_contained_and_runs_no_script(run):
    text = page([read_run(run)])
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|<script|url\(|@import|javascript:", text)
    seen = read(text)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "src"]
    assert seen.seen["svg"] > 5


def test_keyboard_and_screen_readers_find_their_way(run):
    text = page([read_run(run)])
    seen = read(text)
    assert text.index('class="skip" href="#main"') < text.index("<header")
    assert seen.seen["caption"] == seen.seen["table"] > 3
    pictures = re.findall(r"<svg class=\"chart[^>]*>", text)
    assert pictures
    assert all('role="img" aria-label="' in picture for picture in pictures)
    assert text.count('class="scroll') == text.count('tabindex="0" role="region"')


def test_a_run_on_one_rank_has_no_map_and_no_balance(tmp_path):
    seen = read(page([read_run(trained(tmp_path / "alone", ranks=1))]))
    assert "Who sent how much to whom" not in seen.words["h4"]
    assert "Balance" not in seen.words["h3"]
    assert "Where the time went" in seen.words["h3"]


def test_a_run_that_died_shows_its_curve_and_says_so(tmp_path):
    died = written(tmp_path / "died", records=7)
    with (died / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 8, "lo')  # the line that it died in
    seen = read(page([read_run(died)]))
    notes = seen.words["li"]
    assert any("died in epoch 8, resumable from the beginning" in note for note in notes)
    assert any("no measured.json" in note for note in notes)
    assert seen.words["h3"] == ["Curves", "Settings"]
    assert "Loss" in seen.words["h4"]


def test_a_run_that_died_shows_the_scores_and_the_memory_that_its_epochs_tell(tmp_path):
    died = written(tmp_path / "died")
    scored = {"epoch": 1, "loss": 1.4, "val_loss": 1.5, "val_accuracy": 0.25, "test_accuracy": 0.5}
    lines = [scored | {"rss_bytes": 3_000_000}, {"epoch": 2, "loss": 0.94, "rss_bytes": 2_000_000}]
    (died / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    text = page([read_run(died)])
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert (tiles["Test accuracy"], tiles["Memory, at most"]) == ("0.5000", "3 MB")
    assert "when last measured" in text
    assert "of rank 0" in text
    compared = read(page([read_run(died), read_run(written(tmp_path / "young", 1))]))
    assert {"0.2500", "0.5000", "3 MB, rank 0"} <= set(compared.words["td"])


def test_losses_have_as_many_places_as_the_scores_beside_them(tmp_path):
    made = written(tmp_path / "run")
    values = [{"epoch": 1, "loss": 1.4, "val_loss": 1.31}, {"epoch": 2, "loss": 0.94, "val_loss": 0.859}]
    (made / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in values))
    cells = read(page([read_run(made)])).words["td"]
    assert {"1.4000", "1.3100", "0.9400", "0.8590"} <= set(cells)
    assert not {"1.4", "0.94"} & set(cells)


def test_one_rank_waits_for_nobody(tmp_path):
    measured = {"time": {"spmm": [0.02], "waiting": [0.0], "other": [0.01]}, "ranks": 1}
    words = read(page([read_run(written(tmp_path / "alone", 2, measured=measured))])).words
    assert "SpMM" in words["td"] + words["th"]
    assert "waiting" not in " ".join(words["td"] + words["th"]).lower()


def test_settings_that_differ_are_told_as_in_a_runs_own_table(tmp_path):
    runs = [
        written(
            tmp_path / name, 2, config=f'[data]\ngraph = "karate"\n[parallel]\nmove_adjacency = {value}\n'
        )
        for name, value in (("a", "true"), ("b", "false"))
    ]
    cells = read(page([read_run(run) for run in runs])).words["td"]
    assert {"yes", "no"} <= set(cells)
    assert not {"True", "False"} & set(cells)


def test_a_run_that_died_after_its_second_epoch_has_its_time_line(run, tmp_path):
    shutil.copytree(run, tmp_path / "died")
    for name in ("summary.json", "weights.pt"):
        (tmp_path / "died" / name).unlink()
    seen = read(page([read_run(tmp_path / "died")]))
    assert {"Time line", "Messages", "Balance"} <= set(seen.words["h3"])


def test_a_run_before_its_first_epoch_is_shown(tmp_path):
    seen = read(page([read_run(written(tmp_path / "young"))]))
    assert any("No epoch was recorded" in note for note in seen.words["li"])


@pytest.mark.parametrize(
    ("version", "said"), [("9.9", "made by weft 9.9"), (None, "does not say which weft"), (__version__, "")]
)
def test_a_run_of_another_version_says_so_and_shows_what_both_know(tmp_path, version, said):
    summary = {"test_accuracy": 0.5, "best_epoch": 2, "unheard_of": [1]} | (
        {"version": version} if version else {}
    )
    config = '[data]\ngraph = "karate"\n[train]\nmagic = 3\n'
    other = written(tmp_path / "other", 3, summary=summary, config=config, measured={"epoch": 2})
    seen = read(page([read_run(other)]))
    assert any(said in note for note in seen.words["li"]) if said else True
    assert any("does not know the settings train.magic" in note for note in seen.words["li"])
    assert "0.5000" in seen.words["td"]
    assert ("version" in " ".join(seen.words["li"])) == (version is None)


ODD = [
    {"time": 3}, {"time": {"spmm": []}}, {"received": [[1]], "words": {"grad": [1]}},
    {"timeline": {"seconds": 1, "events": [[["spmm"]]]}}, {"timeline": {"seconds": "x", "events": [[1]]}},
    {"details": {"kind": "classes", "split": "test", "confusion": [[1, 2], [3]]}},
    {"details": {"kind": "links", "split": "test", "roc": [3]}}, {"details": []}, {"received": 7},
    {"words": {"a": [1, 2], "b": [3]}, "predicted_words": {"a": "x"}}, {"vertices": [None, 1]},
    {"received": [[]] * 5000},
]  # fmt: skip


@pytest.mark.parametrize("measured", ODD)
def test_a_file_that_somebody_changed_costs_a_section_and_no_more(tmp_path, measured):
    seen = read(page([read_run(written(tmp_path / "odd", 3, measured=measured, summary={}))]))
    assert "Curves" in seen.words["h3"]


@pytest.mark.parametrize("name", ["measured.json", "summary.json", "metrics.jsonl", "config.toml"])
def test_a_damaged_file_is_left_out(tmp_path, name):
    damaged = written(tmp_path / "damaged", 3, summary={}, measured={})
    (damaged / name).write_bytes(b"\xff{[" * 1000)
    seen = read(page([read_run(damaged)]))
    if name in ("measured.json", "config.toml"):
        assert any("damaged" in note or "cannot be read" in note for note in seen.words["li"])


def test_names_in_a_run_folder_are_text_and_never_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    config = f'[data]\ngraph = "{evil}"\n'
    measured = {"time": {evil: [1.0, 2.0]}, "epoch": evil, "ranks": evil}
    text = page([read_run(written(tmp_path / "a<b>", 2, config=config, measured=measured))])
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    read(text)


def test_several_runs_are_compared_setting_by_setting(run, tmp_path):
    other = trained(tmp_path / "other", ranks=2, model_hidden=5)
    text = page([read_run(run), read_run(other)])
    seen = read(text)
    assert {"The runs", "Training loss", "Settings that differ"} <= set(seen.words["h4"])
    cells = seen.words["th"] + seen.words["td"]
    assert {"mine", "other", "model.hidden", "parallel.ranks"} <= set(cells)
    # What is the same in all runs is said once, above the table.
    assert any(re.match(r"What they gave; all of them: ended, .*, gcn$", c) for c in seen.words["caption"])
    assert "graph" not in seen.words["th"]
    assert text.count('<details class="run"') == 2


@pytest.mark.parametrize(("count", "columns"), [(5, 5), (6, 6), (7, 4), (8, 4)])
def test_numbers_at_the_top_stand_in_even_rows(count, columns):
    made = tiles((f"name {k}", "1", "") for k in range(count))
    assert f'style="--n:{columns}"' in made
    assert made.count("<dt>") == count


def test_tables_break_no_word_and_say_what_each_kind_of_work_is(run):
    text = page([read_run(run)])
    assert "overflow-wrap: anywhere; min-width" not in text
    seen = read(text)
    assert "what it is" in seen.words["th"]
    assert "weights' gradients are summed" in seen.words["td"]


def test_colours_can_be_read_on_their_papers():
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    def contrast(a: str, b: str) -> float:
        high, low = sorted([light(a), light(b)], reverse=True)
        return (high + 0.05) / (low + 0.05)

    assert LIGHT.keys() == DARK.keys()
    for colours in (LIGHT, DARK):
        for paper in ("paper", "surface"):
            assert contrast(colours["ink"], colours[paper]) > 7
            assert contrast(colours["muted"], colours[paper]) > 4.5
            assert contrast(colours["accent"], colours[paper]) > 4.5
            for series in (name for name in colours if name[1:].isdigit()):
                assert contrast(colours[series], colours[paper]) > 3, series
        assert contrast(colours["warn"], colours["warn-paper"]) > 4.5
        assert contrast(colours["over"], colours["heat"]) > 4.5


# In a browser


def screenshot(chromium: str, file: Path, out: Path, width: int, dark: bool = False) -> None:
    flags = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --hide-scrollbars --disable-dev-shm-usage"
    told = ["--blink-settings=preferredColorScheme=0"] if dark else []
    subprocess.run(
        [chromium, "--headless", *flags.split(), *told, f"--user-data-dir={out.parent / 'profile'}",
         f"--window-size={width},900", f"--screenshot={out}", file.as_uri()],
        check=True, capture_output=True, timeout=120, env=os.environ | {"HOME": str(out.parent)},
    )  # fmt: skip


def pixels(picture) -> Counter[tuple[int, ...]]:
    """How often each colour is in a picture."""
    colours, counts = np.unique(np.asarray(picture).reshape(-1, 3), axis=0, return_counts=True)
    return Counter(dict(zip(map(tuple, colours.tolist()), counts.tolist(), strict=True)))


def test_a_browser_shows_it_by_day_by_night_and_on_a_small_screen(run, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed: Debian's package chromium")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: it comes with weft[plot]")
    (tmp_path / "r.html").write_text(page([read_run(run)]))
    # A window of headless Chromium is never narrower than 500: a frame is a small screen.
    (tmp_path / "small.html").write_text(
        '<body style="margin:0"><iframe src="r.html" width="390" height="900">'
    )
    shots = {}
    for name, file, dark in (("day", "r", False), ("night", "r", True), ("small", "small", False)):
        screenshot(chromium, tmp_path / f"{file}.html", tmp_path / f"{name}.png", 1200, dark)
        shots[name] = image.open(tmp_path / f"{name}.png").convert("RGB")
    for name, colours in (("day", LIGHT), ("night", DARK)):
        paper, surface = (
            tuple(int(colours[c][i : i + 2], 16) for i in (1, 3, 5)) for c in ("paper", "surface")
        )
        assert shots[name].getpixel((3, 3)) == paper
        count = pixels(shots[name])
        assert count[surface] > 20_000  # cards and tiles
        curve = tuple(int(colours["s1"][i : i + 2], 16) for i in (1, 3, 5))
        assert count[curve] > 100
    assert len(pixels(shots["small"].crop((0, 0, 380, 880)))) > 20
