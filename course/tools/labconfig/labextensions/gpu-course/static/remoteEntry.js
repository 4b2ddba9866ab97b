// Opens a notebook at the cell where one was, in this browser, and not at its top; shows that a cell is running; closes the
// list of files the first time, because it takes a quarter of a small screen from the page. Written by hand in the form in
// which JupyterLab loads extensions, so that nothing has to be built.
async function follow(panel) {
    const notebook = panel && panel.content;
    if (!notebook || !notebook.activeCellChanged || !panel.context || notebook.coursePlace) return;
    notebook.coursePlace = `course-place:${panel.context.path}`;
    await panel.context.ready;
    showWaits(notebook);
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

const plugin = {
    id: 'gpu-course:place',
    description: 'Opens a page at the cell where one was, shows that a cell is running, gives the page the width',
    autoStart: true,
    activate: app => {
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
