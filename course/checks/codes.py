"""Short codes to send or to carry: JSON, zlib, base32 and a checksum. P: progress, G: a GPU's numbers, R: a room's machine.

A code is a mark such as "P2-" and letters and the digits 2 to 7, so that nothing looks like anything else. Its checksum
notices slips, not intent. What a phone or a chat adds (line breaks, quotes, backticks, longer dashes, invisible spaces)
does not matter.
"""

import base64
import json
import unicodedata
import zlib
from typing import Any

CHECKSUM = 4  # bytes


def encode(mark: str, content: Any) -> str:
    """The code of `content`, which JSON can hold, with a `mark` such as "P2"."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    body = zlib.compress(text.encode("utf-8"), 9)
    return f"{mark}-{_letters(body + _checksum(mark, body))}"


def decode(mark: str, code: str) -> Any:
    """The content of a `code` of this `mark`; TypeError for what is no text, ValueError that says what is wrong."""
    if not isinstance(code, str):
        raise TypeError(f"code is {code!r}; it takes the text that begins with {mark}-")
    begin, _, letters = cleaned(code).partition("-")
    if begin != mark:
        raise ValueError(f"code is {_short(code)}; this takes one that begins with {mark}-")
    try:
        data = base64.b32decode(letters + "=" * (-len(letters) % 8))
        body, checksum = data[:-CHECKSUM], data[-CHECKSUM:]
        if checksum != _checksum(mark, body) or _letters(data) != letters:
            raise ValueError
        return json.loads(zlib.decompress(body))
    except (ValueError, zlib.error):
        raise ValueError(
            f"code is damaged or incomplete (copy it again, whole): {_short(code)}"
        ) from None


def pick(mark: str, text: str) -> list:
    """The codes in a `text`, each as it stands there or joined from its lines; what is no code stays as it was sent."""
    pieces = _plain_dashes(text).split(f"{mark}-")[1:]
    return [_joined(mark, piece.split()) for piece in pieces] or text.split()


def _joined(mark, words):
    """The shortest beginning of `words` that makes a code; the first of them where none does."""
    for end in range(1, len(words) + 1):
        code = f"{mark}-{''.join(words[:end])}"
        try:
            decode(mark, code)
            return code
        except ValueError:
            continue
    return f"{mark}-{words[0] if words else ''}"


def cleaned(code: str) -> str:
    """A code as it was made: its mark, one dash, its letters in capitals."""
    plain = "".join(
        c for c in _plain_dashes(code).upper() if c.isascii() and (c.isalnum() or c == "-")
    )
    mark, _, letters = plain.partition("-")
    return f"{mark}-{letters.replace('-', '')}"


def _plain_dashes(text):
    return "".join("-" if unicodedata.category(c) == "Pd" or c == "\u2212" else c for c in text)


def _letters(data):
    """Bytes in base32 without the padding."""
    return base64.b32encode(data).decode("ascii").rstrip("=")


def _checksum(mark, body):
    return zlib.crc32(mark.encode() + body).to_bytes(CHECKSUM, "big")


def _short(code):
    return repr(code if len(code) <= 60 else f"{code[:57]}…")
