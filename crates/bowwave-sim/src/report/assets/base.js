// What all pictures use: the data, elements, figures as text, colours of the scheme.

const root = document.documentElement;
root.classList.remove("bare");
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const OUTCOMES = ["hit", "late", "miss"];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// The numbers of a column: differences, seven bits a byte, the low ones first; odd is down.
function column(text) {
  const bytes = atob(text);
  const values = [];
  let last = 0, value = 0, factor = 1;
  for (let index = 0; index < bytes.length; index++) {
    const byte = bytes.charCodeAt(index);
    value += (byte & 127) * factor;
    factor *= 128;
    if (byte < 128) {
      last += value % 2 === 0 ? value / 2 : -(value - 1) / 2;
      values.push(last);
      value = 0;
      factor = 1;
    }
  }
  return values;
}

// Columns are text until a picture needs them.
function unpack(columns) {
  for (const name of Object.keys(columns)) {
    if (typeof columns[name] === "string") columns[name] = column(columns[name]);
  }
  return columns;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

function number(value, digits = 3) {
  if (value !== 0 && Math.abs(value) < 1e-4) return "0";
  const decimals = value === 0 ? 0 : clamp(digits - 1 - Math.floor(Math.log10(Math.abs(value))), 0, 6);
  return value.toLocaleString("en", { maximumFractionDigits: decimals });
}

function timeText(nanoseconds) {
  for (const [unit, size] of [["ns", 1], ["µs", 1e3], ["ms", 1e6]]) {
    if (nanoseconds < size * 1000) return number(nanoseconds / size) + "\u00a0" + unit;
  }
  return number(nanoseconds / 1e9) + "\u00a0s";
}

const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];

function bytesText(bytes) {
  const [unit, size] = SIZES.find(([, size]) => bytes >= size) || SIZES[4];
  return number(bytes / size, 4) + "\u00a0" + unit;
}

// The unit in which a run's times are read.
function timeUnit(nanoseconds) {
  const [name, size] = nanoseconds >= 2e9 ? ["s", 1e9] : nanoseconds >= 2e6 ? ["ms", 1e6] : ["µs", 1e3];
  return { name, size };
}

// Ticks: as many decimals as tell them apart.
function plainTicks(_, splits, axis, space, step) {
  let decimals = 0;
  while (decimals < 9 && Math.abs((step || 1) * 10 ** decimals - Math.round((step || 1) * 10 ** decimals)) > 1e-6) decimals++;
  return splits.map(split => split == null ? null : split.toLocaleString("en", { maximumFractionDigits: decimals }));
}

function bytesTicks(_, splits, axis, space, step) {
  const most = Math.max(...splits.map(Math.abs), 1);
  const [unit, size] = SIZES.find(([, size]) => most >= size && (step || 1) / size >= 0.1) || SIZES[4];
  return splits.map(split => number(split / size, 7) + " " + unit);
}

const BYTE_STEPS = Array.from({ length: 52 }, (_, power) => 2 ** power);
const logTimeTicks = (_, splits) => splits.map(split => Number.isInteger(split) ? timeText(10 ** split) : "");

let colours = {};
const LINES = {
  light: ["#0077bb", "#cc3311", "#009988", "#d9661f", "#aa3377", "#555555", "#1d9fd0", "#997700"],
  dark: ["#66b5e8", "#f2836b", "#4cc9b5", "#f0a35e", "#e58fc0", "#bbbbbb", "#8ee0ff", "#e5cf6b"],
};
const HEATS = {
  light: ["#c3dced", "#8fbcdb", "#5594c4", "#2a669f", "#12305c"],
  dark: ["#2b4d69", "#336690", "#3f83b5", "#7cc4ee", "#f4e9b8"],
};
const DASHES = [[], [], [7, 3], [2, 3], [9, 3, 2, 3], [5, 2, 2, 2, 2, 2], [12, 4], [3, 2], [1, 2]];

function readColours() {
  const style = getComputedStyle(root);
  colours = {};
  for (const name of ["card", "ink", "quiet", "line", "grid", "accent", "star", "hit", "late", "miss", "window", "wasted", "in-time"]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
  const dark = !root.classList.contains("printing") && matchMedia("(prefers-color-scheme: dark)").matches;
  colours.lines = LINES[dark ? "dark" : "light"];
  colours.heat = HEATS[dark ? "dark" : "light"];
  root.dataset.scheme = dark ? "dark" : "light";
}

function alpha(colour, share) {
  return colour + Math.round(share * 255).toString(16).padStart(2, "0");
}

// Each policy has a colour, the same in every picture.
const policies = [...new Set(data.runs.map(run => run.policy))];
const policyColour = run => colours.lines[policies.indexOf(data.runs[run].policy) % colours.lines.length];
