// The map: offset by time. Reads are boxes from their begin to their end, windows frames around what they hold.

const shown = { run: 0, file: 0, group: 0, overlay: new Set(), common: false };

chart("map", (box, width, height) => {
  const run = data.runs[shown.run];
  const { files } = run.map;
  const reads = unpack(run.map.reads), windows = unpack(run.map.windows);
  const ours = pick(reads.file), framed = pick(windows.file);
  if (ours.length + framed.length === 0) return null;
  const [began] = ours.length ? ends(ours, index => reads.time[index]) : ends(framed, index => windows.time[index]);
  const [, ended] = ours.length ? ends(ours, index => reads.time[index] + reads.latency[index]) : ends(framed, index => windows.until[index]);
  const unit = timeUnit(run.seconds * 1e9);
  const side = Math.max((ended - began) * 0.02, 1000);
  const page = run.page_bytes;
  const tops = ours.map(index => reads.start[index] + reads.pages[index]);
  const lows = ours.map(index => reads.start[index]);
  // Windows past the last page read would flatten the picture: as far as their middle they fit.
  let [low] = ends(lows, value => value), [, high] = ends(tops, value => value);
  if (ours.length === 0) [low, high] = [ends(framed, index => windows.start[index])[0], ends(framed, index => windows.start[index] + windows.size[index])[1]];
  const margin = Math.max((high - low) * 0.04, 1);
  return plane(box, width, height, {
    x: [(began - side) / unit.size, (ended + side) / unit.size], y: [Math.max(low - margin, -margin) * page, (high + margin) * page], zooms: true,
    xAxis: level(`time (${unit.name})`), yAxis: upright("offset in the file", { values: bytesTicks, incrs: BYTE_STEPS }),
    paint(u, ctx, dpr) {
      const X = time => u.valToPos(time / unit.size, "x", true), Y = offset => u.valToPos(offset * page, "y", true);
      if (byId("show-windows").checked) paintWindows(ctx, framed, windows, X, Y, dpr);
      if (byId("show-marks").checked) paintMarks(ctx, framed, windows, X, Y, dpr);
      if (byId("show-reads").checked) paintReads(ctx, ours, reads, X, Y, dpr);
    },
    at: Object.assign((x, y, u) => {
      const text = readAt(x * unit.size, y / page, u, unit, page, ours, reads) || windowAt(x * unit.size, y / page, framed, windows, run);
      if (text) byId("map-at").textContent = text;
      return text;
    }, { elsewhere: true }),
  });

  // The members of the chosen file.
  function pick(file) {
    const found = [];
    for (let index = 0; index < file.length; index++) if (file[index] === shown.file) found.push(index);
    return files.length ? found : [];
  }
});

