"""A learner's results as a short code: two bits for each exercise and quiz question, an optional name, a checksum.

The code is "P1-" and base32 text (letters and the digits 2 to 7, so that nothing looks like anything else). Its bytes:
length of the name, length of the results, the name in UTF-8, the results four to a byte in the order of `ITEMS` (zeros at
the end left out), and four bytes of SHA-256. These notice slips, not intent: a code is a learner's own report.
"""

import base64
import hashlib

MARK = "P1-"
# an exercise untried, tried or solved; a question unanswered, answered wrong or right
NOTHING = 0
NOT_YET = 1
DONE = 2
MOST_BYTES = 40  # of a name
CHECKSUM = 4  # bytes

# Codes name items by their place in this list: add new ones at the end, and leave old ones where they are.
ITEMS = tuple(
    """
00.warm_up 01.pick 01.flags 01.machines 01.rate 02.same 02.hidden 02.batch 02.packed 02.repair 03.flat 03.buffer
03.where 03.rows 03.messages 04.step 04.testing 04.counting 04.amp 04.checkpoint 04.curve 04.bugs 05.count 05.freed
05.leak 05.largest 05.accumulation 06.weigh 06.strip 06.deal 06.script 06.choose 07.waits 07.events 07.stopwatch
07.sums 07.streams quiz.01.false quiz.01.index quiz.01.bf16 quiz.01.small quiz.02.alone quiz.02.current
quiz.02.result quiz.02.pieces quiz.02.shape quiz.03.inplace quiz.03.stays quiz.03.optimizer quiz.03.bytes
quiz.04.order quiz.04.labels quiz.04.eval quiz.04.map quiz.04.scaler quiz.05.cache quiz.05.empty quiz.05.activations
quiz.05.checkpoint quiz.06.module quiz.06.rank quiz.06.epoch quiz.06.scaling quiz.07.naive quiz.07.median
quiz.07.early quiz.07.nonzero 08.profiles 08.bounds 08.accuracy 08.speedup 08.fixed quiz.08.order
quiz.08.batch quiz.08.roof quiz.08.first 02.pays 01.impossible 08.clip
09.mask 09.kv_cache 09.sizes 09.top_k quiz.09.fused quiz.09.decode quiz.09.cached
10.bytes 10.product 10.choose quiz.10.sixteen quiz.10.whole quiz.10.pair
11.mirror 11.gated 11.row_sums quiz.11.fuse quiz.11.mask quiz.11.when
""".split()
)


def encode(states, name=""):
    """The code of `states`, a dict of items to NOTHING, NOT_YET or DONE; items that are not in `ITEMS` are left out.

    Raises ValueError for a `name` of more than 40 bytes, or with characters that cannot be printed.
    """
    name_bytes = name.strip().encode("utf-8")
    if len(name_bytes) > MOST_BYTES or not name.isprintable():
        raise ValueError(f"name is {name!r}; it takes up to {MOST_BYTES} bytes of printable text")
    packed = bytearray(-(-len(ITEMS) // 4))
    for place, item in enumerate(ITEMS):
        packed[place // 4] |= states.get(item, NOTHING) << 2 * (place % 4)
    results = bytes(packed).rstrip(b"\0")
    return _written(bytes([len(name_bytes), len(results)]) + name_bytes + results)


def decode(code):
    """(states, name) of a `code`: states as a dict of those items that are not NOTHING.

    Spaces, case and line breaks do not matter. ValueError says what is wrong with the code.
    """
    text = "".join(str(code).split()).upper()
    if not text.startswith(MARK):
        raise ValueError(f"not a progress code, which begins with {MARK}: {_short(text)}")
    body = _read(text)
    if body is None:
        raise ValueError(f"damaged or incomplete (copy it again, whole): {_short(text)}")
    end_of_name = 2 + body[0]
    name = body[2:end_of_name].decode("utf-8")
    states = [byte >> shift & 3 for byte in body[end_of_name:] for shift in (0, 2, 4, 6)]
    if any(states[len(ITEMS) :]) or max(states, default=0) > DONE:
        raise ValueError(f"made by a newer version of the course; update this one: {_short(text)}")
    pairs = zip(ITEMS, states)  # noqa: B905 - an older code is shorter
    return {item: state for item, state in pairs if state}, name


def _written(body):
    checksum = hashlib.sha256(MARK.encode() + body).digest()[:CHECKSUM]
    return MARK + base64.b32encode(body + checksum).decode("ascii").rstrip("=")


def _read(text):
    """The bytes of a code without its checksum; None where it is not exactly what `_written` wrote."""
    letters = text[len(MARK) :]
    try:
        body = base64.b32decode(letters + "=" * (-len(letters) % 8))[:-CHECKSUM]
        exact = text == _written(body) and len(body) == 2 + body[0] + body[1]
        return body if exact and body[2 : 2 + body[0]].decode("utf-8").isprintable() else None
    except (ValueError, IndexError):
        return None


def _short(text):
    return repr(text if len(text) <= 60 else f"{text[:57]}…")
