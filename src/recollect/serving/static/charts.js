// Figures: lines on a logarithmic or linear axis with labels at their ends, small tracks, and heat maps on a canvas.

import { css, h, s } from "./dom.js";

/** Return a path through points [x, y]; a gap where y is not finite. */
function path(points) {
  let isOpen = false;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) { isOpen = false; return ""; }
    const word = isOpen ? "L" : "M";
    isOpen = true;
    return `${word}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
}

/** Return the points down to where a line leaves the figure at its lower edge, that crossing included. */
function within(points, low) {
  const below = points.findIndex(([, y]) => y < low);
  if (below < 0) return points;
  if (below === 0) return [];
  const [[a, b], [c, d]] = [points[below - 1], points[below]];
  return [...points.slice(0, below), [a + ((b - low) / (b - d)) * (c - a), low]];
}

/** Move labels apart so that none overlap: each at least `gap` below the one before. */
function apart(labels, gap, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + gap);
  const over = labels.length ? labels.at(-1).y - bottom : 0;
  if (over > 0) {
    labels.at(-1).y -= over;
    for (let i = labels.length - 2; i >= 0; i--) labels[i].y = Math.min(labels[i].y, labels[i + 1].y - gap);
  }
  return labels.map((label) => ({ ...label, y: Math.max(label.y, top) }));
}

/**
 * Return a line chart. lines: [{ name, series, points: [[x, y]] , faint }]; x, y: { low, high, ticks: [[value, text]], title }.
 * Values are given as they are drawn: a logarithmic axis is given logarithms.
 */
export function lineChart({ title, lines, x, y, width, height = 420, onmove = null }) {
  const isNarrow = width < 560;
  const em = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16; // letters grow with the window
  const longest = Math.max(3, ...lines.map((line) => line.name.length));
  const [left, right, top, bottom] = [(isNarrow ? 42 : 58) * em, Math.min(8.2 * em * longest + 22, width * 0.3), 34 * em, 48 * em];
  const at = (v) => left + ((v - x.low) / (x.high - x.low || 1)) * (width - left - right);
  const up = (v) => height - bottom - ((v - y.low) / (y.high - y.low || 1)) * (height - top - bottom);
  const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title, class: "chart" });
  for (const [value, text] of y.ticks) {
    chart.append(s("line", { class: "grid", x1: left, x2: width - right, y1: up(value), y2: up(value) }));
    chart.append(s("text", { class: "tick", x: left - 10, y: up(value) + 4, "text-anchor": "end", text }));
  }
  for (const [value, text] of x.ticks)
    chart.append(s("text", { class: "tick", x: at(value), y: height - bottom + 22 * em, "text-anchor": "middle", text }));
  chart.append(s("text", { class: "axis-title", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle", text: x.title }));
  chart.append(s("text", { class: "axis-title", x: 0, y: 12 * em, text: y.title }));
  const labels = [];
  for (const line of lines) {
    const drawn = within(line.points, y.low).map(([a, b]) => [at(a), up(b)]);
    const name = `series s${line.series}${line.faint ? " faint" : ""}`;
    const group = s("g", { class: name, "data-line": line.id ?? line.name });
    group.append(s("path", { d: path(drawn) }));
    if (drawn.length === 1) group.append(s("circle", { cx: drawn[0][0], cy: drawn[0][1], r: 3.5 }));
    const end = drawn.filter(([, b]) => Number.isFinite(b)).at(-1);
    if (end && line.name) labels.push({ text: line.name, y: end[1], x: end[0], series: line.series });
    chart.append(group);
  }
  const isEarly = (label) => label.x < width - right - 60;
  const placed = apart(labels.filter((label) => !isEarly(label)), 17 * em, top + 4, height - bottom);
  for (const label of [...placed, ...apart(labels.filter(isEarly), 15 * em, top + 4, height - bottom)])
    chart.append(s("g", { class: `series s${label.series}` }, s("text", { x: (isEarly(label) ? label.x : width - right) + 10, y: label.y + 4, text: label.text })));
  if (onmove) {
    const rule = s("line", { class: "rule", y1: top, y2: height - bottom, visibility: "hidden" });
    chart.append(rule);
    chart.addEventListener("pointerleave", () => rule.setAttribute("visibility", "hidden"));
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const value = x.low + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x.high - x.low);
      if (value >= x.low && value <= x.high) {
        rule.setAttribute("visibility", "visible");
        rule.setAttribute("x1", at(Math.round(value)));
        rule.setAttribute("x2", at(Math.round(value)));
        onmove(Math.round(value));
      }
    });
  }
  return chart;
}

/** Return small lines over time, drawn on 0 … 1 of their common range, and a function that moves the cursor. */
export function tracks(lines, label, { low, high, width = 260, height = 64 }) {
  const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "tracks", role: "img", "aria-label": label, preserveAspectRatio: "none" });
  const steps = Math.max(2, lines[0].values.length);
  const at = (i) => ((i + 0.5) / steps) * width;
  const up = (v) => height - 3 - ((v - low) / (high - low || 1)) * (height - 6);
  lines.forEach((line, i) => {
    const points = Array.from(line.values, (v, n) => [at(n), up(v)]);
    chart.append(s("path", { class: `track t${i}`, d: path(points), "vector-effect": "non-scaling-stroke" }));
  });
  const rule = s("line", { class: "rule", y1: 0, y2: height, "vector-effect": "non-scaling-stroke" });
  chart.append(rule);
  return { chart, move: (i) => { rule.setAttribute("visibility", i < 0 ? "hidden" : "visible"); rule.setAttribute("x1", at(i)); rule.setAttribute("x2", at(i)); } };
}

function rgb(name) {
  const hex = css(name).replace("#", "");
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/** Draw values (T, U) as a heat map, time to the right: below zero one hue, above zero the other, zero the paper. */
export function heat(canvas, values, steps, units, chosen) {
  canvas.width = Math.max(steps, 1);
  canvas.height = Math.max(chosen.length, 1);
  const picture = canvas.getContext("2d").createImageData(canvas.width, canvas.height);
  const [paper, above, below] = ["--raised", "--heat-above", "--heat-below"].map(rgb);
  let most = 1e-9;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  chosen.forEach((unit, y) => {
    for (let x = 0; x < steps; x++) {
      const value = values[x * units + unit];
      const share = Math.sqrt(Math.abs(value) / most);
      const ink = value < 0 ? below : above;
      for (let c = 0; c < 3; c++) picture.data[4 * (y * steps + x) + c] = paper[c] + (ink[c] - paper[c]) * share;
      picture.data[4 * (y * steps + x) + 3] = 255;
    }
  });
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** Return a table of a figure's lines, for those who read numbers or listen. */
export function tableOf(lines, columns, format) {
  const head = h("tr", {}, h("th", { scope: "col" }), columns.map((column) => h("th", { scope: "col", text: column })));
  const rows = lines.map((line) => h("tr", {}, h("th", { scope: "row", text: line.name }),
    columns.map((column) => h("td", { text: format(line, column) }))));
  return h("table", {}, h("thead", {}, head), h("tbody", {}, rows));
}
