// Opens a notebook at the cell where one was, and not at its top; says in its toolbar how much is done; shows that a cell is
// running; stops once before one that lacks a guess or a name; keeps what it shows in view; closes the list of files the first time, because it takes a quarter of a small screen
// from the page. Written by hand in the form in which JupyterLab loads extensions, so that nothing has to be built.
async function follow(app, panel) {
    const notebook = panel && panel.content;
    if (!notebook || !notebook.activeCellChanged || !panel.context || notebook.coursePlace) return;
    notebook.coursePlace = `course-place:${panel.context.path}`;
    await panel.context.ready;
    showWaits(notebook);
    showDone(app, panel);
    let active = notebook.activeCell;
    notebook.activeCellChanged.connect((_, cell) => { [notebook.courseBefore, active] = [active, cell]; });
    await panel.revealed;
    const last = localStorage.getItem(notebook.coursePlace);
    const known = notebook.widgets.findIndex(cell => cell.model.id === last);
    const index = known < 0 ? lastRun(notebook.widgets) : known;
    if (index > 0) {
        notebook.activeCellIndex = index;
        await notebook.scrollToCell(notebook.widgets[index], 'center');
    }
    notebook.activeCellChanged.connect((_, cell) => {
        if (cell) localStorage.setItem(notebook.coursePlace, cell.model.id);
    });
}

// The place of the cell that was run last, for a browser that doesn't know where one was; 0 once the page has been run through.
function lastRun(cells) {
    const counts = cells.map(cell => (cell.model.type === 'code' && cell.model.executionCount) || 0);
    const last = counts.indexOf(Math.max(...counts));
    const open = cells.findIndex((cell, place) => place > last && cell.model.type === 'code');
    return open < 0 ? 0 : last;
}

const ALL_ABOVE = 'New session: run all above';
const STAYS = 'Ctrl+Enter runs a cell and stays in it';
const ran = panel => `course-kernel:${panel.context.path}`; // where the last kernel is kept that ran something
const kernelOf = panel => panel.sessionContext.session?.kernel?.id;
const isNew = panel => Boolean(kernelOf(panel)) && localStorage.getItem(ran(panel)) !== kernelOf(panel);
const shown = cell => cell.outputs.map(({data}) => [data?.['text/html'] || ''].flat().join('')).join('');

// In the toolbar stands how many of the page's questions are guessed and how many exercises solved, as its outputs have it:
// without a kernel, too. A cell with an error or no outputs counts as before: in a new session, a name may be missing. What
// such a session needs first stands there too, until something has run in it.
function showDone(app, panel) {
    const sign = Object.assign(document.createElement('span'), {className: 'course-done'});
    panel.toolbar.node.querySelector('.jp-Toolbar-spacer').append(sign);
    let waiting;
    const session = panel.sessionContext, key = ran(panel);
    const update = () => {
        const notebook = panel.content, told = done(notebook.widgets.map(cell => cell.model));
        if (notebook.courseRuns) return;
        if (notebook.courseHold && !reason(panel, notebook.courseHold.cell)) notebook.courseHold.sign.remove();
        const new_ = /[1-9]\d* of/.test(told) && isNew(panel) && codeAbove(notebook).length;
        const words = new_ ? `${ALL_ABOVE} ${told}` : told && `${told}. ${STAYS}`;
        if (!words || sign.textContent === words) return;
        sign.textContent = words;
        if (new_) sign.replaceChildren(button(ALL_ABOVE, () => runAbove(app, notebook, sign).then(update)), ` ${told}`);
    };
    const soon = () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => panel.isDisposed || update(), 300);
    };
    session.iopubMessage.connect((_, {header}) => {
        if (header.msg_type === 'execute_input') localStorage.setItem(key, session.session.kernel.id);
    });
    session.statusChanged.connect((_, status) => {
        if (/restarting$/.test(status)) {
            localStorage.removeItem(key);
            panel.content.widgets.forEach(cell => { delete cell.courseHeld; });
        }
        soon();
    });
    panel.content.model.contentChanged.connect(soon);
    panel.content.activeCellChanged.connect(soon);
    update();
}

const codeAbove = notebook => notebook.widgets.slice(0, notebook.activeCellIndex).filter(cell => cell.model.type === 'code');
const runs = cell => cell && !cell.isDisposed && cell.model.executionState === 'running';

function button(words, act) {
    const made = Object.assign(document.createElement('button'), {textContent: words});
    made.addEventListener('click', act);
    return made;
}

// Runs all cells above the active one; `sign` counts them meanwhile.
async function runAbove(app, notebook, sign) {
    const above = codeAbove(notebook);
    const tell = () => { sign.textContent = `Running ${Math.max(above.findIndex(runs), 0) + 1} of ${above.length}…`; };
    const timer = setInterval(() => above.some(runs) && tell(), 100);
    notebook.courseRuns = true;
    notebook.activate(); // the button that was pressed is gone
    tell();
    await app.commands.execute('notebook:run-all-above').finally(() => clearInterval(timer));
    notebook.courseRuns = false;
}

