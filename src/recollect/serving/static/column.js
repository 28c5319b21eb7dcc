// One model: what it expects, what it depends on, what it holds in memory, how its mechanism moves, and its knobs.

import { h, put, slider } from "./dom.js";
import { heat, tracks } from "./charts.js";
import { knobPanel } from "./knobs.js";
import { grouped, percent, unpack } from "./numbers.js";
import { lang, own, t, visible } from "./words.js";

const MOST_CELLS = 128;
const GATES = ["input_gate", "forget_gate", "output_gate", "reset_gate", "update_gate"];

/** One column of the page; `app` has the state, the source and what is lit. */
export class Column {
  constructor(app, column) {
    Object.assign(this, { app, column });
    this.reading = app.readingOf(column);
    this.element = h("article", { class: `column s${column.series}`, "aria-labelledby": `name-${column.id}`, "data-column": column.id });
    this.build();
  }

  build() {
    const { column } = this;
    const parts = [this.heading()];
    if (column.problem) {
      put(this.element, parts, h("p", { class: "problem", role: "alert", text: own(column.problem) }));
      return;
    }
    parts.push(this.ticker(), this.bars(), this.field(), this.strip(), this.mechanism(), knobPanel(this.app, column));
    put(this.element, parts);
    this.at = -2;
    this.update();
  }

  heading() {
    const { column } = this;
    const facts = `${column.year ? `${column.year} · ` : ""}${grouped(column.parameters, lang())} ${t(column.counted ? "ngrams" : "parameters")}`;
    return h("header", {}, h("h3", { id: `name-${column.id}` }, h("i", { class: "dot", "aria-hidden": "true" }), column.name),
      h("p", { class: "facts", text: facts }), h("p", { class: "idea", text: own(column.idea) }));
  }

  // ---- memory in bytes ----------------------------------------------------------------------------------

  ticker() {
    this.count = h("span", { class: "count" });
    const values = this.reading.values("memory.bytes") ?? [];
    const most = Math.max(1, ...values);
    const isGrown = values.length > 1 && values.at(-1) > values[0];
    const grown = !most ? "none" : !isGrown ? "stays" : values.at(-1) > values.at(-2) ? "grows" : "saturates";
    this.growth = values.length ? tracks([{ values }], t("memory"), { low: 0, high: most, height: 26 }) : null;
    return h("section", { class: "ticker" }, h("p", {}, this.count, ` ${t("bytes")}`), this.growth?.chart,
      h("p", { class: "quiet", text: t(grown) }));
  }

  // ---- the next symbol ----------------------------------------------------------------------------------

  bars() {
    const isLetters = this.column.symbols.texts.every((text) => [...text].length < 3);
    this.next = h("ol", { class: isLetters ? "bars letters" : "bars" });
    this.nextTitle = h("h4", { text: t("next") });
    return h("section", { class: "next" }, this.nextTitle, this.next);
  }

  drawBars(at) {
    if (at < 0) { put(this.next); return; }
    const found = this.reading.next(at, this.app.state.get("temp"));
    while (this.next.children.length < found.length)
      this.next.append(h("li", {}, h("span", { class: "symbol" }), h("span", { class: "bar" }, h("i")), h("span", { class: "share" })));
    while (this.next.children.length > found.length) this.next.lastChild.remove();
    found.forEach((one, i) => {
      const item = this.next.children[i];
      item.className = `${one.isActual ? "actual" : ""}${one.isFar ? " far" : ""}`;
      item.title = one.isActual ? t("actual") : "";
      item.children[0].textContent = visible(one.text);
      item.children[1].firstChild.style.setProperty("transform", `scaleX(${Math.max(one.share, 0.004)})`);
      item.children[2].textContent = percent(one.share);
      item.setAttribute("data-share", one.share);
    });
  }

  // ---- the symbols, shaded ------------------------------------------------------------------------------

  field() {
    this.fieldTitle = h("h4");
    this.cells = h("p", { class: "cells", dir: "auto" });
    this.note = h("p", { class: "quiet" });
    this.cells.addEventListener("pointerover", (event) => this.light(event.target.dataset.at));
    this.cells.addEventListener("pointerleave", () => this.app.light(-1, -1));
    this.cells.addEventListener("click", (event) => this.pin(event.target.dataset.at));
    this.fillCells(0);
    return h("section", { class: "field" }, this.fieldTitle, this.cells, scale("shade", t("legendLow"), t("legendHigh")), this.note);
  }

  fillCells(first) {
    const { texts, known } = this.column.symbols;
    const last = Math.min(texts.length, first + MOST_CELLS);
    this.first = first;
    put(this.cells, Array.from({ length: last - first }, (_, i) => h("span", {
      "data-at": first + i, text: visible(texts[first + i]), class: known[first + i] ? null : "unknown",
      title: known[first + i] ? null : t("unknown"),
    })));
  }

