// The sentence: its symbols, which of them is read now, and the keys and buttons that move through it.

import { h, put } from "./dom.js";
import { aloud, t } from "./words.js";

const PACE = 420; // milliseconds for a symbol

/** The sentence and its transport. */
export class Sentence {
  constructor(app) {
    this.app = app;
    this.timer = 0;
    this.list = h("div", { class: "symbols", role: "listbox", tabindex: 0, dir: "auto", "aria-label": t("sentence"), onkeydown: (event) => this.key(event) });
    this.list.addEventListener("pointerover", (event) => this.hover(event.target.dataset.at));
    this.list.addEventListener("pointerleave", () => app.light(-1, -1));
    this.list.addEventListener("click", (event) => this.click(event.target.dataset.at));
    this.toggle = h("button", { type: "button", class: "round play", onclick: () => this.play() });
    this.scrub = h("input", { type: "range", min: 0, step: 1, class: "scrub", "aria-label": t("position"), oninput: () => this.drag(Number(this.scrub.value)) });
    this.place = h("span", { class: "place" });
    const step = (by, sign, name) => h("button", { type: "button", class: "round", "aria-label": t(name), title: t(name), text: sign, onclick: () => { this.stop(); this.go(this.at + by); } });
    this.transport = h("div", { class: "transport" }, step(-1, "‹", "back"), this.toggle, step(1, "›", "forward"), this.scrub, this.place);
    this.skipped = h("p", { class: "quiet" });
    this.element = h("section", { class: "sentence", "aria-label": t("sentence") }, this.list, this.skipped, this.transport);
    this.fill();
  }

  get symbols() { return this.app.main.symbols; }

  get last() { return this.symbols.texts.length - 1; }

  get at() { return this.app.at; }

  fill() {
    const { texts, starts, ends, known } = this.symbols;
    const whole = [...this.app.exhibit.text]; // places count characters, not units of UTF-16
    const before = starts.length ? whole.slice(0, starts[0]).join("") : "";
    const isLong = texts.length > 160;
    this.list.classList.toggle("long", isLong);
    put(this.list, before && h("span", { class: "before", "aria-hidden": "true", text: before }), texts.map((text, i) => {
      const own = whole.slice(starts[i], ends[i]).join("") || text;
      return h("span", {
        id: `symbol-${i}`, role: "option", "data-at": i, "aria-selected": "false", text: own === "\n" ? "↵\n" : own,
        class: `${own.trim() ? "" : "blank"}${known[i] ? "" : " unknown"}`, "aria-label": aloud(own),
      });
    }));
    if (!texts.length) put(this.list, h("span", { class: "quiet", role: "option", "aria-selected": "false", text: whole.join("") || t("emptyText") }));
    this.scrub.max = Math.max(0, this.last);
    this.skipped.textContent = this.app.main.reading?.skipped ? t("skipped", this.app.main.reading.skipped, texts.length) : "";
    this.shownAt = null;
    this.update();
  }

  go(to) { this.app.state.set({ t: Math.max(0, Math.min(this.last, to)) }); }

  /** Follow the scrubber: its place is read before anything is drawn. */
  drag(to) {
    this.stop();
    this.go(to);
  }

  hover(at) {
    if (at !== undefined) this.app.light(this.symbols.starts[at], this.symbols.ends[at]);
  }

  click(at) {
    if (at === undefined) return;
    this.stop();
    this.app.pin(this.symbols.starts[at]);
  }

  play() {
    if (this.timer) { this.stop(); return; }
    if (this.at >= this.last) this.go(0);
    const tick = () => {
      if (this.at >= this.last) { this.stop(); return; }
      this.go(this.at + 1);
      this.timer = setTimeout(tick, PACE / this.app.state.get("speed"));
    };
    this.timer = setTimeout(tick, PACE / 2);
    this.update();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.update();
  }

  key(event) {
    const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, ArrowUp: this.at - 10, ArrowDown: this.at + 10, Home: 0, End: this.last }[event.key];
    if (to !== undefined) {
      this.stop();
      this.go(to);
    } else if (event.key === "Enter") this.click(this.at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Mark the symbols that overlap with characters [start, end). */
  lit(start, end) {
    const { starts, ends } = this.symbols;
    for (const at of this.litAt ?? []) this.list.querySelector(`#symbol-${at}`)?.classList.remove("lit");
    this.litAt = [];
    if (start < 0) return;
    starts.forEach((from, i) => {
      if (from < end && ends[i] > start) this.litAt.push(i);
    });
    for (const at of this.litAt) this.list.querySelector(`#symbol-${at}`)?.classList.add("lit");
  }

  update() {
    const at = this.at;
    const isPlaying = this.timer !== 0;
    this.toggle.textContent = isPlaying ? "❚❚" : "▶";
    this.toggle.classList.toggle("playing", isPlaying);
    this.toggle.setAttribute("aria-label", t(isPlaying ? "pause" : "play"));
    this.toggle.title = t(isPlaying ? "pause" : "play");
    this.scrub.value = at;
    const words = this.last < 0 ? "" : t("symbolOf", at + 1, this.last + 1);
    this.scrub.setAttribute("aria-valuetext", this.last < 0 ? t("emptyText") : `${words}: ${aloud(this.symbols.texts[at])}`);
    this.place.textContent = this.last < 0 ? "" : `${at + 1} / ${this.last + 1}`;
    const symbols = [...this.list.children].filter((one) => one.dataset.at !== undefined);
    if (!symbols.length) return;
    const pin = this.app.mainPin;
    const [low, high] = this.shownAt === null ? [0, this.last] : [Math.min(this.shownAt, at), Math.max(this.shownAt, at)];
    for (let i = low; i <= high; i++) {
      symbols[i].classList.toggle("ahead", i > at);
      symbols[i].classList.toggle("now", i === at);
      symbols[i].setAttribute("aria-selected", String(i === at));
    }
    this.list.querySelector(".pinned")?.classList.remove("pinned");
    if (pin >= 0) symbols[pin]?.classList.add("pinned");
    this.list.setAttribute("aria-activedescendant", `symbol-${at}`);
    this.shownAt = at;
    if (this.list.classList.contains("long")) {
      const one = symbols[at];
      const [top, size] = [one.offsetTop - this.list.offsetTop, this.list.clientHeight];
      if (top < this.list.scrollTop || top > this.list.scrollTop + size - 40) this.list.scrollTop = top - size / 2;
    }
  }
}

/** Return what a screen reader says of a step. */
export function announced(app) {
  const symbols = app.main.symbols;
  if (app.at < 0) return t("emptyText");
  const said = app.columns.slice(0, 3).filter((one) => !one.problem).map((column) => {
    const at = app.placeIn(column);
    const best = at < 0 ? null : app.readingOf(column).next(at, app.state.get("temp"), 1)[0];
    return best ? t("expects", column.name, aloud(best.text), `${Math.round(100 * best.share)} %`) : "";
  });
  return t("speaks", t("symbolOf", app.at + 1, symbols.texts.length), aloud(symbols.texts[app.at]), said.filter(Boolean).join("; "));
}

