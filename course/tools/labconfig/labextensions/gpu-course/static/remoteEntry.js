// Opens a notebook at the cell where one was, in this browser, and not at its top; shows that a cell is running; keeps the
// top of what it shows in view; closes the list of files the first time, because it takes a quarter of a small screen from
// the page. Written by hand in the form in which JupyterLab loads extensions, so that nothing has to be built.
async function follow(panel) {
    const notebook = panel && panel.content;
    if (!notebook || !notebook.activeCellChanged || !panel.context || notebook.coursePlace) return;
    notebook.coursePlace = `course-place:${panel.context.path}`;
    await panel.context.ready;
    showWaits(notebook);
    let active = notebook.activeCell;
    notebook.activeCellChanged.connect((_, cell) => { [notebook.courseBefore, active] = [active, cell]; });
    await panel.revealed;
    const last = localStorage.getItem(notebook.coursePlace);
    const index = notebook.widgets.findIndex(cell => cell.model.id === last);
    if (index > 0) {
        notebook.activeCellIndex = index;
        await notebook.scrollToCell(notebook.widgets[index], 'center');
    }
    notebook.activeCellChanged.connect((_, cell) => {
        if (cell) localStorage.setItem(notebook.coursePlace, cell.model.id);
    });
}

// Below the code of a cell that takes more than a second stands for how long it has been running; from the tenth second on
// with a bar, which fills if this browser knows how long it took last time. It is no output, so nothing of it is saved.
function showWaits(notebook) {
    const sign = Object.assign(document.createElement('div'), {className: 'course-wait'});
    let cell = null, key = '', since = 0;
    const runs = each => each && !each.isDisposed && each.model.executionState === 'running';
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

// JupyterLab keeps the next cell in view, so that what one asked for could grow out of view at the top. Of the cell that was
// run last by hand, the first thing of the course is brought back to the top, once, unless one has done something since.
const BY_HAND = /^notebook:run-cell(-and-select-next|-and-insert-below)?$/;
const SHOWN = '.course-live, .course-card, .course-panel, .course-figure, .vega-embed';
const SETTLES = 3000; // milliseconds in which widgets and charts are drawn after their cell has ended

function keepTops(app) {
    let acts = 0;
    for (const act of ['wheel', 'touchmove', 'pointerdown', 'keydown']) {
        window.addEventListener(act, () => { acts += 1; }, {capture: true, passive: true});
    }
    app.commands.commandExecuted.connect(async (_, {id, result}) => {
        const notebook = app.shell.currentWidget && app.shell.currentWidget.content;
        if (!BY_HAND.test(id) || !notebook || !notebook.coursePlace) return;
        const cell = id === 'notebook:run-cell' ? notebook.activeCell : notebook.courseBefore;
        const before = acts;
        await Promise.resolve(result).catch(() => {});
        const end = performance.now() + SETTLES;
        const timer = setInterval(() => {
            const over = !cell || cell.isDisposed || acts !== before || performance.now() > end;
            if (over || showTop(notebook, cell)) clearInterval(timer);
        }, 100);
    });
}

// Scrolls, at once, to the first thing of the course in a cell's outputs if its top is above the view; true if it was.
function showTop(notebook, cell) {
    const outputs = [...cell.node.querySelectorAll('.jp-OutputArea-child')];
    const shown = outputs.find(each => each.offsetHeight && each.querySelector(SHOWN));
    const view = notebook.outerNode;
    const above = shown ? view.getBoundingClientRect().top - shown.getBoundingClientRect().top : 0;
    if (above > 0) view.scrollTop -= above + 8;
    return above > 0;
}

const plugin = {
    id: 'gpu-course:place',
    description: 'Opens a page at the cell where one was, shows that a cell is running, gives the page the width',
    autoStart: true,
    activate: app => {
        keepTops(app);
        app.shell.currentChanged.connect((_, change) => follow(change.newValue));
        app.restored.then(() => {
            follow(app.shell.currentWidget);
            if (!localStorage.getItem('course-opened')) app.shell.collapseLeft();
            localStorage.setItem('course-opened', 'yes'); // from now on JupyterLab remembers what is open
        });
    },
};

window._JUPYTERLAB = window._JUPYTERLAB || {};
window._JUPYTERLAB['gpu-course'] = {init: () => {}, get: () => Promise.resolve(() => ({__esModule: true, default: plugin}))};