  light(at) {
    if (at === undefined) return;
    const { starts, ends } = this.column.symbols;
    this.app.light(starts[at], ends[at]);
  }

  pin(at) {
    if (at === undefined) return;
    this.app.pin(this.column.symbols.starts[at]);
  }

  /** Mark the symbols that overlap with characters [start, end). */
  lit(start, end) {
    const { starts, ends } = this.column.symbols;
    for (const cell of this.cells.children) {
      const at = Number(cell.dataset.at);
      cell.classList.toggle("lit", starts[at] < end && ends[at] > start);
    }
  }

  drawField(at, pin) {
    const { reading } = this;
    let values = null;
    if (pin >= 0) {
      values = reading.ahead(pin);
      this.fieldTitle.textContent = t("reachFrom", visible(this.column.symbols.texts[pin]));
    } else {
      values = at < 0 ? null : reading.back(at);
      this.fieldTitle.textContent = t("reachField");
    }
    const isKnown = values?.some((value) => Number.isFinite(value));
    this.note.textContent = isKnown && !reading.data.missing.reach || at < 0 ? "" : this.whyNoReach();
    this.shade(this.cells, values, at, pin);
  }

  /** Return why a prediction has no gradient, or that what is shown is none. */
  whyNoReach() {
    if (this.reading.data.missing.reach) return t("noReach");
    const { size } = this.reading.places;
    return size ? t("early", size) : t("tooLarge");
  }

  /** Shade symbols by the square root of a value's share of the largest: a hundredth of it is still seen. */
  shade(cells, values, at, pin) {
    let most = 0;
    if (values) for (const value of values) if (value > most) most = value;
    for (const cell of cells.children) {
      const i = Number(cell.dataset.at);
      const value = values?.[i] ?? 0;
      const share = most > 0 && value > 0 ? Math.sqrt(value / most) : 0;
      cell.style.setProperty("--share", share.toFixed(3));
      cell.classList.toggle("strong", share > 0.62);
      cell.classList.toggle("now", i === at);
      cell.classList.toggle("pinned", i === pin);
      cell.classList.toggle("ahead", i > at && pin < 0);
    }
  }

  // ---- the state ----------------------------------------------------------------------------------------

  strip() {
    const { data } = this.reading;
    const section = h("section", { class: "state" });
    const packed = data.strip && unpack(this.reading.arrays["page.strip"]);
    if (!packed || !packed.shape[0]) {
      this.cursor = null;
      return put(section, h("h4", { text: t("recent") }), this.chips = h("p", { class: "chips", dir: "auto" })), section;
    }
    this.chips = null;
    this.packed = packed;
    this.canvas = h("canvas", { class: "heat", role: "img", "aria-label": t(data.strip) });
    this.cursor = h("i", { class: "cursor" });
    const isSigned = data.strip === "hidden" || data.strip === "cell";
    const ends = isSigned ? ["−", "+"] : data.strip === "map" ? [t("legendLow"), t("legendHigh")] : [t("legendNear"), t("legendFar")];
    const legend = scale(isSigned ? "signed" : "unsigned", ...ends, t(`${isSigned ? "units" : data.strip}Axis`));
    return put(section, h("h4", { text: t(data.strip) }), h("div", { class: "strip" }, this.canvas, this.cursor), legend), section;
  }

  paint() {
    if (!this.packed || !this.canvas) return;
    const [steps, units] = this.packed.shape;
    heat(this.canvas, this.packed.values, steps, units, Array.from({ length: units }, (_, i) => i));
  }

  // ---- the mechanism ------------------------------------------------------------------------------------

  mechanism() {
    const { reading } = this;
    const section = h("section", { class: "mechanism" });
    this.moving = null;
    this.heads = null;
    if (reading.layersWith("weights").length) return this.attention(section);
    const gates = this.gates();
    if (gates.length) return this.lines(section, t("gates"), gates, 0, 1);
    const inner = reading.layersWith("inner_loss.mean").at(-1);
    if (inner) {
      const lines = [["before", "inner_loss"], ["afterwards", "inner_loss_after"]]
        .map(([word, name]) => ({ name: t(word), values: reading.values(`${inner.name}.${name}.mean`) }));
      return this.lines(section, t("inner"), lines, 0, Math.max(...lines.flatMap((line) => [...line.values])));
    }
    const context = reading.values("layers.0.context_length");
    if (context) return this.lines(section, t("contextTitle"), [{ name: t("context"), values: context }], 0, Math.max(1, ...context));
    return section;
  }

