// Charts: uPlot draws axes, grid and lines; what is no line is painted over them.

// Fewer points than these are no curve, and fewer reads no picture of their times: sentences and the table have them.
const POINTS_MIN = 3, READS_MIN = 10;

// Every chart by its name: how to make it, and what was made.
const charts = new Map();

function chart(name, make) {
  const box = document.querySelector(`[data-chart="${name}"]`);
  const figure = box.closest("figure");
  const title = figure.querySelector("h3").textContent;
  charts.set(name, { box, title, make, plot: null });
}

function draw(name) {
  const it = charts.get(name);
  if (it.plot) it.plot.destroy();
  it.plot = null;
  it.box.replaceChildren();
  const tall = it.box.classList.contains("tall"), figure = it.box.closest("figure");
  const width = Math.floor(root.classList.contains("printing") ? Math.min(it.box.clientWidth || 640, 640) : it.box.clientWidth);
  const height = tall ? clamp(Math.round(width * 0.5), 300, 520) : clamp(Math.round(width * 0.55), 220, 300);
  // A hidden figure has no width; its second drawing, when it is there, has.
  it.plot = it.make(it.box, Math.max(width, 120), height) || null;
  it.box.dataset.drawn = it.plot ? "chart" : "none";
  // A picture that would say nothing is not there.
  figure.hidden = !it.plot;
  const said = [...figure.querySelectorAll(".says li")].find(line => line.offsetParent !== null);
  it.box.setAttribute("role", tall ? "application" : "img");
  it.box.setAttribute("aria-label", `Chart: ${it.title}. ${said ? said.textContent : ""}`);
}

// A figure that appears or goes changes the width of its neighbours: then all are drawn again.
function drawThese(names) {
  const hidden = () => names.map(name => charts.get(name).box.closest("figure").hidden).join();
  const before = hidden();
  names.forEach(draw);
  if (hidden() !== before) names.forEach(draw);
}

function drawAll() {
  readColours();
  drawThese([...charts.keys()]);
}

function axis(label, more = {}) {
  return {
    label, labelSize: 18, labelGap: 2, labelFont: "12px system-ui, sans-serif", font: "12px system-ui, sans-serif",
    stroke: colours.quiet, gap: 4, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.line, width: 1, size: 5 },
    values: plainTicks, ...more,
  };
}

// Room for the longest of an upright axis's labels.
function upright(label, more = {}) {
  const size = (_, values) => values ? 18 + 6.6 * Math.max(3, ...values.map(value => String(value ?? "").length)) : 50;
  return axis(label, { size, labelSize: 16, space: 34, ...more });
}

const level = (label, more = {}) => axis(label, { size: 30, ...more });

// A chart whose contents `paint` draws, between x[0] and x[1], y[0] and y[1]. `at(x, y)` says what is there.
function plane(box, width, height, { x, y, xAxis, yAxis, paint, at, zooms = false, padding = [10, 22, 0, 0] }) {
  const full = { x: [...x], y: [...y] };
  const options = {
    width, height, padding,
    scales: { x: { time: false, range: (_, low, high) => [low, high] }, y: { range: (_, low, high) => [low, high] } },
    axes: [xAxis, yAxis],
    series: [{}, { paths: () => null, points: { show: false } }],
    legend: { show: false },
    cursor: { show: Boolean(at || zooms), drag: { x: zooms, y: zooms, uni: zooms ? 24 : undefined }, points: { show: false }, bind: {} },
    hooks: {
      drawClear: [u => { u.ctx.fillStyle = colours.card; u.ctx.fillRect(0, 0, u.ctx.canvas.width, u.ctx.canvas.height); }],
      draw: [u => {
        const { left, top, width, height } = u.bbox;
        u.ctx.save();
        u.ctx.beginPath();
        u.ctx.rect(left, top, width, height);
        u.ctx.clip();
        paint(u, u.ctx, devicePixelRatio || 1);
        u.ctx.restore();
      }],
    },
  };
  const reset = u => u.batch(() => { u.setScale("x", { min: full.x[0], max: full.x[1] }); u.setScale("y", { min: full.y[0], max: full.y[1] }); });
  options.cursor.bind.dblclick = u => () => { if (zooms) reset(u); return null; };
  if (at) {
    const tip = element("div", { className: "tip", hidden: true });
    options.hooks.setCursor = [u => {
      const { left, top } = u.cursor;
      const text = left >= 0 ? at(u.posToVal(left, "x"), u.posToVal(top, "y"), u) : "";
      tip.hidden = !text || at.elsewhere === true;
      tip.textContent = text || "";
      if (!tip.hidden) {
        const over = u.over.offsetLeft + left;
        tip.style.left = over > box.clientWidth / 2 ? "auto" : over + 12 + "px";
        tip.style.right = over > box.clientWidth / 2 ? box.clientWidth - over + 12 + "px" : "auto";
        tip.style.top = u.over.offsetTop + top + 12 + "px";
      }
    }];
    box.append(tip);
  }
  const plot = new uPlot(options, [[...x], [...y]], box);
  plot.whole = () => reset(plot);
  plot.full = full;
  return plot;
}

