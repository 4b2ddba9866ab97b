"""A .cu file as NVRTC takes it: what a kernel reaches stays, host code and the rest become blank lines.

Line numbers stay those of the file. Files that it includes by "name" are treated alike and handed on with it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from practice_gpus.kernels import headers
from practice_gpus.kernels.declarations import ANGLES, CONDITION, Reader, template
from practice_gpus.kernels.errors import CompileError

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^">]+)[">]')
LAMBDA = re.compile(r"(?<=\])(\s*(?:__host__|__device__|__forceinline__)\b)+(?=\s*[({])")
QUALIFIERS = {"const", "volatile", "__restrict__", "__restrict", "restrict", "__grid_constant__"}
QUALIFIERS |= {"struct", "typename", "register"}
CONSTANTS = {"const", "constexpr", "namespace"}
DEVICE_DATA = {"__shared__", "__constant__", "__device__", "__managed__"}


@dataclass(frozen=True)
class Parameter:
    """A parameter or a member: its type is `kind` without qualifiers, or a `pointer` to that, or `count` of them."""

    name: str
    kind: str
    pointer: bool
    count: int = 0

    def __str__(self):
        return self.kind + "*" * self.pointer


@dataclass(frozen=True)
class Kernel:
    """A kernel of a file, by its `name` with namespaces: its line, template parameters and parameters."""

    name: str
    line: int
    template: tuple
    parameters: tuple

    def __str__(self):
        arguments = f"<{', '.join(self.template)}>" if self.template else ""
        return f"{self.name}{arguments} (line {self.line})"


def file(path: Any) -> Unit:
    """Return the `Unit` of a .cu file: its `kernels`, and what `compile` takes. Host code in it is set aside."""
    path = Path(path)
    return Unit(path.read_text(errors="replace"), path.name, path.parent)


class Unit:
    """A CUDA C++ text with the files it includes. `folder` is where those are looked for; None: nowhere."""

    def __init__(self, text: str, name: str = "kernel.cu", folder: Path | None = None) -> None:
        self.name = name
        self.text = text
        self.missing: list = []  # included, but not here
        self.stubs: dict = {}
        self.files = {"": (text, Reader(text, name).read())}
        self._include("", folder)

    def _include(self, name, folder):
        for each in self.files[name][1]:
            found = INCLUDE.match(each.tokens[0].text) if each.kind == "directive" else None
            if not found or found[2] in self.files or headers.is_device(found[2]):
                continue
            path = folder / found[2] if folder else None
            if path and os.path.isfile(path):
                text = path.read_text(errors="replace")
                self.files[found[2]] = text, Reader(text, found[2]).read()
                self._include(found[2], path.parent)
            else:
                self.stubs[found[2]] = ""
                self.missing += [found[2]] if found[1] == '"' else []

    @cached_property
    def declarations(self) -> list:
        """Those of all files."""
        return [each for _, found in self.files.values() for each in found]

    @cached_property
    def macros(self) -> set:
        """Names of the macros that stand for __device__, __global__ or a whole kernel."""
        bodies = {
            name: each.words
            for each in self.declarations
            if each.kind == "directive"
            for name in each.names
        }
        found: set = {"__global__", "__device__"}
        while more := {name for name, words in bodies.items() if words & found} - found:
            found |= more
        return found - {"__global__", "__device__"}

    @cached_property
    def kernels(self) -> list[Kernel]:
        """The kernels that the files define, in order."""
        found: dict[Any, Any] = {}
        for each in self.declarations:
            if each.kind == "function" and any(word.text == "__global__" for word in each.head):
                if each.tokens[-1].text == "}":
                    kernel = _kernel(each)
                    found.setdefault((kernel.name, kernel.line), kernel)
        return list(found.values())

    def kernel(self, expression: str) -> Kernel | None:
        """Return the kernel that a name such as "transpose<32>" means; None where only a macro could write it.

        Raises CompileError where there is none.
        """
        name = expression.partition("<")[0].strip().removeprefix("::")
        found = [
            each for each in self.kernels if each.name == name or each.name.endswith(f"::{name}")
        ]
        if found:
            return found[0]
        if any(
            each.kind == "macro" and each.runs_on_gpu(self.macros) for each in self.declarations
        ):
            return None
        raise CompileError(f"{self.name} has no kernel named {name}; {self._choice()}")

    def only(self) -> str:
        """Return the name of the only kernel; raises CompileError where there are several, or none."""
        if len({each.name for each in self.kernels}) == 1:
            return self.kernels[0].name
        raise CompileError(
            f"{self.name} {'has several kernels: name one' if self.kernels else 'has no kernel'}; {self._choice()}"
        )

    def _choice(self):
        if not self.kernels:
            return "a kernel is a function that begins with __global__ void"
        return f"it has {', '.join(map(str, self.kernels))}"

    def request(self, expression: str) -> dict:
        """Return what NVRTC is asked: texts, the kernel's name, and the names of variables that a host would set."""
        name = self._expression(expression)
        kept, words = self._reached(name)
        cuts = {name: self._cuts(found, kept, words) for name, (_, found) in self.files.items()}
        texts = {name: _render(text, cuts[name]) for name, (text, _) in self.files.items()}
        request = {"text": texts.pop(""), "name": name, "file": self.name}
        request["choice"] = ", ".join(map(str, self.kernels)) or "its kernels"
        request["missing"] = self.missing
        request["headers"] = self.stubs | texts
        request["prelude"] = headers.prelude(words, self._namespaces())
        request["symbols"] = [name for each in kept.values() for name in _symbols(each)]
        return request

    def _expression(self, expression):
        """Return a kernel's name with its namespaces, as NVRTC takes it."""
        kernel = self.kernel(expression)
        if kernel is None:
            return expression
        _, bracket, arguments = expression.partition("<")
        if kernel.template and not bracket and "=" not in kernel.template[0]:
            raise CompileError(
                f"{self.name} line {kernel.line}: {kernel.name} is a template; give its arguments, "
                f"such as '{kernel.name}<{', '.join(map(_example, kernel.template))}>'"
            )
        return kernel.name + bracket + arguments

    def _cuts(self, found, kept, words):
        """Yield (declaration, what stays of it) for what goes; conditions of the preprocessor stay."""
        for each in found:
            if each.kind == "directive":
                include = INCLUDE.match(each.tokens[0].text)
                if include and not headers.is_needed(include[2], words):
                    yield each, ""
            elif each.kind != "bracket" and id(each) not in kept:
                directives = [one.text for one in each.tokens if one.kind == "directive"]
                conditions = [text.strip() for text in directives if CONDITION.match(text)]
                yield each, "".join(f"\n{text}\n" for text in conditions)
            for one in each.inner if id(each) in kept else ():
                is_body = one.kind == "function" and one.tokens[-1].text == "}"
                if is_body and not one.runs_on_gpu(self.macros):
                    yield one, ";"

    def _namespaces(self):
        """Return the namespaces that are used whole; each has to exist."""
        found = [[t.text for t in each.tokens] for each in self.declarations if each.kind == "type"]
        return ["".join(texts[2:-1]) for texts in found if texts[:2] == ["using", "namespace"]]

    def _reached(self, expression):
        """Return {id: declaration} of what the kernel reaches by names, and all those names."""
        by_name: dict = {}
        for each in self.declarations:
            for name in each.names:
                by_name.setdefault(name, []).append(each)
        always = [
            each for each in self.declarations if each.kind == "macro" or "namespace" in each.names
        ]
        todo = [*always, *by_name.get("operator", ())]
        todo += [each for word in re.findall(r"\w+", expression) for each in by_name.get(word, ())]
        kept, words = {}, set()
        while todo:
            each = todo.pop()
            if id(each) in kept or not self._is_for_gpu(each):
                continue
            kept[id(each)] = each
            new = each.words - words
            words |= new
            todo += [other for word in new for other in by_name.get(word, ())]
        return kept, words

    def parameters(self, expression: str) -> tuple[Parameter, ...]:
        """Return the parameters of a kernel, with the types that its template arguments and the file's aliases give."""
        kernel = self.kernel(expression)
        if kernel is None:
            return ()
        types = _arguments_of(kernel.template, expression)
        return tuple(replace(self._resolved(each, types), count=0) for each in kernel.parameters)

    def _resolved(self, parameter, types):
        kind, pointer = parameter.kind, parameter.pointer
        for _ in range(8):
            new = types.get(kind) or self.aliases.get(kind)
            if not new:
                break
            pointer = pointer or new.endswith("*")
            kind = new.rstrip("*& ").removeprefix("const ").strip()
        return replace(parameter, kind=kind, pointer=pointer)

    def members(self, kind: str) -> list[Parameter]:
        """Return the members of a struct, in order; `kind` such as "Shape" or "Clamp<float>"."""
        name = kind.partition("<")[0].strip().rpartition("::")[2]
        found = next(
            (each for each in self.declarations if name in each.names and each.inner), None
        )
        types = _arguments_of(_template_of(found.tokens), kind) if found else {}
        members: list = []
        for each in found.inner if found else ():
            if each.kind == "data":
                first, *others = _split(each.tokens[:-1])
                members.append(self._resolved(_parameter(first), types))
                members += [
                    self._resolved(Parameter(o[-1].text, members[-1].kind, o[0].text == "*"), {})
                    for o in others
                ]
        return members

    def _is_for_gpu(self, declaration):
        """False for functions and variables of the host; a constant of it may be used on the GPU, too."""
        if declaration.kind == "data":
            return not declaration.words.isdisjoint(DEVICE_DATA | CONSTANTS | self.macros)
        return not declaration.head or declaration.runs_on_gpu(self.macros)

    def variables(self, name: str) -> list:
        """Return the declarations of a variable of the GPU."""
        return [each for each in self.declarations if name in _symbols(each)]

    def is_set_by_host(self, name: str) -> bool:
        """True where host code copies to the variable, or it is __constant__ without a value."""
        for each in self.declarations:
            texts = [token.text for token in each.tokens]
            if name in _symbols(each) and "__constant__" in texts and not {"=", "{"} & set(texts):
                return True
        return bool(re.search(rf"cudaMemcpyToSymbol(?:Async)?\s*\(\s*&?{name}\b", self.text))

    @cached_property
    def aliases(self) -> dict:
        """{name: type} of typedefs, usings and macros that stand for a type, where it is one whatever the #ifs say."""
        found: dict = {}
        for each in self.declarations:
            texts = [token.text for token in each.tokens]
            if each.kind == "type" and texts[0] == "using" and "=" in texts:
                found.setdefault(texts[1], set()).add(" ".join(texts[3:-1]))
            elif each.kind == "type" and texts[0] == "typedef":
                found.setdefault(texts[-2], set()).add(" ".join(texts[1:-2]))
            elif (
                each.kind == "directive"
                and each.names
                and len(words := each.tokens[0].text.split()) > 2
            ):
                found.setdefault(words[1], set()).add(" ".join(words[2:]))
        return {name: min(kinds) for name, kinds in found.items() if len(kinds) == 1}


