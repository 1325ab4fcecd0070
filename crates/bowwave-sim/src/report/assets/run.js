// The other pictures of one run.

chart("windows", (box, width, height) => {
  const run = data.runs[shown.run];
  const windows = unpack(run.map.windows);
  if (windows.time.length < POINTS_MIN) return null;
  const unit = timeUnit(run.seconds * 1e9);
  const last = Math.max(run.seconds * 1e9, windows.time[windows.time.length - 1]);
  const [, largest] = ends(windows.size, size => size);
  const limit = run.ra_pages;
  const plot = plane(box, width, height, {
    x: [-0.01 * last / unit.size, 1.01 * last / unit.size], y: [0, Math.max(largest, limit) * 1.08], zooms: true,
    xAxis: level(`time (${unit.name})`), yAxis: upright("pages"),
    paint(u, ctx, dpr) {
      const X = time => u.valToPos(time / unit.size, "x", true), Y = pages => u.valToPos(pages, "y", true);
      ctx.strokeStyle = colours.quiet;
      ctx.lineWidth = dpr;
      ctx.setLineDash([6 * dpr, 4 * dpr]);
      ctx.strokeRect(-9, Y(limit), ctx.canvas.width + 18, ctx.canvas.height * 2);
      ctx.setLineDash([]);
      const size = windows.time.length > 2000 ? 1.6 * dpr : 2.8 * dpr;
      dots(ctx, windows.time, windows.ahead, X, Y, size * 1.7, colours.late);
      dots(ctx, windows.time, windows.size, X, Y, size, colours.hit);
    },
  });
  box.append(keys([["window", colours.hit], ["of these past the mark", colours.late], [`limit: ra_pages ${number(limit)}`, colours.quiet]]));
  return plot;
});

function dots(ctx, xs, ys, X, Y, size, colour) {
  ctx.fillStyle = colour;
  ctx.beginPath();
  for (let index = 0; index < xs.length; index++) {
    const x = X(xs[index]), y = Y(ys[index]);
    ctx.moveTo(x + size, y);
    ctx.arc(x, y, size, 0, 2 * Math.PI);
  }
  ctx.fill();
}

chart("heat", (box, width, height) => {
  const run = data.runs[shown.run];
  const heat = unpackHeat(run.heat);
  if (!heat.bands || run.map.files.reduce((sum, file) => sum + file.reads, 0) < READS_MIN) return null;
  const unit = timeUnit(heat.from + heat.step * heat.steps);
  const floor = Math.log10(heat.floor);
  const top = floor + heat.bands / heat.bands_a_decade;
  const plot = plane(box, width, height, {
    x: [heat.from / unit.size, (heat.from + heat.step * heat.steps) / unit.size], y: [floor, Math.max(top, floor + 1)],
    xAxis: level(`time (${unit.name})`), yAxis: upright("latency of a read", { values: logTimeTicks, incrs: [1, 2], grid: { show: false } }),
    paint(u, ctx) {
      for (let band = 0; band < heat.bands; band++) {
        const high = u.valToPos(floor + (band + 1) / heat.bands_a_decade, "y", true), low = u.valToPos(floor + band / heat.bands_a_decade, "y", true);
        for (let step = 0; step < heat.steps; step++) {
          const count = heat.counts[band * heat.steps + step];
          if (count === 0) continue;
          const left = u.valToPos((heat.from + heat.step * step) / unit.size, "x", true), right = u.valToPos((heat.from + heat.step * (step + 1)) / unit.size, "x", true);
          const share = heat.most > 1 ? Math.log(count) / Math.log(heat.most) : 1;
          ctx.fillStyle = colours.heat[Math.round(share * (colours.heat.length - 1))];
          ctx.fillRect(left, high, right - left + 0.5, low - high + 0.5);
        }
      }
    },
    at(x, y) {
      const step = Math.floor((x * unit.size - heat.from) / heat.step), band = Math.floor((y - floor) * heat.bands_a_decade);
      const count = heat.counts[band * heat.steps + step];
      if (!count || step < 0 || step >= heat.steps) return "";
      const from = timeText(10 ** (floor + band / heat.bands_a_decade)), to = timeText(10 ** (floor + (band + 1) / heat.bands_a_decade));
      return `${number(count, 9)} reads took ${band === 0 ? "up" : from} to ${to}`;
    },
  });
  const scale = colours.heat.map((colour, index) => [number(Math.round(heat.most ** (index / (colours.heat.length - 1)))), colour]);
  box.append(keys(scale.filter(([name], index) => index === 0 || name !== scale[index - 1][0]).map(([name, colour]) => [name + (name === "1" ? " read" : " reads"), colour])));
  return plot;
});

function unpackHeat(heat) {
  if (typeof heat.counts === "string") {
    heat.counts = column(heat.counts);
    [, heat.most] = ends(heat.counts, count => count);
  }
  return heat;
}

chart("sizes", (box, width, height) => {
  const { from, demand, readahead } = data.runs[shown.run].sizes;
  if (demand.concat(readahead).reduce((sum, count) => sum + count, 0) < POINTS_MIN) return null;
  const first = from.findIndex((_, index) => demand[index] + readahead[index] > 0);
  const cut = list => list.slice(first);
  const names = cut(from).map(bytesText);
  return columns(box, width, height, {
    names, xLabel: "size of a request, from", yLabel: "requests",
    parts: [{ name: "readahead", values: cut(readahead), colour: "hit" }, { name: "demand", values: cut(demand), colour: "late" }],
    text: index => `${names[index]} and more: ${number(cut(readahead)[index], 9)} of readahead, ${number(cut(demand)[index], 9)} of demand`,
  });
});

chart("device", (box, width, height) => {
  const { time, busy, queued, queued_async, expired } = data.runs[shown.run].pace;
  if (time.length < POINTS_MIN) return null;
  const unit = timeUnit(time[time.length - 1] * 1e9);
  const x = time.map(seconds => seconds * 1e9 / unit.size);
  return lines(box, width, height, {
    xAxis: level(`time (${unit.name})`), yAxis: upright("busy (%)"), rightAxis: upright("requests", { size: 46 }), yRange: () => [0, 105], fill: true,
    lines: [
      { label: "busy", x, y: busy.map(share => share * 100), colour: colours.hit, text: value => number(value) + " %" },
      { label: "queue", x, y: queued, colour: colours.miss, right: true, text: value => number(value) },
    ].concat(queued_async.length ? [{ label: "readahead, unmerged", x, y: queued_async, colour: colours.late, right: true, text: value => number(value) }] : []),
    marks: x.filter((_, index) => expired[index] > 0),
  });
});
