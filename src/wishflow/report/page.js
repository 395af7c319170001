"use strict";
// Draws what the data of the page hold. A chart is a function of its state, and is drawn anew when that changes.
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const SVG = "http://www.w3.org/2000/svg", DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 5"];
const drawings = [];

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
function section(title, note) {
  const id = "s" + main.children.length;
  const node = make("section", { "aria-labelledby": id }, make("h2", { id }, title));
  if (note) node.append(make("p", { class: "note" }, note));
  main.append(node);
  return node;
}
function choice(parent, text, values, change) {
  const select = make("select");
  values.forEach((value, i) => select.append(make("option", { value: i }, value)));
  select.addEventListener("change", () => change(Number(select.value)));
  parent.append(make("label", {}, text, select));
  return select;
}
function slider(parent, text, n, start, change) {
  const input = make("input", { type: "range", min: 0, max: n - 1, step: 1, value: start, "aria-label": text });
  input.addEventListener("input", () => change(Number(input.value)));
  parent.append(make("label", { class: "wide" }, input));
  return input;
}
function short(value) {
  if (value === null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

// --- time: { kind, start, step, n } or { kind, at: [...] }; dates are milliseconds of the wall clock ---
function stamps(time) {
  if (time.at) return time.at;
  return Array.from({ length: time.n }, (_, i) => time.start + i * time.step);
}
function stamp(value, kind, span) {
  if (kind !== "date") return short(value);
  const text = new Date(value).toISOString(), day = 864e5;
  if (span === undefined) return text.slice(0, 10) + (value % day ? " " + text.slice(11, 16) : "");
  return span > 60 * day ? text.slice(0, 10) : span > 3 * day ? text.slice(5, 10) : text.slice(5, 16).replace("T", " ");
}

// --- a chart with axes; `paint(x, y, add)` draws into it ---
function ticks(low, high, n) {
  const raw = (high - low) / n, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * size).find(k => k >= raw) || size;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(value);
  return found;
}
function dateTicks(low, high, n) {
  const hour = 36e5, day = 24 * hour, raw = (high - low) / n;
  const steps = [6e4, 3e5, 9e5, 18e5, hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 14 * day, 30 * day,
    61 * day, 91 * day, 183 * day, 365 * day];
  const step = steps.find(k => k >= raw) || 365 * day * Math.ceil(raw / (365 * day)), found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}
function chart(holder, options, paint) {
  const width = Math.max(holder.clientWidth, 200), height = options.height || (width < 480 ? 220 : 280);
  const left = 52, right = 10, top = 10, bottom = 26;
  const [x0, x1] = options.x, pad = (options.y[1] - options.y[0]) * .05 || Math.abs(options.y[0]) * .1 || 1;
  const [y0, y1] = options.exact ? options.y : [options.y[0] - pad, options.y[1] + pad];
  const x = v => left + (v - x0) / (x1 - x0 || 1) * (width - left - right);
  const y = v => height - bottom - (v - y0) / (y1 - y0 || 1) * (height - top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label });
  const add = (tag, attributes, text) => svg.append(shape(tag, attributes, text));
  for (const v of ticks(y0, y1, 5)) {
    add("path", { class: "axis", d: `M${left} ${y(v)}H${width - right}` });
    add("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, short(Number(v.toPrecision(6))));
  }
  const marks = options.kind === "date" ? dateTicks(x0, x1, Math.max(3, Math.floor((width - left) / 110)))
    : ticks(x0, x1, Math.max(3, Math.floor((width - left) / 70))).filter(v => !options.whole || Number.isInteger(v));
  for (const v of marks) {
    add("path", { class: "axis", d: `M${x(v)} ${height - bottom}v5` });
    add("text", { x: x(v), y: height - 6, "text-anchor": "middle" },
      options.kind === "date" ? stamp(v, "date", x1 - x0) : short(Number(v.toPrecision(6))));
  }
  paint(x, y, add, { left, right, width, height, top, bottom });
  holder.replaceChildren(svg);
}
function line(xs, ys, x, y) {
  let text = "", pen = "M";
  for (let i = 0; i < xs.length; i++) {
    if (ys[i] === null) { pen = "M"; continue; }
    text += pen + x(xs[i]).toFixed(1) + " " + y(ys[i]).toFixed(1);
    pen = "L";
  }
  return text;
}
function band(xs, low, high, x, y) {
  const there = xs.map((_, i) => i).filter(i => low[i] !== null && high[i] !== null);
  if (!there.length) return "";
  const up = there.map(i => x(xs[i]).toFixed(1) + " " + y(low[i]).toFixed(1));
  const down = there.reverse().map(i => x(xs[i]).toFixed(1) + " " + y(high[i]).toFixed(1));
  return "M" + up.join("L") + "L" + down.join("L") + "Z";
}
function extent(...lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) for (const v of list) if (v !== null) { low = Math.min(low, v); high = Math.max(high, v); }
  return low <= high ? [low, high] : [0, 1];
}
function legend(parent, names) {
  const list = make("ul", { class: "legend" });
  names.forEach((name, i) => {
    const svg = shape("svg", { viewBox: "0 0 34 10", "aria-hidden": "true" });
    svg.append(shape("path", { d: "M0 5H34", style: `stroke:var(--c${i % 5})`, "stroke-width": 2.5,
      "stroke-dasharray": DASHES[i % 5] }));
    list.append(make("li", {}, svg, name));
  });
  parent.append(list);
}
function draw(holder, paint) { drawings.push(paint); return paint; }

