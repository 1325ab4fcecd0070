// Choices and the table; then everything is drawn.

const RUN_CHARTS = ["map", "windows", "heat", "sizes", "device"];
const OVER_CHARTS = ["over-delivered", "over-request", "over-busy", "over-thrashed"];
// Names longer than this are cut in their middle: a list of choices is as wide as its longest.
const NAME_MAX = 60;

const short = name => name.length > NAME_MAX ? `${name.slice(0, 18)}…${name.slice(19 - NAME_MAX)}` : name;

function choices(select, names, chosen) {
  select.replaceChildren(...names.map((name, index) => element("option", { value: String(index), textContent: name, dir: "auto", selected: index === chosen })));
}

// All below the first picture is of one group.
function chooseGroup(index) {
  shown.group = index;
  byId("group").value = String(index);
  for (const it of document.querySelectorAll(".of-group")) it.classList.toggle("chosen", Number(it.dataset.group) === index);
  const { runs, best, baseline } = data.groups[index];
  const sampled = runs.filter(run => data.runs[run].pace.time.length >= POINTS_MIN);
  shown.overlay = new Set([...new Set([best, baseline].filter(run => sampled.includes(run)).concat(sampled))].slice(0, 2));
  byId("overlay-runs").replaceChildren(byId("overlay-runs").querySelector("legend"), ...sampled.map(run => {
    const box = element("input", { type: "checkbox", checked: shown.overlay.has(run) });
    box.addEventListener("change", () => {
      shown.overlay[box.checked ? "add" : "delete"](run);
      drawThese(OVER_CHARTS);
    });
    return element("label", {}, box, ` ${run + 1} ${data.runs[run].name}`);
  }));
  byId("time").hidden = sampled.length === 0;
  byId("overlay-runs").hidden = byId("axis").closest("p").hidden = sampled.length === 1;
  byId("run").replaceChildren(...runs.map(run => element("option", { value: String(run), textContent: `${run + 1} · ${data.runs[run].name}`, dir: "auto" })));
  chooseRun(best);
}

function chooseRun(run) {
  shown.run = run;
  shown.file = 0;
  byId("run").value = String(run);
  for (const line of document.querySelectorAll(".of-run li, #table tr[data-run]")) line.classList.toggle("chosen", Number(line.dataset.run) === run);
  const { files } = data.runs[run].map;
  choices(byId("file"), files.map(file => `${short(file.name)} (${number(file.reads, 9)} reads)`), 0);
  byId("file").title = files.length ? files[0].name : "";
  byId("file").disabled = files.length === 0;
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = element("button", { type: "button", textContent: head.textContent });
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[place].dataset.v === undefined ? row.cells[place].textContent : Number(row.cells[place].dataset.v);
      const compare = (a, b) => typeof key(a) === "number" ? key(a) - key(b) : key(a).localeCompare(key(b), "en");
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter(row => row.dataset.run !== undefined).sort((a, b) => (up ? 1 : -1) * compare(a, b));
        body.rows[0].after(...rows);
      }
    });
    head.replaceChildren(button);
  });
  table.addEventListener("click", event => {
    const row = event.target.closest("tr[data-run]");
    if (!row) return;
    chooseRun(Number(row.dataset.run));
    drawThese(RUN_CHARTS);
  });
}

function start() {
  readColours();
  choices(byId("group"), data.groups.map(group => group.name), 0);
  byId("group-bar").hidden = data.groups.length === 1;
  for (const block of data.groups.length > 1 ? document.querySelectorAll(".block") : []) {
    const title = element("button", { type: "button", className: "title", textContent: block.querySelector("h3").textContent });
    title.addEventListener("click", () => { chooseGroup(Number(block.dataset.block)); drawAll(); byId("compare").scrollIntoView(); });
    block.querySelector("h3").replaceChildren(title);
  }
  byId("map-legend").append(...[["hit", "hit"], ["late", "late"], ["miss", "miss"], ["readahead window", "window"]].map(([name, colour]) => {
    const key = element("span", { className: "key" });
    key.style.background = `var(--${colour})`;
    return element("li", {}, key, name);
  }), element("li", { textContent: "┄ lookahead mark" }));
  sortable(byId("table"));
  chooseGroup(0);
  listen();
  drawAll();
  root.dataset.ready = "yes";
}

function listen() {
  byId("run").addEventListener("change", event => { chooseRun(Number(event.target.value)); drawThese(RUN_CHARTS); });
  byId("file").addEventListener("change", event => { shown.file = Number(event.target.value); draw("map"); });
  byId("group").addEventListener("change", event => { chooseGroup(Number(event.target.value)); drawAll(); });
  byId("axis").addEventListener("change", event => { shown.common = event.target.value === "common"; drawThese(OVER_CHARTS); });
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
