// What a page of the site does where a script runs: charts answer, guesses are judged, the search forgives a typo.
const bring = (file, then) => {
    const script = document.createElement("script");
    script.src = file;
    script.onload = then;
    document.head.append(script);
};
const clean = (text) => text.trim().toLowerCase();

// Charts come alive, their titles as wide as they are; where that fails, their pictures stay.
function wrap(title, letters) {
    const fit = (text, letters) => text?.expr
        ? {expr: `slice(split(replace(${text.expr}, regexp("(.{1,${letters}})( |$)", "g"), "$1\\n"), "\\n"), 0, -1)`}
        : typeof text === "string" ? text.match(RegExp(`.{1,${letters}}( |$)`, "g")) : text;
    if (!title?.text) return fit(title, letters);
    return {...title, text: fit(title.text, letters), subtitle: fit(title.subtitle, Math.floor(1.25 * letters))};
}
const room = 120;  // pixels at a phone's right edge that a chart leaves to its labels; what needs more scrolls
const widen = async (chart) => {
    const past = () => Math.max(0, ...[...chart.querySelectorAll("svg text")].map((part) =>
        Math.ceil(part.getBoundingClientRect().right - chart.getBoundingClientRect().right)));
    const {view} = chart, before = view?.padding();
    for (let tries = 0; view && innerWidth < 640 && !chart.classList.contains("wide") && past() > 2 && tries < 4; tries++) {
        const padding = view.padding(), right = padding.right + past() + 4;
        if (right > room) { view.padding(before); break; }
        await view.padding({...padding, right}).resize().runAsync();
        dispatchEvent(new Event("resize"));
        await new Promise((done) => setTimeout(done, 50));
    }
    if (past() > 2) chart.classList.add("wide");
    dispatchEvent(new Event("resize"));
};
const draw = async (chart) => {
    const place = document.createElement("div"), spec = JSON.parse(chart.dataset.spec);
    chart.prepend(place);
    if (innerWidth < 640) {
        spec.title = wrap(spec.title, Math.floor(innerWidth / 12));
        spec.autosize &&= {...spec.autosize, resize: true};  // a title may grow to a second line
        chart.addEventListener("input", () => setTimeout(() => widen(chart), 100));
    }
    try {
        chart.view = (await vegaEmbed(place, spec, JSON.parse(chart.dataset.options))).view;
        chart.querySelector("img").remove();
        widen(chart);
    } catch { place.remove(); }
};
const charts = document.querySelectorAll(".chart");
if (charts.length) bring("vega.js", () => window.vegaEmbed && charts.forEach(draw));
document.addEventListener("toggle", ({target}) => {
    target.querySelectorAll(".chart").forEach(widen);
    dispatchEvent(new Event("resize"));
}, true);
addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach(
    (fold) => { fold.open = true; }));

// A phone shows a picture whole; its words may be too small there.
for (const picture of document.querySelectorAll("main :is(.jp-RenderedImage, .course-figure:not(.chart), .jp-RenderedMarkdown p) > img")) {
    const button = document.createElement("button");
    button.className = "enlarge";
    button.textContent = "Enlarge";
    button.addEventListener("click", () => {
        button.textContent = picture.classList.toggle("large") ? "Fit the screen" : "Enlarge";
        scrolled();
    });
    picture.addEventListener("click", () => innerWidth < 640 && button.click());
    picture.after(button);
}

// What scrolls can be scrolled by arrow keys, and Tab stops at nothing else.
const scrolled = () => document.querySelectorAll("main :is(pre, .jp-OutputArea-output, .jp-RenderedMarkdown)")
    .forEach((part) => {
        if (part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX === "auto") part.tabIndex = 0;
        else part.removeAttribute("tabindex");
    });
addEventListener("load", scrolled);
addEventListener("resize", scrolled);  // a fold that opens sends it too

// Guesses. The first one counts, as in JupyterLab; arrow keys pass other choices on their way, so a button confirms.
const kept = (() => { try { return sessionStorage; } catch { return {}; } })();  // a guess, for who comes back
const number = (value) => Number(value.toPrecision(3)).toLocaleString("en", {maximumSignificantDigits: 3});
function judge(form, state, words) {
    const said = form.querySelector("[role=status]"), fold = document.getElementById(form.dataset.reveal);
    form.querySelectorAll("input, button").forEach((control) => { control.disabled = true; });
    form.querySelectorAll("label ~ button").forEach((button) => { button.hidden = true; });
    form.dataset.state = state;
    form.querySelectorAll("label")[form.dataset.right]?.classList.add("right");
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
    const place = `${location.pathname}#${form.dataset.reveal}`;
    let pointed = false;
    const value = () => {
        const {low, high} = range.dataset;
        return Number((low * (high / low) ** (range.value / 100)).toPrecision(2));
    };
    const settle = () => {
        const radio = form.querySelector(":checked");
        if (form.dataset.state || !(range || radio)) return;
        kept[place] = range?.value ?? radio.value;
        if (range) weigh(form, value(), range.dataset.unit);
        else choose(form, radio);
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
        const guess = kept[place], radio = guess && form.querySelector(`[type=radio][value="${guess}"]`);
        if (radio) radio.checked = true;
        if (range) { range.value = guess ?? range.value; told(); }
        if (guess) { settle(); document.activeElement.blur(); }
    });
}