// --- fan charts ---
function fans(fan) {
  const node = section("Forecast and observed values", fan.note), controls = make("div", { class: "controls" });
  node.append(controls);
  const future = stamps(fan.time), past = fan.history ? stamps(fan.history.time) : [];
  const state = { variable: 0, past: 0, at: 0 };
  const all = past.length ? future[future.length - 1] - past[0] : 0, ahead = future[future.length - 1] - future[0] || 1;
  const spans = [[2, "2 horizons"], [8, "8 horizons"], [30, "30 horizons"]].filter(([k]) => k * ahead < all);
  const holder = make("div"), readout = make("p", { class: "readout", "aria-live": "polite" });
  const paint = draw(holder, () => {
    const name = fan.variables[state.variable], q = fan.quantiles[state.variable];
    const from = state.past < spans.length ? future[0] - spans[state.past][0] * ahead : -Infinity;
    const kept = past.map((_, i) => i).filter(i => past[i] >= from);
    const xs = kept.map(i => past[i]), ys = kept.map(i => fan.history.values[state.variable][i]);
    const later = fan.observed ? fan.observed[state.variable] : [];
    const here = future[state.at];
    chart(holder, { kind: fan.time.kind, x: extent(xs, future), y: extent(ys, q[0], q[4], later),
      label: `Fan chart of ${name}` }, (x, y, add, box) => {
      add("path", { class: "band5", d: band(future, q[0], q[4], x, y) });
      add("path", { class: "band25", d: band(future, q[1], q[3], x, y) });
      add("path", { class: "middle", d: line(future, q[2], x, y) });
      add("path", { class: "seen", d: line(xs, ys, x, y) });
      later.forEach((v, i) => { if (v !== null) add("circle", { class: "dot", cx: x(future[i]), cy: y(v), r: 2.2 }); });
      add("path", { class: "cursor", d: `M${x(here)} ${box.top}V${box.height - box.bottom}` });
    });
    const i = state.at, came = later.length && later[i] !== null ? `, observed ${short(later[i])}` : "";
    readout.textContent = `${name}, ${stamp(here, fan.time.kind)}: median ${short(q[2][i])}, 50 % ${short(q[1][i])} to `
      + `${short(q[3][i])}, 90 % ${short(q[0][i])} to ${short(q[4][i])}${came}`;
  });
  choice(controls, "Variable", fan.variables, i => { state.variable = i; paint(); });
  if (spans.length) choice(controls, "Past shown", [...spans.map(s => s[1]), "all"], i => { state.past = i; paint(); });
  node.append(holder);
  slider(node, "Time of the forecast", future.length, 0, i => { state.at = i; paint(); });
  node.append(readout, make("p", { class: "note" }, "Line: median; dark band: 50 %; light band: 90 % of the draws. "
    + "Dark line and dots: observed values. The slider reads the values at one time."));
  paint();
}

