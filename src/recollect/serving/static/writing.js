// Side by side: every model continues the same prompt, and may hand over to another in the middle.

import { h, put } from "./dom.js";
import { t } from "./words.js";

const PACE = 45; // milliseconds between two chunks that were written beforehand

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

/** The view of side-by-side generation. */
export class WriteView {
  constructor(app) {
    this.app = app;
    this.run = 0;
    const { writing } = app.exhibit;
    this.prompt = h("textarea", { rows: 2, id: "prompt", dir: "auto", maxlength: 2000, readonly: !app.source.live });
    this.prompt.value = writing.prompt;
    const temperatures = writing.temperatures.map(String);
    this.temperature = h("select", { "aria-label": t("temperature"), onchange: () => app.state.set({ wtemp: this.temperature.value }) },
      temperatures.map((value) => h("option", { value, text: `${t("temperature")} ${value}` })));
    const given = app.state.get("wtemp");
    this.temperature.value = temperatures.includes(given) ? given : "0.8";
    this.button = h("button", { type: "button", class: "primary", text: t("start"), onclick: () => this.start() });
    this.sheets = h("div", { class: "columns sheets" });
    this.status = h("p", { class: "quiet", role: "status", text: app.source.live ? "" : t("inFile") });
    const form = h("div", { class: "form" }, h("label", { for: "prompt", text: t("prompt") }), this.prompt, this.temperature, this.button);
    this.element = h("section", { class: "view write", id: "view-write", "aria-label": t("write") }, h("h2", { text: t("writeTitle") }), h("p", { class: "lead", text: t("writeText") }), form, this.status, this.sheets);
    this.fill();
  }

  fill() {
    const { app } = this;
    const swaps = new Map(app.state.get("swap").split(",").filter(Boolean).map((pair) => pair.split(">")));
    this.rows = app.columns.filter((one) => !one.problem).map((column) => {
      const others = app.columns.filter((one) => one !== column && !one.problem);
      const select = h("select", { "aria-label": `${column.name}: ${t("handOver")}`, onchange: () => this.saveSwaps() },
        h("option", { value: "", text: t("nobodyElse") }), others.map((one) => h("option", { value: one.id, text: one.name })));
      select.value = swaps.get(column.id) ?? "";
      const text = h("p", { class: "written", dir: "auto", "aria-live": "off" });
      const sheet = h("article", { class: `column sheet s${column.series}`, "data-column": column.id },
        h("h3", {}, h("i", { class: "dot", "aria-hidden": "true" }), column.name), text, h("label", { class: "hand" }, `${t("handOver")} `, select));
      return { column, select, text, sheet };
    });
    put(this.sheets, this.rows.map((one) => one.sheet));
  }

  saveSwaps() {
    this.app.state.set({ swap: this.rows.filter((one) => one.select.value).map((one) => `${one.column.id}>${one.select.value}`).join(",") });
  }

  async start() {
    if (this.stopping) { this.halt(); return; }
    const number = ++this.run;
    this.stopping = new AbortController();
    this.button.textContent = t("stop");
    for (const { text } of this.rows) put(text, h("span", { class: "prompt", text: this.prompt.value }));
    const work = this.rows.map((one) => (this.app.source.live ? this.live(one, number) : this.replay(one, number)).catch((error) => this.fail(one, error)));
    await Promise.all(work);
    if (number === this.run) this.halt();
  }

  halt() {
    this.run++;
    this.stopping?.abort();
    this.stopping = null;
    this.button.textContent = t("again");
  }

  fail(one, error) {
    if (error.name !== "AbortError") one.text.append(h("span", { class: "problem", role: "alert", text: this.app.said(error) }));
  }

  handOver(one) {
    const name = one.select.selectedOptions[0].text;
    const series = this.app.columns.find((other) => other.id === one.select.value).series;
    const part = h("span", { class: `handed s${series}`, title: t("handed", name) });
    one.text.append(part);
    part.setAttribute("data-name", name);
    return part;
  }

  async replay(one, number) {
    const { writing } = this.app.exhibit;
    const kept = writing.texts[one.column.id]?.[this.temperature.value];
    if (!kept) return;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const swap = one.select.value && writing.swaps[this.temperature.value]?.[`${one.column.id}>${one.select.value}`];
    const first = swap ? kept.slice(0, writing.at) : kept;
    const say = async (target, chunks) => {
      for (const chunk of chunks) {
        if (number !== this.run) return;
        target.append(chunk);
        if (!isCalm) await pause(PACE);
      }
    };
    await say(one.text, first);
    if (swap && number === this.run) await say(this.handOver(one), swap);
  }

  async live(one, number) {
    const { writing } = this.app.exhibit;
    const { signal } = this.stopping;
    const temperature = Number(this.temperature.value);
    const other = one.select.value;
    let count = 0;
    let written = this.prompt.value;
    for await (const chunk of this.app.source.write(one.column.id, written, temperature, this.run, signal)) {
      if (number !== this.run) return;
      one.text.append(chunk);
      written += chunk;
      if (other && ++count >= writing.at) break;
    }
    if (!other || number !== this.run) return;
    const part = this.handOver(one);
    for await (const chunk of this.app.source.write(other, written, temperature, this.run, signal)) {
      if (number !== this.run) return;
      part.append(chunk);
    }
  }

  update() { /* the texts change as they are written */ }
}
