"""Values as one short line of text, to carry from one machine to another: a mark, then JSON, zlib and base32."""

import base64
import json
import zlib
from typing import Any


def encode(mark: str, values: Any) -> str:
    """`values` (anything that JSON takes) as a code that begins with `mark`, such as "G2-"."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    packed = zlib.compress(text.encode("utf-8"), 9)
    return mark + base64.b32encode(packed).decode("ascii").rstrip("=")


def decode(mark: str, code: str) -> Any:
    """The values in a `code`, whose spaces, line breaks and case do not matter.

    zlib's checksum notices slips. TypeError for what is no text; ValueError says what is wrong with the code.
    """
    if not isinstance(code, str):
        raise TypeError(f"code is {code!r}; it takes the text that begins with {mark}")
    text = "".join(code.split()).upper()
    shown = text if len(text) <= 30 else f"{text[:27]}…"
    if not text.startswith(mark):
        raise ValueError(f"code is {shown!r}; it takes a code that begins with {mark}")
    letters = text.removeprefix(mark)
    try:
        packed = base64.b32decode(letters + "=" * (-len(letters) % 8))
        unpacker = zlib.decompressobj()
        values = json.loads(unpacker.decompress(packed, 2**20))
        whole = unpacker.eof and not unpacker.unused_data and encode(mark, values)
    except (ValueError, zlib.error):
        whole = ""
    if not whole:
        raise ValueError(f"code {shown!r} is damaged: copy the whole line again")
    return values
