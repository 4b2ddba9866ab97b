// What a page of the site does where a script runs: charts answer, guesses are judged, the search forgives a typo.
const bring = (file, then) => {
    const script = document.createElement("script");
    script.src = file;
    script.onload = then;
    document.head.append(script);
};
const clean = (text) => text.trim().toLowerCase();

// Charts come alive; where that fails, their pictures stay.
const draw = async (chart) => {
    const place = document.createElement("div");
    chart.prepend(place);
    try {
        await vegaEmbed(place, JSON.parse(chart.dataset.spec), JSON.parse(chart.dataset.options));
        chart.querySelector("img").remove();
    } catch { place.remove(); }
};
const charts = document.querySelectorAll(".chart");
if (charts.length) bring("vega.js", () => window.vegaEmbed && charts.forEach(draw));
document.addEventListener("toggle", () => dispatchEvent(new Event("resize")), true);
document.querySelector("main").addEventListener("click", ({target}) => {  // a phone shows figures small
    if (target.matches("img") && !target.closest("a")) target.classList.toggle("large");
});
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach(
    (fold) => { fold.open = true; }));

// What scrolls can be scrolled by arrow keys, and Tab stops at nothing else.
const scrolled = () => document.querySelectorAll("main :is(pre, .jp-OutputArea-output, .jp-RenderedMarkdown)")
    .forEach((part) => {
        if (part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX === "auto") part.tabIndex = 0;
        else part.removeAttribute("tabindex");
    });
addEventListener("load", scrolled);
addEventListener("resize", scrolled);  // a fold that opens sends it too

// Guesses. The first one counts, as in JupyterLab; arrow keys pass other choices on their way, so a button confirms.
const number = (value) => Number(value.toPrecision(3)).toLocaleString("en", {maximumSignificantDigits: 3});
function judge(form, state, words) {
    const said = form.querySelector("[role=status]"), fold = document.getElementById(form.dataset.reveal);
    form.querySelectorAll("input, button").forEach((control) => { control.disabled = true; });
    form.querySelectorAll("label ~ button").forEach((button) => { button.hidden = true; });
    form.dataset.state = state;
    said.textContent = `${words} `;
    fold.open = true;
    const link = document.createElement("a");
    link.href = `#${fold.id}`;
    link.textContent = "See why";
    said.append(link);
    said.tabIndex = -1;
    said.focus({preventScroll: true});
}
function choose(form, radio) {
    const {right} = form.dataset, words = (place) => form.querySelectorAll("label span")[place].textContent;
    const own = `You predicted “${words(radio.value)}”.`;
    if (right === undefined) judge(form, "open", own);
    else if (radio.value === right) judge(form, "right", `✓ Right! ${own}`);
    else judge(form, "wrong", `✗ Not this time. ${own} The answer is “${words(right)}”.`);
}
function weigh(form, guess, unit) {
    const actual = Number(form.dataset.actual), own = `You predicted ${number(guess)} ${unit}.`;
    if (!actual) return judge(form, "open", own);
    const factor = Math.max(guess / actual, actual / guess), way = guess > actual ? "high" : "low";
    const {near, close} = form.dataset;  // factors, as in JupyterLab
    const title = factor <= near ? "✓ Spot on!" : factor <= close ? "✓ Close!" : `✗ ${number(factor)} times too ${way}.`;
    judge(form, factor <= close ? "right" : "wrong", `${title} ${own} It is ${number(actual)} ${unit}.`);
}
for (const form of document.querySelectorAll("form.guess")) {
    const range = form.querySelector("[type=range]");
    let pointed = false;
    const value = () => {
        const {low, high} = range.dataset;
        return Number((low * (high / low) ** (range.value / 100)).toPrecision(2));
    };
    const settle = () => {
        const radio = form.querySelector(":checked");
        if (form.dataset.state) return;
        if (range) weigh(form, value(), range.dataset.unit);
        else if (radio) choose(form, radio);
    };
    const told = () => { form.querySelector("output").textContent = `${number(value())} ${range.dataset.unit}`; };
    if (range) { range.addEventListener("input", told); told(); }
    form.addEventListener("pointerdown", () => { pointed = true; });
    form.addEventListener("keydown", (event) => {
        pointed = false;
        if (event.key === "Enter") { event.preventDefault(); settle(); }
    });
    form.addEventListener("submit", (event) => { event.preventDefault(); settle(); });
    form.addEventListener("change", () => {
        if (range) return;
        if (pointed) settle();
        else form.querySelector("button").hidden = false;
    });
    addEventListener("pageshow", () => {  // a browser brings choices back, but no verdicts
        if (form.dataset.state) return;
        form.reset();
        if (range) told();
    });
}

