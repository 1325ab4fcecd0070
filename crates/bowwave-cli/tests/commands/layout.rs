//! Layout faults of a page, found by a script in it.

use serde_json::{Value, json};

use crate::browser::Browser;

/// Records the text and position of labels on every canvas of pages opened from now on:
/// `canvas.labels`.
const RECORD: &str = "
    const draw = CanvasRenderingContext2D.prototype.fillText, clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...box) { this.canvas.labels = []; return clear.apply(this, box); };
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
        const size = this.measureText(text), m = this.getTransform();
        const corner = (dx, dy) => m.transformPoint(new DOMPoint(x + dx, y + dy));
        const corners = [
            corner(-size.actualBoundingBoxLeft, -size.actualBoundingBoxAscent), corner(size.actualBoundingBoxRight, size.actualBoundingBoxDescent),
        ];
        const [xs, ys] = [corners.map(it => it.x), corners.map(it => it.y)];
        const box = { text: String(text), left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
        (this.canvas.labels ||= []).push(box);
        return draw.call(this, text, x, y, ...rest);
    };";

/// A list of faults as sentences.
const FAULTS: &str = "(() => {
    const faults = [], root = document.documentElement, wide = root.clientWidth;
    const shown = it => it.offsetParent !== null && getComputedStyle(it).visibility === 'visible';
    const named = it => `${it.tagName.toLowerCase()}${it.id ? '#' + it.id : ''}.${it.className} '${(it.textContent || '').trim().slice(0, 40)}'`;
    const all = [...document.body.querySelectorAll('*')].filter(it => it instanceof HTMLElement && shown(it) && !it.closest('.skip, .hidden, option'));
    if (root.scrollWidth > wide) faults.push(`the page is ${root.scrollWidth} wide in a window of ${wide}`);
    for (const it of all) {
        const { left, right, width } = it.getBoundingClientRect(), style = getComputedStyle(it);
        if (width > 0 && (left < -0.5 || right > wide + 0.5)) faults.push(`${named(it)} is at ${left} to ${right} of ${wide}`);
        const scrolls = ['auto', 'scroll'].includes(style.overflowX) || ['auto', 'scroll'].includes(style.overflowY);
        if (scrolls && it !== document.body && it.tagName !== 'SELECT') faults.push(`${named(it)} scrolls`);
        if (it.scrollWidth > it.clientWidth + 1 && ['hidden', 'clip'].includes(style.overflowX) && !it.closest('.uplot')) faults.push(`${named(it)} is cut`);
    }
    const overlap = (where, boxes) => boxes.forEach((a, index) => {
        for (const b of boxes.slice(index + 1)) {
            const x = Math.min(a.right, b.right) - Math.max(a.left, b.left), y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (x > 1 && y > 1) faults.push(`${where}: '${a.text}' covers '${b.text}'`);
        }
    });
    const boxed = it => { const { left, right, top, bottom } = it.getBoundingClientRect(); return { text: it.textContent, left, right, top, bottom }; };
    let bars = 0;
    for (const list of document.querySelectorAll('.bars')) {
        if (!shown(list)) continue;
        bars++;
        overlap('bars', [...list.querySelectorAll('.name bdi, .value, .axis i')].map(boxed));
        const drawn = [...list.querySelectorAll('.stack i, .range .median')].filter(it => it.getBoundingClientRect().width > 1);
        if (drawn.length === 0) faults.push(`${named(list)} has no bar`);
        const tracks = new Set([...list.querySelectorAll('.stack')].map(it => Math.round(it.getBoundingClientRect().width)));
        if (tracks.size > 1) faults.push(`${named(list)}: bars are drawn to ${tracks.size} scales`);
    }
    for (const plot of document.querySelectorAll('.plot')) {
        const canvas = plot.querySelector('canvas');
        if (!shown(plot)) {
            if (plot.dataset.drawn !== 'none') faults.push(`${plot.dataset.chart} is hidden and ${plot.dataset.drawn}`);
            continue;
        }
        if (!canvas) { faults.push(`${plot.dataset.chart} is empty`); continue; }
        if (Math.abs(canvas.clientWidth - plot.clientWidth) > 1) faults.push(`${plot.dataset.chart} is ${canvas.clientWidth} wide in ${plot.clientWidth}`);
        if (!canvas.labels || canvas.labels.length < 4) faults.push(`${plot.dataset.chart} has no labels`);
        const labels = (canvas.labels || []).filter(it => it.text.trim());
        overlap(plot.dataset.chart, labels);
        for (const it of labels) {
            if (it.left < -1 || it.right > canvas.width + 1 || it.top < -1 || it.bottom > canvas.height + 1) faults.push(`${plot.dataset.chart}: '${it.text}' is cut`);
        }
    }
    for (const figure of document.querySelectorAll('figure')) {
        if (shown(figure) && !figure.querySelector('canvas, .bars')) faults.push(`${named(figure)} has no picture`);
    }
    if (!document.getElementById('verdict')?.textContent.trim()) faults.push('there is no verdict');
    if (root.dataset.ready !== 'yes' || bars + document.querySelectorAll('.plot canvas').length === 0) faults.push('there is no picture');
    return faults;
})()";

/// Records canvas labels in pages opened from now on.
pub(crate) fn record_labels(browser: &mut Browser) {
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": RECORD }));
}

/// Parts of the page that are cut off, covered, empty or in a scrolling box.
pub(crate) fn faults(browser: &mut Browser) -> Value {
    browser.value(FAULTS)
}
