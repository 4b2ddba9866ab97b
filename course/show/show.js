// For each widget of the course, once it is drawn. `box` is the widget's outermost part. ipywidgets gives sliders and
// groups of radio buttons no name that a screen reader could say, and radio buttons of one question no common name, so
// that each would be a stop for the Tab key and arrow keys would leave them and move JupyterLab's selection.
const words = part => part ? part.innerText.trim() : '';

function name(part) {
    const row = part.closest('.widget-radio, .widget-slider');
    const title = row.previousElementSibling;
    const above = title && title.classList.contains('widget-html') ? words(title) : '';
    const readout = row.querySelector('.widget-readout');
    part.setAttribute('aria-label', `${above} ${words(row.querySelector('.widget-label'))}`.trim());
    part.setAttribute('role', readout ? 'slider' : 'radiogroup');
    if (readout) part.setAttribute('aria-valuetext', words(readout));
    // ipywidgets 7: the place of the handle is its value, 0 to 100
    if (part.matches('.ui-slider-handle')) part.setAttribute('aria-valuenow', parseFloat(part.style.left) || 0);
    const radios = part.querySelectorAll('input[type=radio]');
    window.courseQuestions = window.courseQuestions || 0;
    if (radios.length && !part.dataset.question) part.dataset.question = `question-${++window.courseQuestions}`;
    radios.forEach(radio => { radio.name = part.dataset.question; });
}

function nameAll(box) {
    box.querySelectorAll('.widget-radio-box, .noUi-handle, .ui-slider-handle').forEach(name);
    box.querySelectorAll('.widget-output, .jp-OutputArea').forEach(part => part.setAttribute('role', 'status'));
}

// Shift+Enter in an answered question runs the next cell, not the question's own again: that one becomes the active cell
// first. Until then the keyboard stays in the question, also after a click.
function goOn(event) {
    if (!event.isTrusted || !event.shiftKey || event.key !== 'Enter') return;
    if (!event.target.matches('.course-goes-on input:checked') || !toNext(event.target)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const again = {key: 'Enter', code: 'Enter', keyCode: 13, shiftKey: true, bubbles: true};
    setTimeout(() => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', again)), 0);
}

function toNext(part) {
    const cell = part.closest('.jp-Cell'), next = cell && cell.nextElementSibling;
    const place = next && next.querySelector('.jp-InputPrompt, .jp-Cell-inputWrapper');
    if (place) place.dispatchEvent(new MouseEvent('mousedown', {bubbles: true, button: 0}));
    return place;
}

// A guess that is locked while the keyboard is in its question leaves the keyboard nowhere: the next cell takes it.
function passOn(box) {
    if (!box.held || !box.querySelector(':disabled')) return;
    const now = document.activeElement;
    if (now === document.body || now.disabled) toNext(box);
    box.held = false;
}

// Keys that move or press a control are not JupyterLab's: it leaves alone what carries this attribute. All other keys,
// such as Shift+Enter, are. The window hears a key before JupyterLab does.
function keepKeys(event) {
    if (!event.target.closest || !event.target.closest('.course-live')) return;
    const plain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
    const own = /^(Arrow|Home$|End$|Page|Enter$| $)/.test(event.key) || event.target.matches('textarea');
    event.target.toggleAttribute('data-lm-suppress-shortcuts', plain && own);
    goOn(event);
}

const box = this.closest('.course-live') || this.closest('.widget-vbox');
if (!window.courseKeys) window.addEventListener('keydown', keepKeys, true);
window.courseKeys = true;
if (box && !box.named) {
    box.named = new MutationObserver(() => { nameAll(box); passOn(box); });
    box.named.observe(box, {childList: true, subtree: true});
    box.addEventListener('focusin', () => { box.held = true; });
    nameAll(box);
}