// Short strokes at the foot of a line chart, where something happened.
function ticks(u, marks) {
  const { left, top, width, height } = u.bbox;
  u.ctx.fillStyle = colours.ink;
  for (const mark of marks) {
    const x = u.valToPos(mark, "x", true);
    if (x >= left && x <= left + width) u.ctx.fillRect(x - 1, top + height - 9 * (devicePixelRatio || 1), 2, 9 * (devicePixelRatio || 1));
  }
}

// A line chart. Each line has a name, x and y values; a second scale stands to the right.
function lines(box, width, height, { lines, xAxis, yAxis, rightAxis, yRange, sync, fill, marks = [] }) {
  const joined = lines.length > 1
    ? uPlot.join(lines.map(line => [line.x, line.y]), lines.map(() => [uPlot.JOIN_NULL_EXPAND || 2]))
    : [lines[0].x, lines[0].y];
  const from0 = (_, low, high) => [0, high > 0 ? high * 1.06 : 1];
  const options = {
    width, height, padding: [10, rightAxis ? 0 : 22, 0, 0],
    scales: { x: { time: false }, y: { range: yRange || from0 }, right: { range: from0 } },
    axes: [xAxis, yAxis].concat(rightAxis ? [{ ...rightAxis, scale: "right", side: 1, grid: { show: false } }] : []),
    series: [{ label: xAxis.label, value: (_, value) => value == null ? "" : number(value, 4) }].concat(lines.map((line, index) => ({
      label: line.label, scale: line.right ? "right" : "y", stroke: line.colour, width: 2, dash: DASHES[index % DASHES.length], spanGaps: true,
      fill: fill && index === 0 ? alpha(line.colour, 0.15) : undefined, points: { show: line.x.length < 3 },
      value: (_, value) => value == null ? "" : line.text(value),
    }))),
    hooks: {
      drawClear: [u => { u.ctx.fillStyle = colours.card; u.ctx.fillRect(0, 0, u.ctx.canvas.width, u.ctx.canvas.height); }],
      draw: [u => ticks(u, marks)],
    },
    cursor: { drag: { x: true, y: false }, sync: sync ? { key: sync } : undefined },
  };
  return new uPlot(options, joined, box);
}

// Stacked columns over names.
function columns(box, width, height, { names, parts, xLabel, yLabel, yTicks, yMore, text }) {
  const totals = names.map((_, index) => parts.reduce((sum, part) => sum + part.values[index], 0));
  const most = Math.max(...totals, 1) * 1.06;
  const half = 0.36;
  const plot = plane(box, width, height, {
    x: [-0.5, names.length - 0.5], y: [0, most],
    xAxis: namesAxis(xLabel, names, width), yAxis: upright(yLabel, { values: yTicks || plainTicks, ...yMore }),
    paint(u, ctx) {
      names.forEach((_, index) => {
        const left = u.valToPos(index - half, "x", true), wide = u.valToPos(index + half, "x", true) - left;
        let below = 0;
        for (const part of parts) {
          const top = u.valToPos(below + part.values[index], "y", true), bottom = u.valToPos(below, "y", true);
          ctx.fillStyle = colours[part.colour];
          if (part.values[index] > 0) ctx.fillRect(left, Math.min(top, bottom - 1), wide, Math.max(bottom - top, 1));
          below += part.values[index];
        }
      });
    },
    at(x) {
      const index = Math.round(x);
      return names[index] === undefined ? "" : text(index);
    },
  });
  box.append(keys(parts.map(part => [part.name, colours[part.colour]])));
  return plot;
}

// An axis with a name at each whole number, or only every so many of them.
function namesAxis(label, names, width) {
  const room = (width - 90) / names.length;
  const longest = Math.max(...names.map(name => name.length)) * 6.8 + 8;
  const every = Math.max(1, Math.ceil(longest / room));
  const shown = names.map((_, index) => index).filter(index => index % every === 0);
  return level(label, { splits: () => shown, values: () => shown.map(index => names[index]), grid: { show: false } });
}

function keys(pairs) {
  const list = element("ul", { className: "legend" });
  for (const [name, colour] of pairs) {
    const key = element("span", { className: "key" });
    key.style.background = colour;
    list.append(element("li", {}, key, name));
  }
  return list;
}