def _symbols(declaration):
    texts = {each.text for each in declaration.tokens}
    if declaration.kind != "data" or not texts & (DEVICE_DATA - {"__shared__"}):
        return []
    return ["::".join((*declaration.space, name)) for name in sorted(declaration.names)]


def _render(text, cuts):
    """Return the text without its `cuts`, [(declaration, what stays of it)]; lines keep their numbers."""
    text = LAMBDA.sub(lambda found: re.sub(r"\S", " ", found[0]), text)  # NVRTC takes them without
    parts, place = [], 0
    for each, stays in cuts:
        start, end = each.tokens[0].start, each.tokens[-1].end
        blank = "\n" * (text.count("\n", start, end) - stays.count("\n"))
        parts += [text[place:start], stays, blank]
        place = end
    return "".join([*parts, text[place:]])


def _kernel(declaration):
    head = declaration.head
    name = max(declaration.names, key=len)
    parameters_of, head = _template_of(head), template(head)[1]
    place = next(i for i, each in enumerate(head) if each.text == name and head[i + 1].text == "(")
    depth, last = 0, place + 1
    for last in range(place + 1, len(head)):
        depth += (head[last].text == "(") - (head[last].text == ")")
        if depth == 0:
            break
    parameters = tuple(_parameter(each) for each in _split(head[place + 2 : last]))
    return Kernel(
        "::".join((*declaration.space, name)), declaration.line, parameters_of, parameters
    )


