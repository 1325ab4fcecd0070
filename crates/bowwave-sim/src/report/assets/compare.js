// Pictures of several runs: one point, one column or one line each.

const group = () => data.groups[shown.group];
const runName = run => `${run + 1} ${data.runs[run].policy}`;

// Names of the runs if they fit under their columns, else their numbers.
function runNames(runs, width) {
  const longest = Math.max(...runs.map(run => runName(run).length)) * 6.8 + 8;
  return runs.map(run => longest * runs.length <= width - 90 ? runName(run) : String(run + 1));
}

chart("frontier", (box, width, height) => {
  const { runs, frontier, best } = group();
  const [fast, slow] = ends(runs, run => data.runs[run].seconds_a_gib);
  const unit = timeUnit(slow * 1e9);
  const x = run => data.runs[run].seconds_a_gib * 1e9 / unit.size, y = run => data.runs[run].amplification;
  const [, fat] = ends(runs, y);
  const wide = fast > 0 && slow / fast > 30;
  const scale = value => wide ? Math.log10(value) : value;
  const [low, high] = wide ? [scale(fast * 1e9 / unit.size) - 0.15, scale(slow * 1e9 / unit.size) + 0.35] : [0, slow * 1e9 / unit.size * 1.2];
  const ticks = wide
    ? { splits: () => powers(low, high), values: (_, splits) => splits.map(split => number(10 ** split)) }
    : {};
  const plot = plane(box, width, height, {
    x: [low, high > low ? high : low + 1], y: [0, Math.max(fat, 1) * 1.18],
    xAxis: level(`time for a GiB that readers got (${unit.name}${wide ? ", logarithmic" : ""})`, ticks), yAxis: upright("bytes read a byte wanted"),
    paint(u, ctx, dpr) {
      const at = run => [u.valToPos(scale(x(run)), "x", true), u.valToPos(y(run), "y", true)];
      ctx.strokeStyle = colours.quiet;
      ctx.lineWidth = 1.5 * dpr;
      ctx.setLineDash([5 * dpr, 4 * dpr]);
      ctx.beginPath();
      frontier.forEach((run, index) => {
        const [px, py] = at(run);
        if (index === 0) { ctx.moveTo(px, u.bbox.top); ctx.lineTo(px, py); } else { ctx.lineTo(px, at(frontier[index - 1])[1]); ctx.lineTo(px, py); }
      });
      ctx.lineTo(u.bbox.left + u.bbox.width, at(frontier[frontier.length - 1])[1]);
      ctx.stroke();
      ctx.setLineDash([]);
      const written = [];
      for (const run of [best, ...runs.filter(run => run !== best)]) point(ctx, dpr, run, ...at(run), run === best, written, u.bbox);
    },
    at(px, py, u) {
      const near = runs.map(run => [run, Math.hypot(u.valToPos(scale(x(run)), "x") - u.valToPos(px, "x"), u.valToPos(y(run), "y") - u.valToPos(py, "y"))]);
      const [run, distance] = near.reduce((a, b) => b[1] < a[1] ? b : a);
      return distance < 24 ? `${data.runs[run].name}: ${timeText(data.runs[run].seconds_a_gib * 1e9)} a GiB, ${number(y(run))} bytes a byte` : "";
    },
  });
  return plot;
});

// 1, 2 and 5 times the powers of ten between two logarithms; fewer where they are many.
function powers(low, high) {
  const steps = high - low > 2.5 ? [1] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const step of steps) found.push(power + Math.log10(step));
  }
  return found.filter(split => split >= low && split <= high);
}

