"""Reads a C++ file's declarations: comments, strings, directives and brackets as C++ has them, and what each declares.

What is read is the text before the preprocessor (ISO C++, [lex]); types are known by a declaration's first words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from practice_gpus.kernels.errors import CompileError

TOKEN = re.compile(
    r"""(?P<directive>^[^\S\n]*\#(?:[^\\\n]|\\[^\S\n]*\n|\\.)*)
    |(?P<skip>//(?:[^\\\n]|\\\n|\\.)*|/\*.*?\*/|\s)
    |(?P<text>(?:L|u8?|U)?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<mark>::|->|<<<|>>>|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
DEFINE = re.compile(r"\s*#\s*define\s+(\w+)(?:\([^)]*\))?(.*)", re.DOTALL)
CONDITION = re.compile(r"\s*#\s*(ifdef|ifndef|if|else|elif|endif)\b")
CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
CLOSING = set(CLOSED_BY.values())
ANGLES = {"<": 1, ">": -1, "<<<": 3, ">>>": -3}
GPU = {"__global__", "__device__", "constexpr", "consteval"}  # where a function may run on the GPU
BEFORE = {
    "__constant__",
    "__device__",
    "__shared__",
    "__managed__",
    "static",
    "inline",
    "constexpr",
}
TYPES = {"class", "struct", "union", "enum", "typedef", "using", "concept"}
LABELS = {"public", "private", "protected"}
NO_NAMES = {"__launch_bounds__", "__align__", "alignas", "__attribute__", "decltype", "noexcept"}
NO_NAMES |= {"__cluster_dims__", "__block_size__", "__declspec", "explicit", "requires"}


@dataclass(frozen=True)
class Token:
    """A piece of the text that isn't a blank or a comment; `start` and `end` are places in it."""

    kind: str
    text: str
    start: int
    end: int


@dataclass
class Declaration:
    """`tokens` of one declaration; `names` are what it declares; `kind`: function, type, data, macro, directive, bracket.

    `head`: of a function the tokens before its body; `inner`: of a type what its body declares; `space`: its namespaces.
    """

    kind: str
    names: set
    tokens: list
    line: int
    head: list = field(default_factory=list)
    inner: list = field(default_factory=list)
    space: tuple = ()

    @property
    def words(self) -> set:
        """Every name in it, those of its directives, too."""
        found = {each.text for each in self.tokens if each.kind == "word"}
        for each in self.tokens:
            if each.kind == "directive":
                found |= set(re.findall(r"[A-Za-z_]\w*", each.text))
        return found

    def runs_on_gpu(self, macros: set) -> bool:
        """True for a function that says so, itself or by one of `macros`."""
        return not (GPU | macros).isdisjoint(each.text for each in self.head)


class Reader:
    """Splits a file, or the body of a type, into declarations."""

    def __init__(self, text, name, tokens=None, space=()):
        self.text, self.name = text, name
        self.tokens = _tokens(text) if tokens is None else tokens
        self.place = 0
        self.found = []
        self.open = []  # [(token, name)] of namespaces and extern "C" that aren't closed yet
        self.space = space

    def line(self, token: Token) -> int:
        """Return a token's line, from 1 on."""
        return self.text.count("\n", 0, token.start) + 1

    def read(self) -> list[Declaration]:
        """Return the declarations in order; raises CompileError where a bracket has no other half."""
        while self.place < len(self.tokens):
            token = self.tokens[self.place]
            after = self.tokens[self.place + 1 : self.place + 2]
            if token.kind == "directive":
                found = DEFINE.match(token.text)
                self._add("directive", [token], {found[1]} if found else ())
            elif token.text in CLOSING:
                if not self.open or token.text != "}":
                    self._fail(token, f"a {token.text} that closes nothing")
                self.open.pop()
                self._add("bracket", [token])
            elif token.text in LABELS and after and after[0].text == ":":
                self._add("bracket", [token, *after])
            elif token.text == ";":
                self.place += 1
            else:
                self._declaration()
        if self.open:
            self._fail(self.open[-1][0], "this { is never closed")
        return self.found

    def _fail(self, token, words):
        raise CompileError(f"{self.name} line {self.line(token)}: {words}")

    def _add(self, kind, tokens, names=(), head=(), inner=()):
        space = (*self.space, *(name for _, name in self.open if name))
        line = self.line(tokens[0])
        self.found.append(Declaration(kind, set(names), tokens, line, list(head), inner, space))
        self.place += len(tokens)

    def _declaration(self):
        """Read to the `;` or the body's `}` that ends the declaration which begins here."""
        first = end = self.place
        while end < len(self.tokens):
            token, head = self.tokens[end], self.tokens[first:end]
            if token.text == ";":
                return self._classify(self.tokens[first : end + 1], head)
            if _is_call(head) and self._ends_alone(head, token):
                return self._add("macro", head, head=head)
            if token.text == "{" and _opens(head):
                self._add("bracket", self.tokens[first : end + 1])
                name = "::".join(each.text for each in head[1:] if each.kind == "word")
                return self.open.append((token, name))
            if token.text == "{" and _is_function(head) and not _is_initializer(head):
                return self._classify(self.tokens[first : self._closed(end)], head)
            if token.text in CLOSING:
                break
            end = self._closed(end) if token.text in CLOSED_BY else end + 1
        if end == first:
            self._fail(self.tokens[first], f"a {self.tokens[first].text} that closes nothing")
        self._add("macro", self.tokens[first:end], head=self.tokens[first:end])

    def _ends_alone(self, head, token):
        """True after `NAME(…)` on lines of its own: a macro that writes declarations."""
        between = self.text[head[-1].end : token.start]
        return "\n" in between and (token.kind in ("word", "directive"))

    def _closed(self, place):
        """Return the place behind the bracket that closes the one at `place`."""
        stack = []
        for here in range(place, len(self.tokens)):
            token = self.tokens[here]
            if token.text in CLOSED_BY:
                stack.append(token)
            elif token.text in CLOSING:
                last = stack.pop()
                if CLOSED_BY[last.text] != token.text:
                    self._fail(
                        last, f"this {last.text} meets a {token.text} in line {self.line(token)}"
                    )
                if not stack:
                    return here + 1
        self._fail(self.tokens[place], f"this {self.tokens[place].text} is never closed")

    def _classify(self, found, head):
        words = [each.text for each in _without_template(head) if each.kind == "word"]
        first = next((each for each in words if each not in BEFORE), "")
        if first == "static_assert" or (first == "template" and len(words) > 1):
            self._add("dropped", found)  # an explicit instantiation
        elif _is_function(head):
            self._add("function", found, _function_names(head), head)
        elif first in TYPES:
            self._add("type", found, _type_names(found), inner=self._members(found))
        else:
            self._add("data", found, _data_names(found))

    def _members(self, found):
        texts = [each.text for each in found]
        if "{" not in texts or "enum" in texts[:3]:
            return []
        start = texts.index("{")
        end = self._closed(self.place + start) - self.place
        return Reader(self.text, self.name, found[start + 1 : end - 1]).read()


def _tokens(text):
    kinds = ((each.lastgroup, each) for each in TOKEN.finditer(text))
    found = [
        Token(kind, each[0], each.start(), each.end()) for kind, each in kinds if kind != "skip"
    ]
    for place in _open_elsewhere(found):
        found[place] = replace(found[place], text="")
    return found


def _open_elsewhere(found):
    """Return the places of brackets in #else branches where the branches of an #if don't close what they open."""
    gone: set = set()
    stack: list = [[[]]]  # for each open #if its branches: places of their brackets
    for place, each in enumerate(found):
        word = CONDITION.match(each.text) if each.kind == "directive" else None
        if each.kind == "mark" and (each.text in CLOSED_BY or each.text in CLOSING):
            stack[-1][-1].append(place)
        elif word and word[1].startswith("if"):
            stack.append([[]])
        elif word and word[1] != "endif":
            stack[-1].append([])
        elif word and len(stack) > 1:
            first, *others = stack.pop()
            nets = [
                sum(1 if found[i].text in CLOSED_BY else -1 for i in branch)
                for branch in (first, *others)
            ]
            stack[-1][-1] += first
            for branch in others:
                if any(nets):
                    gone.update(branch)
                else:
                    stack[-1][-1] += branch
    return gone


def _opens(head):
    words = [each.text for each in head if each.kind in ("word", "text")]
    return "namespace" in words[:2] or words in (["extern", '"C"'], ["extern", '"C++"'])


def _is_call(head):
    return len(head) > 2 and head[0].kind == "word" and head[1].text == "(" and head[-1].text == ")"


def template(head: list) -> tuple[list, list]:
    """Return the tokens inside `template <…>` and those behind it."""
    inside: list = []
    while head[:1] and head[0].text == "template" and head[1:2] and head[1].text == "<":
        end, depth = 1, 1
        while depth > 0 and end + 1 < len(head):
            end += 1
            depth += ANGLES.get(head[end].text, 0)
        inside, head = head[2:end], head[end + 1 :]
    return inside, head


def _without_template(head):
    return template(head)[1]


def outside(found: list) -> list:
    """Return the tokens that stand in no bracket, and the outermost brackets."""
    kept, depth = [], 0
    for each in found:
        depth -= each.text in CLOSING
        if depth == 0 and each.kind != "directive":
            kept.append(each)
        depth += each.text in CLOSED_BY
    return kept


def _parameters_at(head):
    """Return (place of a function's name, place of the `(` behind it, or behind its <…>), or (0, 0)."""
    for place, each in enumerate(head):
        name, depth = place - 1, 0
        while name > 0 and (depth or head[name].text in (">", ">>>")):
            depth += ANGLES.get(head[name].text, 0)
            name -= 1
        if each.text != "(" or not place:
            continue
        if "operator" in [other.text for other in head[:place]]:
            return name, place
        if head[name].kind == "word" and head[name].text not in NO_NAMES:
            return name, place
    return 0, 0


def _is_function(head):
    head = outside(_without_template(head))
    _, place = _parameters_at(head)
    before = [each.text for each in head[: place or None]]
    return (
        bool(place)
        and before[0] not in ("typedef", "using")
        and ("=" not in before or "operator" in before)
    )


def _is_initializer(head):
    """True before the `{` of `Foo(int a) : b{a}`."""
    texts = [each.text for each in outside(head)]
    return (
        ":" in texts
        and texts.index(":") > _parameters_at(outside(head))[1]
        and head[-1].kind == "word"
    )


def _function_names(head):
    """Return the names before the parameters: `Foo::bar(` has two."""
    head = outside(_without_template(head))
    name, place = _parameters_at(head)
    if "operator" in [each.text for each in head[:place]]:
        return {"operator"}
    names = {head[name].text}
    while name > 1 and head[name - 1].text == "::":
        name -= 2
        names.add(head[name].text)
    return names


def _type_names(found):
    found = [each for each in _without_template(found) if each.kind != "directive"]
    words = [each.text for each in found if each.kind == "word"]
    if words[0] == "using":
        return {words[1]} if "=" in [each.text for each in found] else {words[-1], *words[1:2]}
    if "enum" in words[:2]:
        return set(words)
    bare = {each.text for each in outside(found) if each.kind == "word"} - TYPES
    if words[0] == "typedef" and "{" not in [each.text for each in found]:
        return set(words[-1:])
    return bare


def _data_names(found):
    """Return the last word of each declarator: `const int N = 3, M[2];` has N and M."""
    names, last, value = set(), "", False
    for each in outside(_without_template(found)):
        if each.text in ("=", ",", ";", "[", "{", "("):
            names |= {last} if last and not value else set()
            value = each.text == "=" or (value and each.text != ",")
            last = ""
        elif each.kind == "word":
            last = each.text
    return names
