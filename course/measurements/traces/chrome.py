"""Chrome traces of torch.profiler (CUDA and ROCm, Kineto of 2021 and after), read into a `Trace`."""

import gzip
import io
import json
import tarfile
import zlib
from pathlib import Path

from course.measurements.traces import GpuEvent, Trace, decode
from course.measurements.traces.host import category_of, cpu_spans, launch_threads, launches
from course.measurements.traces.kernels import kernel_class, short_name

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
OTHER_PROFILERS = (
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
)
HOW = "This reads the Chrome trace that torch.profiler's export_chrome_trace() writes."


def read(
    source: str | Path | dict | list,
    window: tuple[float, float] | None = None,
    about: dict | None = None,
) -> Trace:
    """Return the `Trace` of `source`, a path or the trace's dict.

    `window` (begin, end) in µs from the first GPU event; None: from the first to the last. `about` adds what the file
    does not record. A .tar.gz holds one trace for each rank. ValueError, one sentence, for what cannot be read.
    """
    parts = [source] if isinstance(source, dict | list) else documents(Path(source))
    if isinstance(parts[0], dict) and "kernels" in parts[0]:  # written by reduce_trace
        extract = decode(parts[0])
        return extract.between(*window) if window else extract
    name = "this trace" if isinstance(source, dict | list) else Path(source).name
    ranks = [_Rank(part, number, name) for number, part in enumerate(parts)]
    origin = min(rank.first for rank in ranks)
    begin, end = window or (0, max(rank.last for rank in ranks) - origin)
    if not 0 <= begin < end:
        raise ValueError(f"window is {window!r}; it takes two times in µs, the smaller first")
    pieces = [rank.trace(origin + begin, origin + end, len(ranks) > 1) for rank in ranks]
    gpu = sorted((e for piece in pieces for e in piece.gpu), key=lambda e: e.start)
    cpu = sorted((s for piece in pieces for s in piece.cpu), key=lambda s: s.start)
    if not gpu:
        raise ValueError(f"{name}: no GPU event lies between {begin:.0f} and {end:.0f} µs")
    facts = {**pieces[0].about, **(about or {})}
    return Trace(facts, end - begin, gpu, cpu, pieces[0].memory)


def documents(path: Path) -> list:
    """Return the JSON documents in the file at `path`, those of an archive in the order of their names."""
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}")
    data = path.read_bytes()
    if path.suffix in (".nsys-rep", ".qdrep", ".ncu-rep", ".sqlite"):
        raise ValueError(f"{path.name} is a file of NVIDIA's Nsight tools. {HOW}")
    data = _unzipped(data, path.name)
    if data[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = sorted((m for m in archive if ".json" in m.name), key=lambda m: m.name)
            files = [(m.name, archive.extractfile(m)) for m in members]
            inside = [(name, file.read()) for name, file in files if file]
        if not inside:
            raise ValueError(f"{path.name} holds no .json file. {HOW}")
        return [_document(_unzipped(raw, name), name) for name, raw in inside]
    return [_document(data, path.name)]


def _unzipped(data, name):
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(
            f"{name} is cut off: its compressed data end early. Copy or download it again."
        ) from None


def _document(data, name):
    beginning = data[:200].lstrip().replace(b'": ', b'":')
    for mark, what in OTHER_PROFILERS:
        if beginning.startswith(mark):
            raise ValueError(f"{name} is {what}. {HOW}")
    try:
        document = json.loads(data.decode("utf-8", "replace"), strict=False)
    except json.JSONDecodeError as error:
        if beginning[:1] in (b"{", b"["):
            raise ValueError(
                f"{name} is cut off or damaged: its JSON breaks at character {error.pos:,} of "
                f"{len(data):,}. Export or copy it again."
            ) from None
        raise ValueError(f"{name} is no JSON file. {HOW}") from None
    return document


class _Rank:
    """The trace of one process: its GPU events and where they begin and end, in the file's own µs."""

    def __init__(self, document, number, name):
        events = document if isinstance(document, list) else document.get("traceEvents")
        if not isinstance(events, list):
            raise ValueError(f'{name} has no list "traceEvents". {HOW}')
        self.facts = {} if isinstance(document, list) else document
        self.number = self.facts.get("distributedInfo", {}).get("rank", number)
        complete = [e for e in events if e.get("ph") == "X" and "dur" in e]
        self.spans = [e for e in complete if category_of(e) not in GPU]
        self.gpu = [e for e in complete if category_of(e) in GPU]
        self.instants = [e for e in events if e.get("name") == "[memory]"]
        if not self.gpu:
            raise ValueError(
                f"{name} has no GPU events, only {len(complete):,} of the CPU: profile with "
                "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], on a machine with a GPU."
            )
        self.first = min(float(e["ts"]) for e in self.gpu)
        self.last = max(float(e["ts"]) + float(e["dur"]) for e in self.gpu)

    def trace(self, begin, end, several):
        """Return the `Trace` from `begin` to `end`, both on the file's clock."""
        rank = self.number if several else 0
        asked = launches(self.spans)
        gpu = []
        for event in self.gpu:
            start, length = float(event["ts"]), float(event["dur"])
            if start + length <= begin or start >= end:
                continue
            gpu.append(_gpu_event(event, begin, rank, asked))
        threads = launch_threads(self.spans)
        cpu = cpu_spans(self.spans, begin, end, rank, threads)
        return Trace(self._about(), end - begin, gpu, cpu, self._memory(begin, end))

    def _about(self):
        properties = self.facts.get("deviceProperties") or [{}]
        index = self.gpu[0].get("args", {}).get("device", 0)
        card = properties[index] if index < len(properties) else properties[0]
        return {"device": card.get("name") or "not recorded"}

    def _memory(self, begin, end):
        """Return (µs, bytes allocated) on the GPU, without changes below 2 % of the highest."""
        levels = [
            (float(e["ts"]) - begin, int(e["args"]["Total Allocated"]))
            for e in self.instants
            if e["args"].get("Device Type") == 1 and "Total Allocated" in e["args"]
        ]
        levels = sorted(level for level in levels if 0 <= level[0] < end - begin)
        smallest = max((size for _, size in levels), default=0) / 50
        kept = []
        for time, size in levels:
            if not kept or abs(size - kept[-1][1]) >= smallest:
                kept.append((time, size))
        return kept


def _gpu_event(event, begin, rank, asked):
    arguments = event.get("args", {})
    launch, *operator = asked.get(arguments.get("correlation"), (None, "", "", ""))
    return GpuEvent(
        short_name(event["name"]),
        kernel_class(event["name"], category_of(event)),
        float(event["ts"]) - begin,
        float(event["dur"]),
        rank,
        _number(arguments.get("stream", event.get("tid", 0))),
        None if launch is None else launch - begin,
        *operator,
        int(arguments.get("bytes", 0)),
    )


def _number(stream):
    digits = "".join(letter for letter in str(stream) if letter.isdigit())
    return int(digits or 0)
