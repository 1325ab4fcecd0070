// Choices and the table; then everything is drawn.

const RUN_CHARTS = ["map", "windows", "heat", "sizes", "device"];
const GROUP_CHARTS = ["frontier", "percentiles", "ledger"];
const OVER_CHARTS = ["over-fetched", "over-delivered", "over-request", "over-busy", "over-thrashed"];

function choices(select, names, chosen) {
  select.replaceChildren(...names.map((name, index) => element("option", { value: String(index), textContent: name, dir: "auto", selected: index === chosen })));
}

function chooseRun(run) {
  shown.run = run;
  shown.file = 0;
  byId("run").value = String(run);
  for (const line of document.querySelectorAll(".of-run li, #table tbody tr")) line.classList.toggle("chosen", Number(line.dataset.run) === run);
  const { files } = data.runs[run].map;
  choices(byId("file"), files.map(file => `${file.name} (${number(file.reads, 9)} reads)`), 0);
  byId("file").disabled = files.length === 0;
}

function sortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = element("button", { type: "button", textContent: head.textContent });
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[place].dataset.v === undefined ? row.cells[place].textContent : Number(row.cells[place].dataset.v);
      const compare = (a, b) => typeof key(a) === "number" ? key(a) - key(b) : key(a).localeCompare(key(b), "en");
      body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * compare(a, b)));
    });
    head.replaceChildren(button);
  });
  body.addEventListener("click", event => {
    const row = event.target.closest("tr");
    if (!row) return;
    chooseRun(Number(row.dataset.run));
    RUN_CHARTS.forEach(draw);
  });
}

function start() {
  readColours();
  const first = data.groups[0];
  choices(byId("run"), data.runs.map((run, index) => `${index + 1} · ${run.name}`), first.best);
  choices(byId("group"), data.groups.map(group => group.name), 0);
  byId("group-label").hidden = data.groups.length === 1;
  const sampled = data.runs.map((run, index) => index).filter(run => data.runs[run].pace.time.length > 0);
  const pair = [first.best, first.baseline].filter(run => sampled.includes(run));
  shown.overlay = new Set([...new Set(pair.concat(first.runs.filter(run => sampled.includes(run)), sampled))].slice(0, 2));
  for (const run of sampled) {
    const box = element("input", { type: "checkbox", checked: shown.overlay.has(run) });
    box.addEventListener("change", () => {
      shown.overlay[box.checked ? "add" : "delete"](run);
      OVER_CHARTS.forEach(draw);
    });
    byId("overlay-runs").append(element("label", {}, box, ` ${run + 1} ${data.runs[run].name}`));
  }
  byId("overlay-runs").hidden = sampled.length === 0;
  byId("map-legend").append(...[["hit", "hit"], ["late", "late"], ["miss", "miss"], ["readahead window", "window"]].map(([name, colour]) => {
    const key = element("span", { className: "key" });
    key.style.background = `var(--${colour})`;
    return element("li", {}, key, name);
  }), element("li", { textContent: "┄ lookahead mark" }));
  sortable(byId("table"));
  chooseRun(first.best);
  listen();
  drawAll();
  root.dataset.ready = "yes";
}

function listen() {
  byId("run").addEventListener("change", event => { chooseRun(Number(event.target.value)); RUN_CHARTS.forEach(draw); });
  byId("file").addEventListener("change", event => { shown.file = Number(event.target.value); draw("map"); });
  byId("group").addEventListener("change", event => { shown.group = Number(event.target.value); GROUP_CHARTS.forEach(draw); });
  for (const layer of ["reads", "windows", "marks"]) byId("show-" + layer).addEventListener("change", () => charts.get("map").plot?.redraw());
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoomMap(button.dataset.zoom));
  const map = charts.get("map").box;
  map.tabIndex = 0;
  map.addEventListener("keydown", event => {
    const how = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", "+": "in", "=": "in", "-": "out", 0: "all" }[event.key];
    if (!how) return;
    event.preventDefault();
    zoomMap(how);
  });
  let wide = root.clientWidth, later = 0;
  addEventListener("resize", () => {
    clearTimeout(later);
    later = setTimeout(() => { if (root.clientWidth !== wide) { wide = root.clientWidth; drawAll(); } }, 120);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { root.classList.add("printing"); drawAll(); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); drawAll(); });
}

start();
