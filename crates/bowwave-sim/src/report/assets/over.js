// The curves of several runs of a group over one another.

const group = () => data.groups[shown.group];
const runName = run => `${run + 1} ${data.runs[run].policy}`;

// With an axis of its own for each run, the fastest is not a sliver at the left edge: all end at 100 %.
function over(name, yAxis, value, text, yRange) {
  chart(name, (box, width, height) => {
    const has = run => shown.overlay.has(run) && data.runs[run].pace.time.length >= POINTS_MIN && value(data.runs[run].pace).some(it => it > 0);
    const runs = group().runs.filter(has);
    // A level line says less than its sentence.
    const [low, high] = ends(runs.flatMap(run => value(data.runs[run].pace)).filter(it => it !== null), it => it);
    if (runs.length === 0 || high <= low * 1.02) return null;
    const end = run => data.runs[run].pace.time[data.runs[run].pace.time.length - 1];
    const unit = timeUnit(ends(runs, end)[1] * 1e9);
    const x = run => data.runs[run].pace.time.map(seconds => shown.common ? seconds * 1e9 / unit.size : 100 * seconds / end(run));
    return lines(box, width, height, {
      xAxis: level(shown.common ? `time (${unit.name})` : "share of the run's own time (%)"), yAxis: yAxis(), sync: "over", yRange,
      lines: runs.map((run, index) => ({
        label: runName(run), x: x(run), y: value(data.runs[run].pace),
        colour: colours.lines[(policies.length >= runs.length ? policies.indexOf(data.runs[run].policy) : index) % colours.lines.length], text,
      })),
    });
  });
}

const megabytes = list => list.map(rate => rate / 1e6);
over("over-delivered", () => upright("MB/s"), pace => megabytes(pace.delivered), value => number(value) + " MB/s");
over("over-request", () => upright("size of a request", { values: bytesTicks, incrs: BYTE_STEPS }), pace => pace.request, bytesText);
over("over-busy", () => upright("busy (%)"), pace => pace.busy.map(share => share * 100), value => number(value) + " %", () => [0, 105]);
over("over-thrashed", () => upright("pages/s"), pace => pace.thrashed, value => number(value) + " pages/s");