function done(cells) {
    const code = cells.filter(cell => cell.type === 'code').map(cell => cell.toJSON());
    const found = (text, words) => (text.match(words) || []).length;
    const count = (asks, answered) => code.map(cell => {
        const all = found([cell.source].flat().join(''), asks), key = `course-done:${cell.id}:${answered.source}`;
        const says = cell.outputs.length && !cell.outputs.some(each => each.output_type === 'error');
        const n = Math.min(all, says ? found(shown(cell), answered) : Number(localStorage.getItem(key)));
        if (n) localStorage.setItem(key, n);
        else localStorage.removeItem(key);
        return [n, all];
    }).reduce((sum, each) => [sum[0] + each[0], sum[1] + each[1]], [0, 0]);
    const parts = {guessed: count(/\bpredict\(/g, /course-chosen/g), solved: count(/\.check\(/g, /course-right/g)};
    return Object.entries(parts).filter(([, [, all]]) => all).map(([word, [n, all]]) => `${n} of ${all} ${word}`).join(', ');
}

// Shift+Enter stops once above a cell that compares a guess not made yet, or that a new session lacks the names for: a training
// ran before the question was seen, and a verdict of the day before gave way to an error. Pressed again, it runs the cell.
const RUNS = 'notebook:run-cell-and-select-next';

function holdBack(app) {
    const execute = app.commands.execute.bind(app.commands);
    app.commands.execute = (id, args) => {
        const panel = app.shell.currentWidget, ours = BY_HAND.test(id) && panel?.content?.coursePlace;
        if (ours && id === RUNS && hold(app, panel)) return Promise.resolve();
        const cell = ours && panel.content.activeCell, unguessed = cell?.courseHeld && reason(panel, cell)?.node;
        if (ours) keepSliders(cell);
        const result = execute(id, args);
        if (unguessed) result.then(() => showAnyway(cell));
        return result;
    };
}

// Pressed twice without a guess: what the cell has folded is shown as soon as it is drawn.
function showAnyway(cell) {
    const end = performance.now() + SETTLES;
    const timer = setInterval(() => {
        const folds = cell.node.querySelectorAll('.jp-OutputArea .course-panel + details');
        folds.forEach(fold => { fold.open = true; });
        if (folds.length || performance.now() > end) clearInterval(timer);
    }, 50);
}

function hold(app, panel) {
    const notebook = panel.content, cell = notebook.activeCell, why = cell && reason(panel, cell), now = performance.now();
    notebook.courseHold?.sign.remove();
    if (!why || now - cell.courseHeld > 1000) return false; // not twice; a second press within a second is one by mistake
    cell.courseHeld ??= now;
    const sign = Object.assign(document.createElement('div'), {className: 'course-wait course-hold'});
    sign.setAttribute('role', 'status');
    cell.node.querySelector('.jp-Cell-inputWrapper').before(sign);
    notebook.courseHold = {cell, sign};
    if (why === 'new') {
        sign.textContent = 'This session is new, and this cell needs what the cells above make. ';
        sign.append(button('Run all above, then this cell', async () => {
            notebook.activeCellIndex = notebook.widgets.indexOf(cell);
            await runAbove(app, notebook, sign);
            sign.remove();
            await app.commands.execute('notebook:run-cell');
        }));
    } else {
        sign.textContent = 'Choose an answer above first. To see the answer without a guess, press Shift+Enter again.';
        bringIntoView(notebook.outerNode, why);
    }
    sign.scrollIntoView({block: 'nearest'});
    return true;
}

// Why a cell shouldn't run yet: 'new', or the cell with the question that has no guess; undefined where nothing is in the way.
function reason(panel, cell) {
    const cells = panel.content.widgets, above = cells.slice(0, cells.indexOf(cell)).filter(each => each.model.type === 'code');
    if (cell.model.type !== 'code' || !above.length) return undefined;
    if (isNew(panel)) return 'new';
    const names = [...cell.model.sharedModel.source.matchAll(/(\w+)\.reveal\(/g)].map(([, name]) => name);
    const asks = name => above.findLast(each => RegExp(`\\b${name} = predict\\(`).test(each.model.sharedModel.source));
    return names.map(asks).find(each => each?.node.querySelector('.course-goes-on') && !shown(each.model.toJSON()).includes('course-chosen'));
}

// Below the code of a cell that takes more than a second stands for how long it has been running; from the tenth second on
// with a bar, which fills if this browser knows how long it took last time. It is no output, so nothing of it is saved.
function showWaits(notebook) {
    const sign = Object.assign(document.createElement('div'), {className: 'course-wait'});
    let cell = null, key = '', since = 0;
    const seconds = () => (performance.now() - since) / 1000;
    const timer = setInterval(() => {
        if (notebook.isDisposed) return clearInterval(timer);
        if (!runs(cell)) {
            if (sign.isConnected) localStorage.setItem(key, seconds());
            sign.remove();
            cell = notebook.widgets.find(runs);
            key = cell && `course-took:${cell.model.id}`;
            since = performance.now();
        } else if (seconds() >= 1) {
            if (!sign.isConnected) {
                cell.node.querySelector('.jp-Cell-inputWrapper').after(sign);
                sign.innerHTML = '<span role="status">Running</span> <span aria-hidden="true"></span>';
            }
            tell(sign, Math.floor(seconds()), Number(localStorage.getItem(key)));
        }
    }, 100);
}

function tell(sign, seconds, took) {
    const last = took >= 1 ? `, last time ${Math.round(took)} s` : '';
    const stop = seconds >= 10 ? '. The square in the toolbar stops it.' : '';
    sign.children[1].textContent = `for ${seconds} s${last}${stop}`;
    if (seconds < 10) return;
    const bar = sign.querySelector('progress') || sign.appendChild(document.createElement('progress'));
    bar.setAttribute('aria-label', 'Running');
    if (took > seconds) bar.value = seconds / took;
    else bar.removeAttribute('value');
}

// JupyterLab keeps the next cell in view, so that what one asked for could grow out of view. Of the cell that was run last by
// hand, the things of the course are kept in view while it runs and until they are drawn, unless one does something meanwhile.
const BY_HAND = /^notebook:run-cell(-and-select-next|-and-insert-below)?$/;
const SHOWN = '.course-live, .course-card, .course-panel, .course-figure, .vega-embed';
const SETTLES = 3000; // milliseconds in which widgets and charts are drawn after their cell has ended

function keepInView(app) {
    let acts = 0;
    for (const act of ['wheel', 'touchmove', 'pointerdown', 'keydown']) {
        window.addEventListener(act, () => { acts += 1; }, {capture: true, passive: true});
    }
    app.commands.commandExecuted.connect((_, {id, result}) => {
        const notebook = app.shell.currentWidget && app.shell.currentWidget.content;
        if (!BY_HAND.test(id) || !notebook || !notebook.coursePlace) return;
        const cell = id === 'notebook:run-cell' ? notebook.activeCell : notebook.courseBefore;
        const before = acts;
        let end = Infinity;
        Promise.resolve(result).catch(() => {}).then(() => { end = performance.now() + SETTLES; });
        const timer = setInterval(() => {
            const over = !cell || cell.isDisposed || acts !== before || performance.now() > end;
            if (over) return clearInterval(timer);
            putBack(cell);
            bringIntoView(notebook.outerNode, cell);
        }, 100);
    });
}

// A chart that its cell draws anew has its sliders where one left those of the same names.
const sliders = cell => [...cell.node.querySelectorAll('.vega-bind input[type=range]')];

function keepSliders(cell) {
    const now = cell ? sliders(cell) : [];
    if (now.length) cell.courseLeft = now; // they outlive the chart
}

function putBack(cell) {
    for (const slider of sliders(cell)) {
        const left = cell.courseLeft?.find(each => each.name === slider.name);
        if (!left || left === slider || slider.coursePut) continue;
        slider.coursePut = true;
        slider.value = left.value;
        slider.dispatchEvent(new Event('input', {bubbles: true}));
    }
}

// Scrolls, at once, so far that all things of the course in a cell's outputs can be seen, or what fits from the first one on.
function bringIntoView(view, cell) {
    const outputs = [...cell.node.querySelectorAll('.jp-OutputArea-child')];
    const boxes = outputs.filter(each => each.offsetHeight && each.querySelector(SHOWN)).map(each => each.getBoundingClientRect());
    if (!boxes.length) return;
    const around = view.getBoundingClientRect();
    const top = boxes[0].top - around.top - 8, bottom = boxes[boxes.length - 1].bottom - around.bottom + 8;
    if (top < -8 || bottom > 8) view.scrollTop += top < -8 ? top : Math.min(top, bottom);
}

const plugin = {
    id: 'gpu-course:place',
    description: 'Opens a page at the cell where one was, says what is done, shows that a cell is running, asks for a guess first, gives the page the width',
    autoStart: true,
    activate: app => {
        keepInView(app);
        holdBack(app);
        app.shell.currentChanged.connect((_, change) => follow(app, change.newValue));
        app.restored.then(() => {
            follow(app, app.shell.currentWidget);
            if (!localStorage.getItem('course-opened')) app.shell.collapseLeft();
            localStorage.setItem('course-opened', 'yes'); // from now on JupyterLab remembers what is open
        });
    },
};

window._JUPYTERLAB = window._JUPYTERLAB || {};
window._JUPYTERLAB['gpu-course'] = {init: () => {}, get: () => Promise.resolve(() => ({__esModule: true, default: plugin}))};
