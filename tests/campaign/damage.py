"""Damage checkpoints and look what is used: `./dev damage [--cases 2000] [--first 0]`.

A case is a run folder with two checkpoints, one file of which has a flipped bit, is cut short or is gone. It
holds where the damage is found, and the newest checkpoint that is whole is what a resumed run would take.
Checkpoints are of several kinds: the whole graph, batches in a pipeline, links with embeddings; 1 to 3 ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ["OMP_NUM_THREADS"] = "1"

from tests.train.test_checkpoint import graph_of, settings, train
from weft.comm import run_ranks
from weft.comm.threads import single
from weft.train.checkpoint import checkpoints, newest

HOW = ("flipped bit", "cut file", "missing file")
KINDS = (("whole", 1), ("pipeline", 2), ("link", 3), ("link, pipeline", 2))


def damaged(raw: bytes, how: str, draw: random.Random) -> bytes | None:
    """What becomes of a file; None: it is gone."""
    if how == "missing file":
        return None
    place = draw.randrange(len(raw))
    if how == "cut file":
        return raw[:place]
    return raw[:place] + bytes([raw[place] ^ 1 << draw.randrange(8)]) + raw[place + 1 :]


def cases(run: Path, seeds: range) -> Iterator[tuple[str, str]]:
    """(how, what is wrong) of each case; every third damages the older one, and the newest is used."""
    new, old = checkpoints(run)[:2]
    for seed in seeds:
        draw = random.Random(seed)
        how = HOW[seed % 3]
        target, good = (new, old) if draw.random() < 0.7 else (old, new)
        file = draw.choice(sorted(target.iterdir()))
        raw = file.read_bytes()
        data = damaged(raw, how, draw)
        file.unlink() if data is None else file.write_bytes(data)
        found, torn = newest(single(), run)
        used = None if found is None else found.path
        told = [line.split(":")[0] for line in torn]
        wrong = ""
        if used != good or told != ([new.name] if target == new else []):
            wrong = f"{how} of {file}, seed {seed}: used {used}, torn {torn}"
        elif target == old:  # what is not looked at now is found when its turn comes
            new.rename(new.with_name("away"))
            found, torn = newest(single(), run)
            new.with_name("away").rename(new)
            if found is not None or len(torn) != 1:
                wrong = f"{how} of {file}, seed {seed}: not found"
        file.write_bytes(raw)
        yield how, wrong


def campaign(count: int, folder: Path, first: int = 0) -> tuple[Counter[str], list[str]]:
    """(cases by kind of damage, what is wrong)."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with contextlib.chdir(folder):
        for number, (way, ranks) in enumerate(KINDS):
            out = f"run-{number}"
            made = settings(way, out=out, keep=2, checkpoint_every="1batch")
            run_ranks(train, ranks, "threads", graph_of(way), made, "save")
            share = range(first + count * number // len(KINDS), first + count * (number + 1) // len(KINDS))
            for how, mistake in cases(Path(out), share):
                counts[how] += 1
                wrong += [mistake] if mistake else []
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev damage", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-damage-") as folder:
        counts, wrong = campaign(asked.cases, Path(folder), asked.first)
    for line in wrong:
        print(f"--- {line}")
    spread = ", ".join(f"{how} {count}" for how, count in sorted(counts.items()))
    print(
        f"{sum(counts.values()):,} damaged checkpoints ({spread}): {len(wrong)} not found or not passed over"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
