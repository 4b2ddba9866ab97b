"""Bytes of a file to JSON documents, whatever packed or encoded them; one sentence for what is no Chrome trace."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gc
import gzip
import importlib
import io
import json
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HOW = "This reads the Chrome trace that torch.profiler's export_chrome_trace() writes."
OTHERS = (  # how a file begins, and what it is
    (b"SQLite format 3", "an SQLite export of Nsight Systems or rocprof"),
    (b"NVIDIA\x00", "a report of Nsight Systems"),
    (b"\x1f\x8b\x08\x00NSYS", "a report of Nsight Systems"),
    (b'{"data":{"CudaEvent', "a JSON export of Nsight Systems"),
    (b'{"CudaEvent', "a JSON export of Nsight Systems"),
    (b'{"TraceProcessEvent', "a JSON export of Nsight Systems"),
    (b'{"Type":', "a JSON export of Nsight Systems"),
    (b"Start (ns)", "a table of nsys stats"),
    (b"Time (%)", "a table of nsys stats"),
    (b"PK\x03\x04", "a zip archive"),
    (b"version https://git-lfs", "a pointer of Git LFS: `git lfs pull` fetches the file itself"),
    (b"<", "a page of HTML or XML, perhaps the page around a download"),
    (
        b"\x80",
        "a pickle, such as a memory snapshot: `python -m practice_gpus trace FILE` reads that",
    ),
)
NSIGHT = (".nsys-rep", ".qdrep", ".ncu-rep", ".sqlite")
ENCODINGS = (  # UTF-32 first: its mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"{\x00", "utf-16-le"),
    (b"[\x00", "utf-16-le"),
    (b"\x00{", "utf-16-be"),
    (b"\x00[", "utf-16-be"),
)


def _zstd(data: bytes) -> bytes:
    """Return what Zstandard packed, by Python 3.14 or the package zstandard; ValueError without both."""
    try:
        return importlib.import_module("compression.zstd").decompress(data)
    except ImportError:
        pass
    try:
        packed = importlib.import_module("zstandard").ZstdDecompressor()
    except ImportError:
        raise ValueError("`zstd -d` unpacks it, or pip install zstandard") from None
    return packed.decompressobj().decompress(data)


PACKED: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", gzip.decompress),
    (b"\x28\xb5\x2f\xfd", _zstd),
    (b"\xfd7zXZ", lzma.decompress),
    (b"BZh", bz2.decompress),
)


def contents(path: Path) -> list[tuple[str, bytes]]:
    """Return (name, unpacked bytes) of the file, or of the .json files in an archive; ValueError, one sentence."""
    if not os.path.isfile(path):
        kind = "a folder, not a file" if os.path.isdir(path) else "not there"
        raise ValueError(f"{str(path)!r} is {kind}")
    if path.suffix in NSIGHT:
        raise ValueError(f"{path.name} is a file of NVIDIA's Nsight tools. {HOW}")
    data = unpacked(path.read_bytes(), path.name)
    if data[257:262] != b"ustar":
        return [(path.name, data)]
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = sorted((m for m in archive if ".json" in m.name), key=lambda m: m.name)
            files = [(m.name, archive.extractfile(m)) for m in members]
            inside = [(name, file.read()) for name, file in files if file]
    except tarfile.TarError:
        raise ValueError(f"{path.name} is a damaged archive. Copy or download it again.") from None
    if not inside:
        raise ValueError(f"{path.name} holds no .json file. {HOW}")
    return [(name, unpacked(raw, name)) for name, raw in inside]


def unpacked(data: bytes, name: str) -> bytes:
    """Return `data` without its compression, were it packed twice."""
    for _ in range(3):
        unpack = next((how for mark, how in PACKED if data.startswith(mark)), None)
        if unpack is None or data.startswith(b"\x1f\x8b\x08\x00NSYS"):
            break
        try:
            data = unpack(data)
        except ValueError as error:
            raise ValueError(f"{name} is packed by Zstandard: {error}.") from None
        except (EOFError, OSError, zlib.error, lzma.LZMAError):
            raise ValueError(
                f"{name} is cut off: its compressed data end early. Copy or download it again."
            ) from None
        except Exception as error:  # what zstandard raises has no common class
            raise ValueError(f"{name} can't be unpacked: {error}") from None
    return data


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, which would walk through millions of new objects again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def document(data: bytes, name: str) -> Any:
    """Return the JSON document in `data`; ValueError, one sentence, where there is none."""
    beginning = data[:200].lstrip().replace(b'": ', b'":')
    for mark, what in OTHERS:
        if beginning.startswith(mark):
            raise ValueError(f"{name} is {what}. {HOW}")
    encoding = next((word for mark, word in ENCODINGS if data.startswith(mark)), "utf-8")
    text = data.decode(encoding, "replace")
    try:
        with uncollected():
            return json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError(f"{name} is empty. {HOW}") from None
        if text.lstrip()[:1] not in "{[":
            raise ValueError(f"{name} is no JSON file. {HOW}") from None
        raise ValueError(
            f"{name} is cut off or damaged: its JSON breaks at character {error.pos:,} of "
            f"{len(text):,}. Export or copy it again."
        ) from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply for a trace. {HOW}") from None