// Least and largest; lists may be too long for Math.max.
function ends(list, value) {
  let low = Infinity, high = -Infinity;
  for (const item of list) {
    const v = value(item);
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return [low, high];
}

function paintReads(ctx, ours, reads, X, Y, dpr) {
  const least = 2 * dpr;
  // Rare and slow ones last, on top.
  for (const outcome of [0, 1, 2]) {
    ctx.fillStyle = colours[OUTCOMES[outcome]];
    ctx.beginPath();
    for (const index of ours) {
      if (reads.outcome[index] !== outcome) continue;
      const left = X(reads.time[index]), right = X(reads.time[index] + reads.latency[index]);
      const top = Y(reads.start[index] + reads.pages[index]), bottom = Y(reads.start[index]);
      ctx.rect(left, Math.min(top, bottom - least), Math.max(right - left, least), Math.max(bottom - top, least));
    }
    ctx.fill();
  }
}

function paintWindows(ctx, framed, windows, X, Y, dpr) {
  ctx.lineWidth = dpr;
  ctx.strokeStyle = alpha(colours.window, 0.8);
  for (const index of framed) {
    const { left, wide } = span(windows, index, X, dpr);
    const end = windows.start[index] + windows.size[index];
    const top = Y(end), bottom = Y(windows.start[index]), mark = Y(end - Math.min(windows.ahead[index], windows.size[index]));
    ctx.fillStyle = alpha(colours.window, 0.1);
    ctx.fillRect(left, top, wide, bottom - top);
    ctx.fillStyle = alpha(colours.window, 0.22);
    ctx.fillRect(left, top, wide, mark - top);
    if (bottom - top > 3 * dpr) ctx.strokeRect(left, top, wide, bottom - top);
  }
}

function paintMarks(ctx, framed, windows, X, Y, dpr) {
  ctx.strokeStyle = alpha(colours.ink, 0.55);
  ctx.lineWidth = dpr;
  ctx.setLineDash([4 * dpr, 2 * dpr]);
  ctx.beginPath();
  for (const index of framed) {
    if (windows.mark[index] === 0) continue;
    const { left, wide } = span(windows, index, X, dpr);
    const y = Y(windows.mark[index] - 1);
    ctx.moveTo(left, y);
    ctx.lineTo(left + wide, y);
  }
  ctx.stroke();
  ctx.setLineDash([]);
}

function span(windows, index, X, dpr) {
  const left = X(windows.time[index]);
  return { left, wide: Math.max(X(windows.until[index]) - left, 4 * dpr) };
}

function readAt(time, offset, u, unit, page, ours, reads) {
  const nearX = 5 * (u.posToVal(1, "x") - u.posToVal(0, "x")) * unit.size;
  const nearY = 5 * Math.abs(u.posToVal(1, "y") - u.posToVal(0, "y")) / page;
  let best = -1, least = 1;
  for (const index of ours) {
    const dx = away(time, reads.time[index], reads.time[index] + reads.latency[index]) / nearX;
    const dy = away(offset, reads.start[index], reads.start[index] + reads.pages[index]) / nearY;
    if (dx + dy < least) [best, least] = [index, dx + dy];
  }
  if (best < 0) return "";
  const waited = timeText(reads.latency[best]);
  return `Read at ${timeText(reads.time[best])}: ${bytesText(reads.pages[best] * page)} from ${bytesText(reads.start[best] * page)} on, ${OUTCOMES[reads.outcome[best]]}, took ${waited}.`;
}

function windowAt(time, offset, framed, windows, run) {
  const index = framed.findLast(index => windows.time[index] <= time && time <= windows.until[index]
    && windows.start[index] <= offset && offset < windows.start[index] + windows.size[index]);
  if (index === undefined) return "";
  const reason = run.map.reasons[windows.reason[index]];
  return `Window at ${timeText(windows.time[index])}: ${number(windows.size[index])} pages from page ${windows.start[index].toLocaleString("en")} on, ${number(windows.ahead[index])} past the mark, because of '${reason}'.`;
}

const away = (value, low, high) => Math.max(low - value, value - high, 0);

function zoomMap(how) {
  const plot = charts.get("map").plot;
  if (!plot) return;
  if (how === "all") return plot.whole();
  const { x, y } = plot.scales;
  const move = (scale, by) => ({ min: scale.min + by * (scale.max - scale.min), max: scale.max + by * (scale.max - scale.min) });
  const grow = (scale, by) => ({ min: (scale.min + scale.max) / 2 - by * (scale.max - scale.min) / 2, max: (scale.min + scale.max) / 2 + by * (scale.max - scale.min) / 2 });
  const steps = { left: ["x", move(x, -0.25)], right: ["x", move(x, 0.25)], up: ["y", move(y, 0.25)], down: ["y", move(y, -0.25)] };
  if (steps[how]) return plot.setScale(...steps[how]);
  const by = how === "in" ? 0.5 : 2;
  plot.batch(() => { plot.setScale("x", grow(x, by)); plot.setScale("y", grow(y, by)); });
}
