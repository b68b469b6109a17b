"""Public data sets fetched over the network: whole or not at all.

    NAME.part   grows by HTTP ranges, so that a broken transfer goes on where it stopped
    NAME        appears when the size and the checksum are right

Archives (.zip) are unpacked with every path and size checked, and then removed.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from weft.errors import UserError
from weft.graph.known import File, Known

CHUNK = 1 << 20
_TIMEOUT = 60.0
_UNPACKED = 6
"""How many times larger than its archive a set may become, for the room that is asked for."""
_BOMB = 1000
"""How many times larger an archive's contents may be: what claims more is damaged or hostile."""
Tick = Callable[[str, int, int], None]
"""(file, bytes that are there, bytes of the whole or 0)."""


def fetch(known: Known, data: str | Path, tick: Tick = lambda name, done, total: None) -> Path:
    """Download the set's files into `data/FOLDER`; what is there and right is not fetched again.

    >>> from weft.graph.known import KNOWN
    >>> fetch(KNOWN["flickr"], "data")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: flickr has no files to fetch by a program. Take them from https://... into data/...
    """
    folder = Path(data) / known.folder
    if not known.files:
        raise UserError(
            f"{known.name} has no files to fetch by a program. Take them from {known.page} into {folder}."
        )
    check_room(known, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {folder}: {error.strerror}. Choose another --data."
        ) from None
    for file in known.files:
        path = folder / file.path
        if path.suffix == ".zip":
            if not (folder / _mark(path)).exists():
                download(file, path, tick)
                unpack(path, folder)
                (folder / _mark(path)).write_text(f"{file.url}\n")
                path.unlink()
        elif not (path.is_file() and _is_right(path, file)):
            if path.exists():
                raise UserError(
                    f"{path} is there and differs from what is offered. Remove it, and fetch again."
                )
            download(file, path, tick)
    return folder


def _mark(path: Path) -> str:
    """The file that says that an archive was unpacked."""
    return f".{path.name}.fetched"


def room_needed(known: Known) -> int:
    """Bytes on the disk, about: the download, and what its archives hold."""
    packed = any(file.path.endswith(".zip") for file in known.files)
    return known.size * (1 + _UNPACKED if packed else 1)


def check_room(known: Known, folder: Path) -> None:
    """Refuse a set for which the disk has no room, before anything is fetched."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    free, needed = shutil.disk_usage(place).free, room_needed(known)
    there = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else 0
    if needed - there > free:
        raise UserError(
            f"{known.name} needs about {needed / 1e9:,.1f} GB, {place} has {free / 1e9:,.1f} GB free. "
            "Make room, or choose another --data."
        )


def download(file: File, path: Path, tick: Tick = lambda name, done, total: None) -> None:
    """One file, by ranges: a second call goes on where the first was broken."""
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.exists() else 0
    if file.size and have > file.size:
        part.unlink()
        have = 0
    if not (file.size and have == file.size):
        _transfer(file, part, have, tick)
    size = part.stat().st_size
    if file.size and size != file.size:
        raise UserError(
            f"{part}: {size:,} of {file.size:,} bytes came from {file.url}. Fetch again: it goes on."
        )
    if file.sha256:
        found = checksum(part)
        if found != file.sha256:
            part.unlink()
            raise UserError(
                f"{path}: {file.url} has the checksum {found[:12]}…, not {file.sha256[:12]}…. It was "
                "removed; fetch again, and if it stays so, the file that is offered has changed."
            )
    os.replace(part, path)


def _transfer(file: File, part: Path, have: int, tick: Tick) -> None:
    if urlsplit(file.url).scheme not in ("http", "https"):
        raise UserError(f"{file.url} is no web address. Correct it.")
    ask = urllib.request.Request(file.url, headers={"User-Agent": "weft"})
    if have:
        ask.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(ask, timeout=_TIMEOUT) as answer:
            if have and answer.status != 206:  # the server knows no ranges: from the beginning
                have = 0
            told = int(answer.headers.get("Content-Length") or 0)
            total = file.size or (have + told if told else 0)
            with open(part, "ab" if have else "wb") as out:
                while piece := answer.read(CHUNK):
                    out.write(piece)
                    have += len(piece)
                    if file.size and have > file.size:
                        raise UserError(f"{file.url} sends more than {file.size:,} bytes. It has changed.")
                    tick(part.name.removesuffix(".part"), have, total)
            if total and have < total:
                raise UserError(
                    f"{part}: {have:,} of {total:,} bytes came from {file.url}. Fetch again: it goes on."
                )
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # all of it is here already, or it is another file now
            if file.size:
                part.unlink()
                raise UserError(
                    f"{part} does not fit {file.url} any more. It was removed; fetch again."
                ) from None
            return
        raise UserError(f"{file.url} answers {error.code} {error.reason}. Look at the set's page.") from None
    except (http.client.HTTPException, urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
        kept = (
            f" {have:,} bytes are kept: fetch again goes on from there."
            if have
            else f" Or fetch it elsewhere and put it into {part.parent}."
        )
        raise UserError(f"cannot reach {file.url} ({reason}). Check the network.{kept}") from None
    except OSError as error:
        raise UserError(
            f"cannot write {part}: {error.strerror or error}. Make room, or choose another --data."
        ) from None


def checksum(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_right(path: Path, file: File) -> bool:
    if file.size and path.stat().st_size != file.size:
        return False
    return not file.sha256 or checksum(path) == file.sha256


def unpack(archive: Path, folder: Path) -> None:
    """The files of a zip below `folder`, without the one folder that all of them may stand in."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [info for info in opened.infolist() if not info.is_dir()]
            names = [_inside(info, archive) for info in members]
            tops = {name.parts[0] for name in names}
            strip = len(tops) == 1 and all(len(name.parts) > 1 for name in names)
            total = sum(info.file_size for info in members)
            if total > _BOMB * archive.stat().st_size:
                raise UserError(f"{archive} says that it unpacks to {total:,} bytes. Fetch it again.")
            free = shutil.disk_usage(folder).free
            if total > free:
                raise UserError(
                    f"{archive} unpacks to {total / 1e9:,.1f} GB, the disk has {free / 1e9:,.1f}. Make room."
                )
            for info, name in zip(members, names, strict=True):
                target = folder.joinpath(*name.parts[1 if strip else 0 :])
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(info) as source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out, CHUNK)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{archive} is not a sound archive ({reason}). Remove it, and fetch again.") from None


def _inside(info: zipfile.ZipInfo, archive: Path) -> PurePosixPath:
    """The member's path, refused where it leads out of the folder or is a link."""
    name = PurePosixPath(info.filename)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\\" in info.filename:
        raise UserError(f"{archive}: {info.filename[:60]!r} leads out of its folder. Do not use this file.")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise UserError(f"{archive}: {info.filename[:60]!r} is a link. Do not use this file.")
    return name
