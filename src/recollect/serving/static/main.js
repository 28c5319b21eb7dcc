// The page: opens the numbers, builds the views, and keeps them in step with the state.

import { Column, temperatureSlider } from "./column.js";
import { h, put } from "./dom.js";
import { Lesson } from "./lesson.js";
import { ReachView } from "./reach.js";
import { Reading } from "./reading.js";
import { Sentence, announced } from "./sentence.js";
import { Source } from "./source.js";
import { State } from "./state.js";
import { TrainView } from "./training.js";
import { own, speak, t } from "./words.js";
import { WriteView } from "./writing.js";

const VIEWS = ["read", "reach", "write", "train"];
const NARROWEST = 14.5; // rem of a column
const SOON = 1200; // milliseconds after which a page that waits says what for

class App {
  constructor() {
    this.source = new Source();
    this.state = new State();
    this.opened = new Set();
    this.problems = {};
    this.readings = new Map();
    this.turned = new Map();
  }

  async open() {
    speak(this.language);
    const waiting = setTimeout(() => put(document.querySelector(".loading"), t("opening")), SOON);
    try { await this.ask(); } finally { clearTimeout(waiting); }
    this.take();
    this.build();
    performance.mark("first-picture");
    this.state.on((changed) => this.changed(changed));
    addEventListener("keydown", (event) => this.key(event));
    let pending = 0;
    addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(() => this.fit()); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    await this.restore();
    if (this.state.isBareLesson) await this.lesson.go(this.state.get("lesson"));
  }

  /** Get the numbers: of the first text, or of the one in the address. */
  async ask() {
    this.exhibit = await this.source.exhibit();
    if (!this.source.live || !this.state.text || this.state.text === this.exhibit.text) return;
    try { this.exhibit = await this.source.read(this.state.text); } catch (error) { this.problem = error; }
  }

  /** Take what the exhibit says of the sentence. */
  take() {
    this.readings.clear();
    this.turned.clear();
    this.main = this.exhibit.columns[this.exhibit.main] ?? { symbols: { texts: [], starts: [], ends: [], known: [] } };
    const last = this.main.symbols.texts.length - 1;
    if (this.state.get("t") > last || this.state.get("t") < 0) this.state.values.t = Math.min(last, Math.max(0, Math.round(last * 0.6)));
    if (this.state.get("pin") > last) this.state.values.pin = -1;
    if (!this.exhibit.temperatures.includes(this.state.get("temp"))) this.state.values.temp = 1;
  }

  // ---- where the page is --------------------------------------------------------------------------------

  get at() { return Math.min(this.state.get("t"), this.main.symbols.texts.length - 1); }

  get mainPin() { return this.state.get("pin"); }

  get columns() {
    const asked = this.state.get("shown").split(",").filter(Boolean);
    const shown = this.exhibit.columns.filter((column) => asked.includes(column.id));
    return shown.length ? shown : this.exhibit.columns;
  }

  readingOf(column) {
    const data = this.turned.get(column.id) ?? column.reading;
    if (!data) return null;
    let found = this.readings.get(data);
    if (!found) {
      found = new Reading(data, column, this.exhibit.temperatures);
      this.readings.set(data, found);
    }
    return found;
  }

