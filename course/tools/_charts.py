"""Vega for pages without a kernel, taken from the installed JupyterLab: nothing is fetched, then or later."""

import json
import re
from functools import cache
from pathlib import Path

from jupyter_core.paths import jupyter_path

# What JupyterLab's bundle says of a package that its parts share: its files, its number; who asks for it by which number
SHARED = re.compile(
    r'"(vega(?:-lite|-embed)?)",(?:version:)?"[\d.]+",(?:factory:)?\(?\(\)=>'
    r"(.{5,150}?)\.then\(\(?\(\)=>\(?\(\)=>\w+\((\d+)\)"
)
ASKED = re.compile(
    r'(\d+):(?:{shareScope:|\(\)=>\w+\()"default",(?:shareKey:)?"(vega(?:-lite|-embed)?)"'
)
# The little that a bundle needs of its loader; it leaves one name, vegaEmbed
LOADER = """(() => {
const console = {...window.console, warn() {}};  // of heights by steps, which are meant
const parts = {}, made = {}, same = SAME;
const store = new Proxy({}, {
    get: (_, name) => /Chunk_/.test(name) ? {push: ([, more]) => Object.assign(parts, more)} : window[name],
    set: () => true});
const own = (of, name) => Object.hasOwn(of, name);
function need(number) {
    const id = same[number] ?? number;
    if (!own(made, id)) {
        const part = made[id] = {id, exports: {}};
        // one may be elsewhere: an empty stand-in for Node's process
        parts[id]?.call(part.exports, part, part.exports, need);
    }
    return made[id].exports;
}
need.o = own;
need.g = window;
need.r = to => Object.defineProperty(to, '__esModule', {value: true});
need.d = (to, from) => {
    for (const name in from)
        if (!own(to, name)) Object.defineProperty(to, name, {enumerable: true, get: from[name]});
};
need.n = part => {
    const get = part?.__esModule ? () => part.default : () => part;
    need.d(get, {a: get});
    return get;
};
(self => {
FILES
})(store);
const embed = need(EMBED);
window.vegaEmbed = embed.default ?? embed;
})();
"""


@cache
def vega() -> str | None:
    """Return a script that defines vegaEmbed; None without a JupyterLab from 4.2 on, or where it is built otherwise."""
    for folder in map(Path, jupyter_path("lab", "static")):
        for main in folder.glob("main.*.js"):
            text = main.read_text(encoding="utf-8")
            shared = {name: (files, number) for name, files, number in SHARED.findall(text)}
            if len(shared) == 3:
                same = {number: shared[name][1] for number, name in ASKED.findall(text)}
                return script(folder, shared, same)
    return None


def script(folder: Path, shared: dict[str, tuple[str, str]], same: dict[str, str]) -> str:
    """Return the loader with the files of the three packages in it."""
    numbers = {n for files, _ in shared.values() for n in re.findall(r"\.e\((\d+)\)", files)}
    files = sorted(path for n in numbers for path in folder.glob(f"{n}.*.js"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    text = LOADER.replace("SAME", json.dumps(same)).replace("EMBED", shared["vega-embed"][1])
    return text.replace("FILES", code.replace("</script", "<\\/script"))