// --- correlation matrices along time ---
function colour(r) {
  const share = Math.min(1, Math.abs(r)), [red, green, blue] = r < 0 ? [179, 74, 0] : [0, 90, 160];
  const mixed = [red, green, blue].map(c => Math.round(245 + (c - 245) * share));
  const light = mixed.map(c => (c / 255) ** 2.2), luminance = .2126 * light[0] + .7152 * light[1] + .0722 * light[2];
  return [`rgb(${mixed})`, luminance > .18 ? "#000" : "#fff"];  // the ink with more contrast
}
function correlations(part) {
  const node = section(part.title, part.note), names = part.variables, times = stamps(part.time);
  const state = { at: times.length - 1, a: 0, b: 1 };
  const pair = (i, j) => { const [a, b] = i < j ? [i, j] : [j, i]; return a * names.length - a * (a + 1) / 2 + b - a - 1; };
  const readout = make("p", { class: "readout", "aria-live": "polite" });
  const table = make("table", { class: "matrix" }), holder = make("div"), buttons = [];
  table.append(make("thead", {}, make("tr", {}, make("th"), ...names.map(n => make("th", { scope: "col", title: n }, n)))));
  const body = make("tbody");
  names.forEach((name, i) => {
    const row = make("tr", {}, make("th", { scope: "row", title: name }, name));
    names.forEach((other, j) => {
      if (i === j) { row.append(make("td", {}, "1")); return; }
      const button = make("button", { type: "button" });
      button.addEventListener("click", () => { state.a = i; state.b = j; paint(); });
      buttons.push([button, i, j]);
      row.append(make("td", {}, button));
    });
    body.append(row);
  });
  table.append(body);
  const paint = draw(holder, () => {
    const when = stamp(times[state.at], part.time.kind);
    for (const [button, i, j] of buttons) {
      const k = pair(i, j), r = part.value[k][state.at], [back, ink] = colour(r === null ? 0 : r);
      button.style.background = back;
      button.style.color = ink;
      button.textContent = r === null ? "–" : r.toFixed(2).replace("0.", ".").replace(/^-?1\.00$/, m => m.slice(0, -3));
      const spread = part.low ? `, 90 % band ${short(part.low[k][state.at])} to ${short(part.high[k][state.at])}` : "";
      button.title = `${names[i]}, ${names[j]}: ${short(r)}${spread}`;
      button.setAttribute("aria-label", button.title);
      button.setAttribute("aria-pressed", String(pair(state.a, state.b) === k));
    }
    const k = pair(state.a, state.b), ys = part.value[k];
    chart(holder, { kind: part.time.kind, x: extent(times), y: [-1, 1], exact: true, height: 200,
      label: `Correlation of ${names[state.a]} and ${names[state.b]} along time` }, (x, y, add, box) => {
      if (part.low) add("path", { class: "band5", d: band(times, part.low[k], part.high[k], x, y) });
      add("path", { class: "middle", d: line(times, ys, x, y) });
      add("path", { class: "cursor", d: `M${x(times[state.at])} ${box.top}V${box.height - box.bottom}` });
    });
    const spread = part.low ? ` (90 % band ${short(part.low[k][state.at])} to ${short(part.high[k][state.at])})` : "";
    readout.textContent = `${when}: correlation of ${names[state.a]} and ${names[state.b]} ${short(ys[state.at])}${spread}`;
  });
  slider(node, "Time of the correlations", times.length, state.at, i => { state.at = i; paint(); });
  node.append(readout, make("div", { class: "scroll" }, table), holder,
    make("p", { class: "note" }, "Choose a pair in the matrix; the slider moves along time."));
  paint();
}

