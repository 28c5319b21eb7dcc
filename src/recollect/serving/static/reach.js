// How far a gradient reaches: every model in one figure, and the same for models that have learned nothing yet.

import { h, put, slider } from "./dom.js";
import { lineChart, tableOf } from "./charts.js";
import { power, row, scientific } from "./numbers.js";
import { t, visible } from "./words.js";

const LOWEST = -16; // powers of ten that are drawn

function logAxis(lines, title) {
  const values = lines.flatMap((line) => line.points.map(([, y]) => y)).filter((y) => Number.isFinite(y) && y > LOWEST);
  const low = Math.max(LOWEST, Math.floor(Math.min(-1, ...values)));
  const high = Math.ceil(Math.max(...values, low + 1));
  const step = Math.ceil((high - low) / 7);
  const ticks = [];
  for (let e = high; e >= low; e -= step) ticks.push([e, power(e)]);
  return { low, high, ticks, title };
}

function distances(most) {
  const step = [1, 2, 5, 8, 10, 16, 20, 32, 50, 64].find((one) => most / one <= 8) ?? 64;
  const ticks = [];
  for (let d = 0; d <= most; d += step) ticks.push([d, String(d)]);
  return { low: 0, high: Math.max(1, most), ticks, title: t("distance") };
}

function line(name, series, values, more = {}) {
  const points = Array.from(values, (value, d) => [d, Math.log10(value)]).filter(([, y]) => Number.isFinite(y));
  return { name, series, points, ...more };
}

/** The figure of the trained models, and that of the untrained. */
export class ReachView {
  constructor(app) {
    this.app = app;
    this.title = h("h2", { text: t("reachTitle") });
    this.words = h("p", { class: "lead" });
    this.figure = h("div", { class: "figure" });
    this.without = h("p", { class: "quiet without" });
    this.details = h("details", {}, h("summary", { text: t("table") }), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("table") }));
    this.lab = h("section", { class: "lab" });
    this.element = h("section", { class: "view reach", id: "view-reach", "aria-label": t("reach") }, this.title, this.words, this.figure, this.without, this.details, this.lab);
  }

  width() { return Math.max(300, Math.min(1180, this.element.clientWidth || 900)); }

  update() {
    const { app } = this;
    const isPinned = app.mainPin >= 0;
    this.words.textContent = isPinned ? t("reachPinned", visible(app.main.symbols.texts[app.mainPin]), app.mainPin + 1) : t("reachText");
    const known = app.columns.filter((one) => !one.problem);
    const others = known.filter((column) => !app.readingOf(column).hasGradient); // nothing of theirs belongs on this axis
    this.without.textContent = others.length ? t("withoutGradient", others.map((one) => one.name).join(t("comma"))) : "";
    const lines = known.filter((column) => !others.includes(column)).map((column) => {
      const reading = app.readingOf(column);
      const pin = app.pinIn(column);
      const values = isPinned ? reading.ahead(pin)?.slice(Math.max(0, pin)) : reading.curve();
      return values ? line(column.name, column.series, values, { id: column.id, values }) : null;
    }).filter(Boolean);
    if (!lines.length) { put(this.figure); put(this.details.lastChild); this.drawLab(); return; }
    const most = Math.max(...lines.map((one) => one.points.at(-1)?.[0] ?? 0));
    const width = this.width();
    put(this.figure, lineChart({ title: t("reachTitle"), lines, x: distances(most), y: logAxis(lines, t("gradient")), width, height: Math.min(460, Math.max(320, width * 0.46)), onmove: (d) => this.point(lines, d) }), this.readout = h("p", { class: "readout quiet", "aria-hidden": "true" }));
    const columns = [0, 1, 2, 4, 8, 16, 32, 48, 63].filter((d) => d <= most);
    put(this.details.lastChild, tableOf(lines, columns, (one, d) => (d < one.values.length ? scientific(one.values[d]) : "")));
    this.drawLab();
  }

  point(lines, d) {
    const words = lines.filter((one) => d < one.values.length).map((one) => `${one.name} ${scientific(one.values[d])}`);
    this.readout.textContent = `${t("distance")} ${d} · ${words.join(" · ")}`;
  }

  drawLab() {
    const { lab } = this.app.exhibit;
    if (!lab) return;
    const place = Math.max(0, lab.biases.indexOf(this.app.state.get("bias")));
    const at = (i) => row(lab.curves.lstm, i);
    const lines = Object.entries(lab.curves).map(([name, packed]) => {
      const values = name === "lstm" ? at(place) : row(packed, 0);
      return line(lab.names[name] ?? name, lab.series[name], values, { values });
    });
    const ghosts = lab.biases.map((bias, i) => line("", lab.series.lstm, at(i), { faint: true, id: `bias-${bias}` }));
    lines.unshift(...ghosts.filter((_, i) => i !== place));
    const orders = Math.log10(at(lab.biases.length - 1)[lab.distance] / at(0)[lab.distance]);
    const now = at(place)[lab.distance];
    const all = [...lab.biases.map((_, i) => line("", 0, at(i))), ...lines];
    const width = this.width();
    const chart = lineChart({ title: t("labTitle"), lines, x: distances(lines.at(-1).values.length - 1), y: logAxis(all, t("gradient")), width, height: Math.min(420, Math.max(300, width * 0.42)) });
    if (!this.labFigure) {
      this.labFigure = h("div", { class: "figure" });
      this.labNow = h("p", { class: "now", role: "status" });
      const control = slider(t("labBias"), lab.biases, place, (i) => this.app.state.set({ bias: lab.biases[i] }), (value) => value.toFixed(1));
      this.labInput = control.querySelector("input");
      put(this.lab, h("h2", { text: t("labTitle") }), h("p", { class: "lead", text: t("labText", lab.distance, orders.toFixed(1)) }), h("div", { class: "lab-row" }, control, this.labNow), this.labFigure);
    }
    this.labInput.value = place;
    this.labNow.textContent = t("labNow", lab.distance, scientific(now));
    put(this.labFigure, chart);
  }
}