  /** Return a column's last symbol that ends where the page has read to; −1 where it has read none. */
  placeIn(column) {
    if (column === this.main || this.at < 0) return this.at;
    const end = this.main.symbols.ends[this.at];
    const { ends } = column.symbols;
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] <= end) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  pinIn(column) {
    if (this.mainPin < 0) return -1;
    const start = this.main.symbols.starts[this.mainPin];
    return column.symbols.starts.findIndex((from, i) => from <= start && column.symbols.ends[i] > start);
  }

  light(start, end) {
    this.sentence.lit(start, end);
    for (const column of this.views.read.columns) if (!column.column.problem) column.lit(start, end);
  }

  /** Keep the symbol at a character in view, or let it go. */
  pin(start) {
    const place = this.main.symbols.starts.findIndex((from, i) => from <= start && this.main.symbols.ends[i] > start);
    this.state.set({ pin: place === this.mainPin ? -1 : place });
  }

  async turn(column, knobs) {
    const asked = JSON.stringify(knobs);
    this.state.turn(column.id, knobs);
    delete this.problems[column.id];
    let data = null;
    if (Object.keys(knobs).length) {
      try { data = await this.source.variant(column, knobs, this.exhibit.text); } catch (error) { this.problems[column.id] = error; }
      if (asked !== JSON.stringify(this.state.knobsOf(column.id))) return;
      if (!data && !this.source.live) this.state.turn(column.id, {}); // the file has no such reading, and nothing was turned
    }
    this.turned.delete(column.id);
    if (data) this.turned.set(column.id, data);
    const shown = this.views.read.columns.find((one) => one.column === column);
    if (shown) this.rebuild(shown);
    this.view.update();
  }

  /** Draw a column again, with the focus where it was. */
  rebuild(shown) {
    const inputs = () => [...shown.element.querySelectorAll("input, select, button, summary")];
    const place = inputs().indexOf(document.activeElement);
    shown.reading = this.readingOf(shown.column);
    shown.build();
    shown.paint();
    if (place >= 0) inputs()[place]?.focus();
  }

  async restore() {
    for (const column of this.exhibit.columns) {
      const knobs = this.state.knobsOf(column.id);
      if (Object.keys(knobs).length && !column.problem) await this.turn(column, knobs);
    }
  }

  said(error) {
    return error.message === "gone" ? t("lost", this.exhibit?.command || "recollect inspect --live RUN") : own(error.both ?? error.message);
  }

  problemOf(column) {
    const error = this.problems[column.id];
    return error ? t("failed", this.said(error)) : "";
  }

  // ---- building -----------------------------------------------------------------------------------------

  get language() { return this.state.get("lang") || (navigator.language.startsWith("zh") ? "zh" : "en"); }

  build() {
    const lang = this.language;
    speak(lang);
    this.tint();
    document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";
    document.title = `${t("title")} · recollect`;
    this.sentence?.stop();
    this.views?.train.hidden();
    this.views?.write.halt();
    this.sentence = new Sentence(this);
    this.views = { read: this.readView(), reach: new ReachView(this), write: new WriteView(this), train: new TrainView(this) };
    this.lesson = new Lesson(this);
    this.announcer = h("p", { class: "visually-hidden", "aria-live": "polite" });
    this.body = h("div", { class: "views" });
    put(document.getElementById("page"), this.header(lang), h("main", {}, this.intro(), this.controls(), this.body, this.announcer), this.footer(), this.lesson.element);
    this.show();
    this.lesson.update();
  }

  header(lang) {
    const { state } = this;
    const tabs = VIEWS.map((name) => h("button", { type: "button", "data-view": name, text: t(name), onclick: () => state.set({ view: name }) }));
    this.tabs = h("nav", { class: "tabs", "aria-label": t("views") }, tabs);
    const other = lang === "zh" ? "en" : "zh";
    const share = h("button", { type: "button", class: "text share", text: t("share"), onclick: () => this.copy(share) });
    return h("header", { class: "bar" }, h("span", { class: "mark", text: "recollect" }), this.tabs, h("div", { class: "tools" },
      h("button", { type: "button", class: "text lesson-button", text: t("lesson"), onclick: () => this.lesson.go(state.get("lesson") ? 0 : 1) }), share,
      h("button", { type: "button", class: "text", lang: other === "zh" ? "zh-CN" : "en", text: other === "zh" ? "中文" : "English", "data-lang": other, onclick: () => state.set({ lang: other }) }),
      h("button", { type: "button", class: "round theme", "aria-label": t("theme"), title: t("theme"), text: "◐", onclick: () => state.set({ theme: this.isDark() ? "light" : "dark" }) })));
  }

  async copy(button) {
    try { await navigator.clipboard.writeText(location.href); button.textContent = t("copied"); } catch { prompt(t("share"), location.href); }
    setTimeout(() => { button.textContent = t("share"); }, 1500);
  }

  intro() {
    const problems = [this.problem && this.said(this.problem), ...this.exhibit.problems.map(own)].filter(Boolean);
    const said = problems.map((text) => h("p", { class: "problem", role: "alert", text }));
    return h("div", { class: "intro" }, h("h1", { text: t("title") }), h("p", { text: t("subtitle") }), said);
  }

  controls() {
    const { state, exhibit } = this;
    this.chips = h("div", { class: "models", role: "group", "aria-label": t("models") }, exhibit.columns.map((column) =>
      h("button", { type: "button", class: `chip s${column.series}`, "data-column": column.id, onclick: () => this.choose(column.id) }, h("i", { class: "dot", "aria-hidden": "true" }), column.name)));
    const speed = h("select", { "aria-label": t("speed"), onchange: () => state.set({ speed: Number(speed.value) }) }, [0.5, 1, 2, 4, 8].map((value) => h("option", { value, text: `${value} ×` })));
    speed.value = state.get("speed");
    this.sentence.transport.append(speed);
    const own = this.source.live ? this.ownText() : null;
    return h("div", { class: "controls" }, this.sentence.element, own, h("div", { class: "row" }, this.chips, this.heat = temperatureSlider(this)));
  }

  ownText() {
    const input = h("input", { type: "text", id: "own-text", dir: "auto", maxlength: 8000, autocomplete: "off" });
    input.value = this.exhibit.text;
    const status = h("span", { class: "quiet", role: "status" });
    const form = h("form", { class: "own" }, h("label", { for: "own-text", text: t("text") }), input, h("button", { text: t("go") }), status);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      status.textContent = t("computing");
      try {
        this.exhibit = await this.source.read(input.value);
        this.state.values.t = -1;
        this.state.values.pin = -1;
        this.take();
        this.state.setText(input.value);
        this.build();
        await this.restore();
      } catch (error) { status.textContent = this.said(error); }
    });
    return form;
  }

  readView() {
    const columns = this.columns.map((column) => new Column(this, column));
    const element = h("section", { class: "view columns", id: "view-read", "aria-label": t("read") }, columns.map((one) => one.element));
    return { element, columns, update: () => columns.forEach((one) => { if (one.column.reading) one.update(); }), shown: () => columns.forEach((one) => one.paint()) };
  }

  /** Spread the columns over rows as even as their number allows, and draw the view at the width that it has. */
  fit() {
    const { element, columns } = this.views.read;
    const gap = parseFloat(getComputedStyle(element).columnGap);
    const narrowest = NARROWEST * parseFloat(getComputedStyle(document.documentElement).fontSize);
    const most = Math.max(1, Math.floor((element.clientWidth + gap) / (narrowest + gap)));
    const rows = Math.ceil(columns.length / most);
    if (element.clientWidth) element.style.setProperty("--across", Math.ceil(columns.length / rows));
    this.view.update();
  }

  footer() {
    return h("footer", { class: "foot" }, h("p", { class: "keys" }, h("b", { text: t("help") }), ` ${t("keys")}`), h("p", { text: t("made", this.exhibit.made, this.exhibit.machine) }));
  }

  choose(id) {
    const shown = new Set(this.columns.map((column) => column.id));
    const all = this.exhibit.columns.map((column) => column.id);
    if (shown.size === all.length && all.length > 1) { shown.clear(); shown.add(id); }
    else if (shown.has(id)) shown.delete(id);
    else shown.add(id);
    const kept = all.filter((one) => shown.has(one));
    this.state.set({ shown: kept.length === all.length ? "" : kept.join(",") });
  }

  isDark() {
    const asked = this.state.get("theme");
    return asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  tint() {
    document.documentElement.dataset.theme = this.isDark() ? "dark" : "light";
  }

  repaint() {
    this.tint();
    this.views.read.columns.forEach((one) => one.paint());
  }

  show() {
    const name = this.state.get("view");
    for (const tab of this.tabs.children) tab.setAttribute("aria-current", tab.dataset.view === name ? "page" : "false");
    for (const chip of this.chips.children) chip.setAttribute("aria-pressed", String(this.columns.some((column) => column.id === chip.dataset.column)));
    this.view = this.views[name];
    document.body.dataset.view = name;
    put(this.body, this.view.element);
    this.fit();
    this.view.shown?.();
    if (name !== "train") this.views.train.hidden();
  }

  // ---- changes ------------------------------------------------------------------------------------------

  changed(changed) {
    if (changed.has("lang")) { this.build(); return; }
    if (changed.has("theme")) this.repaint();
    if (changed.has("shown")) {
      this.views.read = this.readView();
      this.views.write.fill();
    }
    if (changed.has("view") || changed.has("shown")) this.show();
    if (changed.has("lesson")) {
      this.lesson.update();
      this.fit();
    }
    if (["t", "pin", "temp", "head", "bias", "sample", "shown"].some((name) => changed.has(name))) {
      this.sentence.update();
      this.view.update();
      clearTimeout(this.saying);
      this.saying = setTimeout(() => { this.announcer.textContent = announced(this); }, 350);
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, button, summary, a, .scroll")) return;
    const { state, sentence } = this;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === " ") sentence.play();
    else if (event.key in moves) { sentence.stop(); sentence.go(this.at + moves[event.key]); }
    else if (event.key === "Home") sentence.go(0);
    else if (event.key === "End") sentence.go(sentence.last);
    else if (event.key === "Escape") state.set({ pin: -1, lesson: 0 });
    else if (VIEWS[Number(event.key) - 1]) state.set({ view: VIEWS[Number(event.key) - 1] });
    else if (event.key === "l" || event.key === "L") this.lesson.go(state.get("lesson") ? 0 : 1);
    else return;
    event.preventDefault();
  }
}

const app = new App();
app.open().then(() => { document.documentElement.dataset.ready = "true"; }).catch((error) => {
  put(document.getElementById("page"), h("p", { class: "problem fatal", role: "alert", text: app.said(error) }));
  document.documentElement.dataset.ready = "failed";
});