// --- lines of several models by horizon ---
function byHorizon(part) {
  const node = section(part.title, part.note), controls = make("div", { class: "controls" }), holder = make("div");
  const names = part.charts.map(c => c.name), models = part.models, state = { chart: 0 };
  const table = make("table"), scroll = make("div", { class: "scroll" }, table);
  node.append(controls);
  const paint = draw(holder, () => {
    const shown = part.charts[state.chart], range = extent(...shown.lines, shown.nominal ? [shown.nominal] : []);
    const y = shown.share ? [Math.min(range[0], .5), 1] : range;
    chart(holder, { x: extent(part.horizons), whole: true, y, exact: Boolean(shown.share), label: shown.name }, (x, y, add, box) => {
      if (shown.nominal) add("path", { class: "nominal", d: `M${box.left} ${y(shown.nominal)}H${box.width - box.right}` });
      shown.lines.forEach((values, i) => {
        add("path", { d: line(part.horizons, values, x, y), fill: "none", style: `stroke:var(--c${i % 5})`,
          "stroke-width": 2.2, "stroke-dasharray": DASHES[i % 5] });
        if (part.horizons.length < 15) values.forEach((v, k) => { if (v !== null)
          add("circle", { cx: x(part.horizons[k]), cy: y(v), r: 3, style: `fill:var(--c${i % 5})` }); });
      });
    });
    const mean = list => { const there = list.filter(v => v !== null); return there.reduce((a, b) => a + b, 0) / there.length; };
    const at = [0, Math.floor((part.horizons.length - 1) / 2), part.horizons.length - 1].filter((v, i, l) => l.indexOf(v) === i);
    table.replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, shown.name),
        ...at.map(k => make("th", { scope: "col" }, `step ${part.horizons[k]}`)), make("th", { scope: "col" }, "mean"))),
      make("tbody", {}, ...models.map((model, i) => make("tr", {}, make("th", { scope: "row" }, model),
        ...at.map(k => make("td", {}, short(shown.lines[i][k]))), make("td", {}, short(mean(shown.lines[i])))))));
  });
  if (names.length > 1) choice(controls, part.choice, names, i => { state.chart = i; paint(); });
  legend(node, models);
  node.append(holder, make("p", { class: "note" }, "Horizon in steps. " + (part.foot || "")), scroll);
  paint();
}

// --- lines, bars and points of a fit ---
function plain(part) {
  const node = section(part.title, part.note), holder = make("div"), controls = make("div", { class: "controls" });
  const state = { chart: 0 }, caption = make("p", { class: "note" });
  node.append(controls, holder, caption);
  const paint = draw(holder, () => {
    caption.textContent = part.charts[state.chart].caption || part.charts[state.chart].name;
    const shown = part.charts[state.chart], zero = shown.kind === "bars" ? [0] : [];
    const ys = shown.kind === "points" ? extent(shown.y, shown.x) : extent(shown.y, zero, shown.nominal ? [shown.nominal] : []);
    const xs = shown.kind === "points" ? ys : extent(shown.x, zero, shown.width ? [1] : []);
    chart(holder, { x: xs, y: ys, whole: !shown.kind, label: shown.name }, (x, y, add, box) => {
      if (shown.kind === "bars") shown.x.forEach((v, i) => add("rect", { x: x(v) + 1, width: Math.max(1, x(v + shown.width) - x(v) - 2),
        y: y(shown.y[i]), height: y(0) - y(shown.y[i]), style: "fill:var(--c0)" }));
      else if (shown.kind === "points") {
        add("path", { class: "nominal", d: `M${x(xs[0])} ${y(xs[0])}L${x(xs[1])} ${y(xs[1])}` });
        shown.x.forEach((v, i) => add("circle", { cx: x(v), cy: y(shown.y[i]), r: 2.5, style: "fill:var(--c0);fill-opacity:.6" }));
      } else add("path", { class: "middle", d: line(shown.x, shown.y, x, y) });
      if (shown.nominal) add("path", { class: "nominal", d: `M${box.left} ${y(shown.nominal)}H${box.width - box.right}` });
    });
  });
  if (part.charts.length > 1) choice(controls, "Show", part.charts.map(c => c.name), i => { state.chart = i; paint(); });
  paint();
}

const KINDS = { fan: fans, correlations, horizon: byHorizon, plain };
for (const part of data.parts) KINDS[part.part](part);
let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => drawings.forEach(paint => paint()), 100); });
document.documentElement.dataset.ready = "yes";