// A run's point and, where there is room, its name.
function point(ctx, dpr, run, x, y, best, written, bbox) {
  ctx.beginPath();
  ctx.arc(x, y, (best ? 7 : 5) * dpr, 0, 2 * Math.PI);
  ctx.fillStyle = policyColour(run);
  ctx.fill();
  ctx.lineWidth = (best ? 2.5 : 1.5) * dpr;
  ctx.strokeStyle = best ? colours.ink : colours.card;
  ctx.stroke();
  const text = (best ? "★ " : "") + runName(run);
  ctx.font = `${best ? "bold " : ""}${12 * dpr}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const wide = ctx.measureText(text).width;
  // The first place that is free.
  const places = [[x + 8 * dpr, y - 14 * dpr], [x + 11 * dpr, y], [x - 11 * dpr - wide, y], [x - wide / 2, y - 16 * dpr], [x - wide / 2, y + 16 * dpr], [x + 9 * dpr, y + 14 * dpr]];
  const place = places.find(([left, middle]) => left >= bbox.left && left + wide <= bbox.left + bbox.width && middle > bbox.top + 6 * dpr && middle < bbox.top + bbox.height - 6 * dpr
    && written.every(other => left > other.right || left + wide < other.left || Math.abs(middle - other.middle) > 14 * dpr));
  written.push({ left: x - 7 * dpr, right: x + 7 * dpr, middle: y });
  if (!place) return;
  written.push({ left: place[0], right: place[0] + wide, middle: place[1] });
  ctx.strokeStyle = colours.card;
  ctx.lineWidth = 4 * dpr;
  ctx.lineJoin = "round";
  ctx.strokeText(text, ...place);
  ctx.fillStyle = colours.ink;
  ctx.fillText(text, ...place);
}

const PERCENTILES = ["median", "90th", "99th", "slowest"];

chart("percentiles", (box, width, height) => {
  const { runs } = group();
  const value = nanoseconds => Math.log10(Math.max(nanoseconds, 100));
  const [, most] = ends(runs, run => value(data.runs[run].latency[3]));
  const [least] = ends(runs, run => value(data.runs[run].latency[0]));
  const plot = plane(box, width, height, {
    x: [-0.5, runs.length - 0.5], y: [Math.floor(least), Math.max(Math.ceil(most + 0.05), Math.floor(least) + 1)],
    xAxis: namesAxis("run", runNames(runs, width), width), yAxis: upright("latency of a read", { values: logTimeTicks, incrs: [1, 2] }),
    paint(u, ctx, dpr) {
      runs.forEach((run, index) => {
        const x = u.valToPos(index, "x", true);
        const ys = data.runs[run].latency.map(latency => u.valToPos(value(latency), "y", true));
        ctx.strokeStyle = ctx.fillStyle = policyColour(run);
        ctx.lineWidth = 2 * dpr;
        ctx.beginPath();
        ctx.moveTo(x, ys[0]);
        ctx.lineTo(x, ys[3]);
        ctx.stroke();
        for (const which of [3, 2, 1, 0]) mark(ctx, dpr, which, x, ys[which], policyColour(run));
      });
    },
    at(x) {
      const run = runs[Math.round(x)];
      return run === undefined ? "" : `${data.runs[run].name}: ${data.runs[run].latency.map((latency, index) => `${PERCENTILES[index]} ${timeText(latency)}`).join(", ")}`;
    },
  });
  box.append(element("p", { className: "at", textContent: "● median   ◆ 90th percentile   ▲ 99th percentile   ▬ slowest. Up to 0.1 µs counts as 0.1 µs." }));
  return plot;
});

// Circle, diamond, triangle, bar.
function mark(ctx, dpr, which, x, y, colour) {
  ctx.fillStyle = colour;
  const r = 5 * dpr;
  ctx.beginPath();
  if (which === 0) ctx.arc(x, y, r * 0.9, 0, 2 * Math.PI);
  if (which === 1) for (const [dx, dy] of [[0, -1.6], [1.6, 0], [0, 1.6], [-1.6, 0]]) ctx.lineTo(x + dx * r, y + dy * r);
  if (which === 2) for (const [dx, dy] of [[0, -1.6], [1.7, 1.2], [-1.7, 1.2]]) ctx.lineTo(x + dx * r, y + dy * r);
  ctx.closePath();
  if (which === 3) ctx.rect(x - 2 * r, y - r / 3, 4 * r, r / 1.5);
  ctx.fill();
  ctx.lineWidth = dpr;
  ctx.strokeStyle = colours.card;
  ctx.stroke();
}

chart("ledger", (box, width, height) => {
  const { runs } = group();
  const of = name => runs.map(run => data.runs[run].ledger[name]);
  if (of("in_time").concat(of("late"), of("wasted"), of("thrashed")).every(pages => pages === 0)) return nothing(box, "Nothing was read ahead.");
  const parts = [["in time", "in_time", "in-time"], ["late", "late", "late"], ["wasted", "wasted", "wasted"], ["thrashed", "thrashed", "miss"]];
  return columns(box, width, height, {
    names: runNames(runs, width), xLabel: "run", yLabel: "pages read ahead",
    parts: parts.map(([name, field, colour]) => ({ name, values: of(field), colour })),
    text: index => `${data.runs[runs[index]].name}: ${parts.map(([name, field]) => `${number(data.runs[runs[index]].ledger[field], 9)} ${name}`).join(", ")}`,
  });
});

// The curves of several runs over one axis of time.
function over(name, yAxis, value, text, yRange) {
  chart(name, (box, width, height) => {
    const has = run => data.runs[run].pace.time.length > 0 && value(data.runs[run].pace).length > 0;
    const runs = [...shown.overlay].filter(has).sort((a, b) => a - b);
    if (runs.length === 0) return nothing(box, data.runs.some((_, run) => has(run)) ? "Choose a run above." : "No samples over time were recorded.");
    const [, last] = ends(runs, run => data.runs[run].pace.time[data.runs[run].pace.time.length - 1]);
    const unit = timeUnit(last * 1e9);
    return lines(box, width, height, {
      xAxis: level(`time for a GiB that readers got (${unit.name})`), yAxis: yAxis(), sync: "over", yRange,
      lines: runs.map((run, index) => ({
        label: runName(run), x: data.runs[run].pace.time.map(seconds => seconds * 1e9 / unit.size), y: value(data.runs[run].pace),
        colour: colours.lines[(policies.length >= runs.length ? policies.indexOf(data.runs[run].policy) : index) % colours.lines.length], text,
      })),
    });
  });
}

const megabytes = list => list.map(rate => rate / 1e6);
over("over-fetched", () => upright("MB/s"), pace => megabytes(pace.fetched), value => number(value) + " MB/s");
over("over-delivered", () => upright("MB/s"), pace => megabytes(pace.delivered), value => number(value) + " MB/s");
over("over-request", () => upright("size of a request", { values: bytesTicks, incrs: BYTE_STEPS }), pace => pace.request, bytesText);
over("over-busy", () => upright("busy (%)"), pace => pace.busy.map(share => share * 100), value => number(value) + " %", () => [0, 105]);
over("over-thrashed", () => upright("pages/s"), pace => pace.thrashed, value => number(value) + " pages/s");