// The search: the words as they stand, then all of them in any order, then words that are nearly theirs, then the
// sections that have most of them.
const box = document.getElementById("search"), found = document.getElementById("found");
box.parentElement.hidden = false;
box.addEventListener("focus", () => bring("search.js", search), {once: true});
box.addEventListener("input", () => search());
function distance(one, other) {  // letters to add, remove, change or swap
    let before = [], row = [...Array(other.length + 1).keys()];
    for (let i = 1; i <= one.length; i++) {
        const last = row;
        row = [i];
        for (let j = 1; j <= other.length; j++) {
            const same = one[i - 1] === other[j - 1];
            row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
                row[j] = Math.min(row[j], before[j - 2] + 1);
        }
        before = last;
    }
    return row[other.length];
}
let known;
function nearest(word) {  // the known word that is at most one letter off, two in a long word
    known ??= new Set(pages.flatMap((row) => clean(row.slice(1).join(" ")).match(/[\p{L}\d_]{3,}/gu) ?? []));
    if (known.has(word)) return word;
    const most = word.length > 6 ? 2 : 1;
    const near = [...known].filter((each) => Math.abs(each.length - word.length) <= most && each[0] === word[0])
        .map((each) => [distance(word, each), each]).filter(([off]) => off <= most).sort(([a], [b]) => a - b);
    return near.length ? near[0][1] : word;
}
const begins = (word) => {  // "oom" isn't in "room"
    const begin = /^[\p{L}\d_]/u.test(word) ? "(?<![\\p{L}\\d_])" : "";
    const words = new RegExp(begin + word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "iu");
    return (text) => words.test(text);
};
const kind = ([address]) => /^9[12]_/.test(address) ? 0 : /^(\d|index)/.test(address) ? 1 : 2;  // last: no lessons
function rowsOf(words, all = true) {  // a rare word weighs more
    const ways = words.map(begins), told = pages.map((row) => row.slice(1).join(" "));
    const weights = ways.map((has) => Math.log((pages.length + 1) / (told.filter(has).length + 1)));
    const scores = told.map((text) => ways.map((has) => has(text)));
    const score = (hits) => hits.reduce((sum, hit, at) => sum + hit * weights[at], 0);
    const enough = (hits) => all ? hits.every(Boolean) : hits.filter(Boolean).length * 2 >= hits.length;
    const sure = (row) => ways.every((has) => has(row[2])) || (words.join(" ").includes(" ") && kind(row) === 0);
    const often = (row) => clean(row[3]).split(words[0]).length;
    return pages.map((row, at) => [row, scores[at]]).filter(([, hits]) => enough(hits))
        .sort(([one, hits], [other, others]) => (all ? sure(other) - sure(one) : score(others) * (3 - kind(other)) - score(hits) * (3 - kind(one)))
            || kind(one) - kind(other) || often(other) - often(one))
        .map(([row]) => row);
}
function search() {
    if (typeof pages === "undefined") return;
    const asked = clean(box.value), words = asked.match(/[\p{L}\d_]{2,}/gu) ?? [asked];
    if (asked.length < 2) return found.replaceChildren();
    let used = [asked], rows = rowsOf(used);
    if (!rows.length) rows = rowsOf(used = words);
    if (!rows.length) rows = rowsOf(used = words.map(nearest));
    const part = !rows.length;
    if (part) rows = rowsOf(used = words, false);
    const shown = rows.slice(0, 20).map(([address, page, section, text]) => {
        const item = document.createElement("li"), link = document.createElement("a");
        const at = Math.max(0, clean(text).indexOf(used[0]));
        link.href = address;
        link.textContent = section && !page.endsWith(section) ? `${page}: ${section}` : page;
        item.append(link, ` … ${text.slice(Math.max(0, at - 60), at + 80)} …`);
        return item;
    });
    const note = document.createElement("li");
    if (!rows.length) note.textContent = `No page has “${asked}”. Try a shorter word.`;
    else if (part) note.textContent = `No page has all of “${asked}”. These come closest:`;
    else if (used.join(" ") !== asked) note.textContent = `No page has “${asked}”. These have “${used.join(" ")}”:`;
    found.replaceChildren(...(note.textContent ? [note] : []), ...shown);
}
