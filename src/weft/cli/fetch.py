"""weft fetch: a public data set, over the network."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from ..errors import UserError
from .options import Parser


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "fetch", "NAME [OPTIONS]",
        "Download a public data set into $WEFT_DATA: the licence is shown first, the disk's room looked at, "
        "checksums are compared where they are known. A transfer that broke goes on where it stopped.",
        "  weft fetch cora --data data\n  weft fetch ogbn-arxiv --yes\n  weft fetch uk-2002 --show",
    )  # fmt: skip
    parser.add_argument("name", nargs="?", metavar="NAME", help="the data set; without one, all are listed")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--yes", action="store_true", help="do not ask whether the licence is accepted")
    parser.add_argument("--show", action="store_true", help="say what would be fetched, and no more")
    parsed = parser.parse(arguments)
    from ..graph.fetching import check_room, fetch, room_needed
    from ..graph.known import KNOWN, known
    from ..tables import columns
    from ..units import spell_bytes
    from .console import is_watched

    if parsed.name is None:
        rows = [
            [each.name, each.licence, spell_bytes(each.size) if each.files else "by hand"]
            for each in KNOWN.values()
        ]
        print(columns(["name", "licence", "download"], rows, left=2))
        print(
            "\nweft fetch NAME gets one; weft data says what they are, weft data NAME where one comes from."
        )
        return 0
    chosen = known(parsed.name)
    folder = parsed.data or os.environ.get("WEFT_DATA")
    if not folder:
        raise UserError("no folder for data sets. Set WEFT_DATA, or pass --data DIR.")
    place = os.path.join(folder, chosen.folder)
    print(f"{chosen.name}: {chosen.what}; {chosen.vertices:,} vertices, {chosen.arcs:,} arcs")
    print(f"licence: {chosen.licence} ({chosen.page})")
    sums = sum(bool(file.sha256) for file in chosen.files)
    print(f"download: {spell_bytes(chosen.size)} in {len(chosen.files)} files, {sums} with a checksum; "
          f"on the disk {spell_bytes(room_needed(chosen))}, into {place}", flush=True)  # fmt: skip
    if parsed.show:
        return 0
    from pathlib import Path

    check_room(chosen, Path(place))
    if not parsed.yes and chosen.files:
        _ask()
    made = fetch(chosen, folder, _progress())
    if is_watched(sys.stderr):
        print(file=sys.stderr)
    print(f"{chosen.name} is in {made}. Use: weft info {chosen.name} --data {folder}")
    return 0


def _ask() -> None:
    if not sys.stdin.isatty():
        raise UserError("the licence is not accepted yet, and nobody is here to ask. Read it, and add --yes.")
    if input("Is the licence accepted? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("nothing was fetched. Add --yes, or answer y.")


def _progress() -> Callable[[str, int, int], None]:
    """A line that is written anew while bytes come, where somebody looks."""
    from ..units import spell_bytes
    from .console import is_watched

    def tick(name: str, done: int, total: int) -> None:
        if is_watched(sys.stderr):
            share = f" of {spell_bytes(total)}" if total else ""
            print(f"\r\x1b[K{name}: {spell_bytes(done)}{share}", end="", file=sys.stderr, flush=True)

    return tick