def _template_of(tokens):
    """Return the parameters of a template, such as ("typename T", "int N")."""
    return tuple(" ".join(t.text for t in each) for each in _split(template(tokens)[0]))


def _arguments_of(parameters, expression):
    """Return {parameter of a template: its argument} in an expression such as "transpose<float, 32>"."""
    names = [each.partition("=")[0].split()[-1] for each in parameters]
    given = expression.partition("<")[2].rpartition(">")[0]
    return dict(zip(names, (each.strip() for each in given.split(",")), strict=False))


def _split(found):
    """Return lists of tokens between the commas that stand in no bracket."""
    parts, depth = [[]], 0
    for each in found:
        if each.kind == "directive":
            continue
        depth += ANGLES.get(each.text, 0) + (each.text in "([{") - (each.text in ")]}")
        if each.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(each)
    return [each for each in parts if each]


def _parameter(found):
    texts = [each.text for each in found]
    texts = texts[: texts.index("=")] if "=" in texts else texts
    pointer = bool({"*", "&", "["} & set(texts))
    count = (
        next((int(each) for each in texts[texts.index("[") :] if each.isdigit()), 0)
        if "[" in texts
        else 0
    )
    bare = texts[: texts.index("[")] if "[" in texts else texts
    words = [each for each in bare if each not in ("*", "&", *QUALIFIERS)]
    name = words[-1] if len(words) > 1 else ""
    kind = " ".join(words[:-1] or words).replace(" :: ", "::") + "*" * (texts.count("*") - 1)
    return Parameter(name, kind, pointer, count)


def _example(parameter):
    words = parameter.split()
    return {"typename": "float", "class": "float", "bool": "true"}.get(words[0], "32")
