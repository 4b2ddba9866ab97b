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
