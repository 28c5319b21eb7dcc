// How the models were trained, and how those that are being trained now do: curves and samples of their run folders.

import { h, put } from "./dom.js";
import { lineChart } from "./charts.js";
import { own, t } from "./words.js";

const POLL = 2000; // milliseconds

function linear(values, count, title) {
  const low = Math.min(...values);
  const high = Math.max(...values, low + 1e-6);
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((n) => unit * n >= rough) * unit;
  const ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) ticks.push([v, String(Number(v.toFixed(6)))]);
  return { low, high, ticks, title };
}

/** Return the line of a model that is counted once: level from there on. */
function level([seconds, loss], last) {
  return [[seconds, loss], [Math.max(last, seconds), loss]];
}

/** The view of training. */
export class TrainView {
  constructor(app) {
    this.app = app;
    this.logs = app.exhibit.training;
    this.figure = h("div", { class: "figure" });
    this.samples = h("div", { class: "columns sheets" });
    this.label = h("span", { text: t("samples") });
    this.scrub = h("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": t("samples"), oninput: () => app.state.set({ sample: Number(this.scrub.value) }) });
    this.status = h("p", { class: "quiet", role: "status", text: app.source.live ? t("trainLive") : "" });
    this.element = h("section", { class: "view train", id: "view-train", "aria-label": t("train") }, h("h2", { text: t("trainTitle") }), h("p", { class: "lead", text: t("trainText") }), this.figure, this.status, h("label", { class: "slider wide" }, this.label, this.scrub), this.samples);
  }

  shown() { this.look(); }

  hidden() {
    clearTimeout(this.timer);
    this.timer = 0;
  }

  async look() {
    clearTimeout(this.timer);
    if (!this.app.source.live || this.app.state.get("view") !== "train") return;
    try {
      this.logs = await this.app.source.training();
      this.status.textContent = t("trainLive");
      this.update();
    } catch (error) {
      this.status.textContent = this.app.said(error);
    }
    this.timer = setTimeout(() => this.look(), POLL);
  }

  update() {
    const begun = Object.entries(this.logs).filter(([, log]) => log.name).map(([id, log]) => ({ column: { id, name: log.name, series: log.series }, log }));
    const models = this.app.columns.map((column) => ({ column, log: this.logs[column.id] && { ...this.logs[column.id], counted: column.counted } }));
    const shown = [...models, ...begun].filter(({ log }) => log?.curve.length || log?.running || log?.problem);
    const curves = shown.filter(({ log }) => log.curve.length > (log.counted ? 0 : 1));
    if (!curves.length) put(this.figure, h("p", { class: "quiet", text: t("noRuns") }));
    else {
      const width = Math.max(300, Math.min(1180, this.element.clientWidth || 900));
      const all = curves.flatMap(({ log }) => log.curve);
      const last = Math.max(...all.map(([a]) => a));
      const lines = curves.map(({ column, log }) => ({ name: log.running ? `${column.name} ●` : column.name, id: column.id, series: column.series, points: log.counted ? level(log.curve.at(-1), last) : log.curve }));
      const x = linear([0, ...all.map(([a]) => a)], width < 560 ? 4 : 7, t("seconds"));
      const y = linear(all.map(([, b]) => b), 6, t("loss"));
      put(this.figure, lineChart({ title: t("trainTitle"), lines, x, y, width, height: Math.min(420, Math.max(300, width * 0.4)) }));
    }
    const share = this.app.state.get("sample") < 0 ? 100 : this.app.state.get("sample");
    this.scrub.value = share;
    put(this.samples, shown.map(({ column, log }) => this.sheet(column, log, share / 100)));
  }

  sheet(column, log, share) {
    const one = log.samples[Math.round(share * (log.samples.length - 1))];
    const heading = h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), column.name, log.running && h("em", { text: t("running") }));
    const body = log.problem ? h("p", { class: "problem", role: "alert", text: own(log.problem) })
      : one ? h("p", { class: "written", dir: "auto" }, h("span", { class: "prompt", text: one.prompt }), one.text) : h("p", { class: "quiet", text: t(log.running ? "noSample" : "counted") });
    const loss = one && Number.isFinite(one.loss) ? one.loss.toFixed(3) : null;
    const facts = loss && h("p", { class: "facts", text: log.counted ? t("countedLoss", loss) : t("atStep", one.step, loss) });
    return h("article", { class: `column sheet s${column.series}`, "data-column": column.id }, heading, facts, body);
  }
}