// The search: sections named so, then those with the words as they stand, then with all of them; what no page has is
// taken for a typo, and at last come the sections that have most of the words.
const box = document.getElementById("search"), found = document.getElementById("found");
box.parentElement.hidden = false;
box.addEventListener("focus", () => bring("search.js", search), {once: true});
box.addEventListener("input", () => search());
addEventListener("pageshow", () => box.value && bring("search.js", search));  // words that a browser brought back
box.addEventListener("keydown", ({key}) => {
    if (key === "Enter") found.querySelector("a")?.click();
    if (key === "Escape") { box.value = ""; search(); }
});
const SAME = {multiple: ["several"], multi: ["several"]};
const wordsOf = (text) => clean(text).match(/[\p{L}\d_]{2,}/gu) ?? [clean(text)];
const fewer = (word) => [word, ...[...word].map((_, at) => word.slice(0, at) + word.slice(at + 1))];  // a letter less
let known;
function repaired(word) {  // two words are one letter apart, or have two swapped, if both become one
    if (!known) {
        known = new Map();
        for (const each of new Set(pages.flatMap((row) => wordsOf(row.slice(1, 4).join(" ")))))
            if (each.length > 3) fewer(each).forEach((less) => known.set(less, known.get(less) ?? each));
    }
    return has(word) ? word : fewer(word).map((less) => known.get(less)).find(Boolean) ?? word;
}
function begins(word) {  // "oom" isn't in "room"
    const begin = /^[\p{L}\d_]/u.test(word) ? "(?<![\\p{L}\\d_])" : "";
    const ways = [/^\w{3,}s$/.test(word) ? word.slice(0, -1) : word, ...SAME[word] ?? []];  // of several things, or of one
    return RegExp(`${begin}(?:${ways.map((way) => way.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "iu");
}
const has = (word) => pages.some((row) => begins(word).test(row.join(" ")));
const kind = ([address]) => /^9[12]_/.test(address) ? 0 : /^(\d|index)/.test(address) ? 1 : 2;  // last: no lessons
function ranked(asked, words) {
    const phrase = begins(asked), ways = words.map(begins), all = (text) => ways.every((way) => way.test(text));
    const tier = ([, page, heading, prose, code]) => clean(heading) === asked ? 0 : phrase.test(heading) ? 1
        : all(heading) ? 2 : phrase.test(prose) ? 3 : phrase.test(code) ? 4 : all(`${page} ${heading} ${prose}`) ? 5 : all(code) ? 6 : 7;
    const rows = pages.map((row) => [tier(row), kind(row), -clean(row[3]).split(words[0]).length, row])
        .sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
    const last = rows[0][0] < 5 || words.length > 6 ? 4 : 6;  // words far apart, only where no others are
    return rows.filter(([at]) => at <= last).map(([,,, row]) => row);
}
function closest(words) {  // a rare word weighs more
    const ways = words.map(begins), texts = pages.map((row) => row.join(" "));
    const weights = ways.map((way) => Math.log(pages.length / (1 + texts.filter((text) => way.test(text)).length)));
    const score = (text) => ways.reduce((sum, way, at) => sum + weights[at] * way.test(text), 0);
    return pages.map((row, at) => [score(texts[at]) * (3 - kind(row) + /#error-/.test(row)), row])
        .filter((_, at) => ways.filter((way) => way.test(texts[at])).length * 2 >= words.length)
        .sort(([one], [other]) => other - one).map(([, row]) => row);
}
function entry([address, page, section, prose, code], words) {
    const item = document.createElement("li"), link = document.createElement("a");
    const lines = `${prose}\n${code}`.split("\n"), hits = (line) => words.filter((word) => begins(word).test(line)).length;
    const line = lines.reduce((best, each) => hits(each) > hits(best) ? each : best, lines[0]);
    const at = line.search(begins(words[0])), from = at > 60 ? line.indexOf(" ", at - 60) + 1 : 0;
    const rest = line.slice(from), end = rest.length > 140 ? rest.lastIndexOf(" ", 140) : rest.length;
    link.href = address;
    link.textContent = section && !page.endsWith(section) ? `${page}: ${section}` : page;
    item.append(link, ` ${from ? "… " : ""}${rest.slice(0, end)}${end < rest.length ? " …" : ""}`);
    return item;
}
function search() {
    if (typeof pages === "undefined") return;
    const asked = clean(box.value), note = document.createElement("li");
    if (asked.length < 2) return found.replaceChildren();
    let words = wordsOf(asked), rows = ranked(asked, words);
    const better = rows.length ? words : words.map(repaired), meant = better.join(" ");
    if (!rows.length && better.some((word, at) => word !== words[at])) {
        rows = ranked(meant, words = better);
        if (rows.length) note.textContent = `Showing results for: ${meant}`;
    }
    if (!rows.length) {
        rows = closest(words);
        note.textContent = rows.length ? "No page has all of these words. These come closest:" : `No page has “${asked}”. Try a shorter word.`;
    }
    found.replaceChildren(...(note.textContent ? [note] : []), ...rows.slice(0, 6).map((row) => entry(row, words)));
}
