"""Two lanes, Python and the GPU, as the figures of lessons 07 and 08 draw them: computed, not measured."""


def lay_out(work):
    """Spans (lane, label, start, end) in ms of `work`, and the ms that it takes in all.

    `work`: pieces (lane, label, ms) in the order in which Python asks for them. The GPU does its own in turn, each
    as soon as Python has asked for it; "waits" lets Python wait until the GPU is done (lesson 07).
    """
    spans = []
    now = 0  # Python's clock
    free = 0  # when the GPU is done with what it was asked for
    for piece in work:
        if piece == "waits":
            spans.append(("Python", "waits", now, free))
            now = max(now, free)
            continue
        lane, label, ms = piece
        if lane == "Python":
            spans.append((lane, label, now, now + ms))
            now += ms
        else:
            begin = max(now, free)
            free = begin + ms
            spans.append((lane, label, begin, free))
    return spans, max(now, free)


def profile_lanes(profile, longest=6):
    """(lanes for `plots.lanes`, names) of a torch.profiler profile: the outermost calls and the GPU's kernels.

    Times are milliseconds from the first call; names other than the `longest` become "other". Lesson 07 draws one.
    """
    spans = [_profile_span(event) for event in profile.events() if _is_drawn(event)]
    total = {}
    for _, name, start, end in spans:
        total[name] = total.get(name, 0) + end - start
    names = sorted(total, key=total.get, reverse=True)[:longest]
    zero = min(start for _, _, start, _ in spans)
    lanes = [
        (lane, name if name in names else "other", (start - zero) / 1e3, (end - zero) / 1e3)
        for lane, name, start, end in spans
    ]
    return lanes, names


def _is_drawn(event):
    """Whether a profile's event is a kernel of a GPU or an outermost call on the CPU."""
    optimizer = event.name.startswith("Optimizer.")  # a note around all that the optimizer does
    if _on_gpu(event):
        return not optimizer
    call = optimizer or event.name.startswith(("aten::", "autograd::"))
    return call and event.cpu_parent is None


def _on_gpu(event):
    return "CUDA" in str(event.device_type)


def _profile_span(event):
    """(lane, name, start, end) of a profile's event, in microseconds."""
    name = event.name.split("<")[0].split(":")[-1].split("#")[0].strip()
    name = name.replace("Backward0", " backward").replace("WithIndices", "")
    name = name if len(name) <= 24 else f"{name[:23]}…"
    lane = "GPU" if _on_gpu(event) else "CPU"
    return lane, name, event.time_range.start, event.time_range.end
