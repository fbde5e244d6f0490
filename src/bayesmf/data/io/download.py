"""Downloads that resume where they broke off and are checked before they are believed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bayesmf.data.io.atomic import unwritable
from bayesmf.errors import DataError

Progress = Callable[[int, int | None], None]
"""Is called with the bytes so far and, if the server says it, the bytes in all."""


class Unreachable(DataError):
    """The server cannot be reached; the caller knows how to do without it."""


TRIES = 3
CHUNK = 1 << 16
MOST = 4 << 30  # bytes of a download; the largest data set has a quarter of a gigabyte
TIMEOUT = (10, 30)  # seconds to connect, and between two packets


def download(url: str, path: Path, known_hash: str | None, progress: Progress | None) -> Path:
    """Fetch ``url`` into ``path`` unless it is there already with the right hash.

    A transfer that breaks off, or is killed, leaves ``path``.part and nothing else, and the next
    call continues from there.
    """
    part = path.with_name(path.name + ".part")
    try:
        if path.is_file() and (known_hash is None or has_hash(path, known_hash)):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = known_hash is not None and part.is_file() and has_hash(part, known_hash)
        if not whole:
            _fetch(url, part, progress)
        if known_hash is not None and not has_hash(part, known_hash):
            part.unlink()
            raise wrong_checksum(url)
        os.replace(part, path)
    except OSError as error:
        import requests

        if isinstance(error, requests.RequestException):
            raise
        raise unwritable(path, error) from None
    return path


def has_hash(path: Path, known_hash: str) -> bool:
    """Whether a file has a hash: a sha256, or another kind as in "md5:..."."""
    kind, _, known = known_hash.rpartition(":")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind or "sha256").hexdigest() == known


def wrong_checksum(url: str) -> DataError:
    """Return the error for a file that arrived whole but is not the one that was published."""
    return DataError(
        f"{url}: the checksum of what arrived is not the published one, so it was thrown away; "
        "try again later or fetch the file by hand"
    )


def _fetch(url: str, part: Path, progress: Progress | None) -> None:
    """Bring ``part`` up to the whole file, resuming a few times if the transfer breaks."""
    import requests

    for attempt in range(TRIES):
        try:
            _transfer(url, part, progress)
            return
        except requests.HTTPError as error:
            raise Unreachable(f"{url} answered {error.response.status_code}") from None
        except requests.RequestException:
            started = part.exists() and part.stat().st_size > 0
            if not started:
                raise Unreachable(f"cannot reach {urlsplit(url).netloc}") from None
            if attempt == TRIES - 1:
                raise DataError(
                    f"{url}: the transfer broke off after {part.stat().st_size:,} bytes; try "
                    "again to continue from there"
                ) from None


def _transfer(url: str, part: Path, progress: Progress | None) -> None:
    import requests

    if part.is_symlink():
        part.unlink()  # what it points to is not ours
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as reply:
        if reply.status_code == 416 and have:  # what is there is not the beginning of this file
            part.unlink()
            _transfer(url, part, progress)
            return
        reply.raise_for_status()
        if reply.status_code != 206:
            have = 0
        length = reply.headers.get("Content-Length")
        total = have + int(length) if length is not None and length.isdecimal() else None
        with open(part, "ab" if have else "wb") as file:
            for chunk in reply.iter_content(CHUNK):
                file.write(chunk)
                have += len(chunk)
                if have > MOST:
                    file.close()
                    part.unlink()
                    raise DataError(
                        f"{url}: more than {MOST >> 30} GB arrived, so it is not the data set, and "
                        "was thrown away; see in a browser what the server sends"
                    )
                if progress is not None:
                    progress(have, total)
        if total is not None and have != total:
            raise requests.ConnectionError("the transfer ended early")