  gates() {
    const { reading } = this;
    const layer = reading.data.layers.filter((one) => GATES.some((gate) => reading.arrays[`${one.name}.${gate}.mean`])).at(-1);
    if (!layer) return [];
    return GATES.filter((gate) => reading.arrays[`${layer.name}.${gate}.mean`])
      .map((gate) => ({ name: t(gate), values: reading.values(`${layer.name}.${gate}.mean`), isShare: true }));
  }

  lines(section, title, lines, low, high) {
    const { chart, move } = tracks(lines, title, { low, high });
    const now = lines.map((line, i) => h("span", { class: `t${i}` }));
    this.moving = (at) => {
      move(at);
      lines.forEach((line, i) => {
        const value = at < 0 ? NaN : line.values[at];
        const shown = Number.isNaN(value) ? "" : line.isShare ? percent(value) : value.toPrecision(3).replace(/\.00$/, "");
        now[i].textContent = `${line.name} ${shown}`;
      });
    };
    return put(section, h("h4", { text: title }), chart, h("p", { class: "legend" }, now)), section;
  }

  attention(section) {
    const { reading } = this;
    const layers = reading.layersWith("weights");
    const choices = layers.flatMap((layer, l) => [
      h("option", { value: `${layer.name}:`, text: `${t("allHeads")} · ${l + 1}` }),
      ...Array.from({ length: reading.arrays[`${layer.name}.weights`].shape[0] }, (_, n) =>
        h("option", { value: `${layer.name}:${n}`, text: t("headNo", n + 1, l + 1) })),
    ]);
    const chosen = this.app.state.get("head") || `${layers.at(-1).name}:`;
    this.heads = h("select", { "aria-label": t("head"), onchange: () => this.app.state.set({ head: this.heads.value }) }, choices);
    this.heads.value = chosen;
    if (!this.heads.value) this.heads.value = `${layers.at(-1).name}:`;
    this.weights = h("p", { class: "cells", dir: "auto" });
    this.weights.addEventListener("pointerover", (event) => this.light(event.target.dataset.at));
    return put(section, h("h4", { class: "with-choice" }, h("span", { text: t("attention") }), this.heads), this.weights), section;
  }

  drawAttention(at) {
    if (!this.heads) return;
    if (this.weights.firstChild?.dataset.at !== String(this.first) || this.weights.children.length !== this.cells.children.length)
      put(this.weights, [...this.cells.children].map((cell) => h("span", { "data-at": cell.dataset.at, text: cell.textContent })));
    const head = this.app.state.get("head");
    if (head && [...this.heads.options].some((one) => one.value === head)) this.heads.value = head;
    this.shade(this.weights, at < 0 ? null : this.reading.attention(at, this.heads.value), at, -1);
  }

  // ---- every step ---------------------------------------------------------------------------------------

  /** Draw what belongs to the position of the page. */
  update() {
    if (this.column.problem) return;
    this.reading = this.app.readingOf(this.column);
    const at = this.app.placeIn(this.column);
    const pin = this.app.pinIn(this.column);
    if (this.column.symbols.texts.length > MOST_CELLS) {
      const most = this.column.symbols.texts.length - MOST_CELLS;
      const first = Math.max(0, Math.min(most, (pin >= 0 ? pin : at) - (pin >= 0 ? 8 : MOST_CELLS - 24)));
      if (first !== this.first) this.fillCells(first);
    }
    this.count.textContent = grouped(this.reading.bytes(at), lang());
    this.growth?.move(at);
    this.nextTitle.textContent = t("next");
    this.drawBars(at);
    this.drawField(at, pin);
    this.drawAttention(at);
    this.moving?.(at);
    if (this.cursor) {
      this.cursor.style.setProperty("left", `${(100 * (at + 0.5)) / Math.max(1, this.reading.steps)}%`);
      this.cursor.hidden = at < 0;
    }
    if (this.chips) this.drawChips(at);
  }

  drawChips(at) {
    const known = this.column.order ?? 0;
    const from = Math.max(0, at + 1 - known);
    put(this.chips, this.column.symbols.texts.slice(from, at + 1).map((text) => h("span", { text: visible(text) })));
  }
}

/** Return the line that says what colours mean: from one end to the other, and what is drawn downwards. */
function scale(kind, low, high, downwards = "") {
  return h("p", { class: "scale" }, h("span", { text: low }), h("i", { class: kind, "aria-hidden": "true" }), h("span", { text: high }), downwards && h("span", { class: "axis", text: downwards }));
}

/** Return the temperature's slider. */
export function temperatureSlider(app) {
  const stops = app.exhibit.temperatures;
  const set = (place) => app.state.set({ temp: stops[place] });
  return slider(t("temperature"), stops, Math.max(0, stops.indexOf(app.state.get("temp"))), set, (value) => value.toFixed(2));
}
