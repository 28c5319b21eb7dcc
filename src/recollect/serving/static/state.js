// What the page shows, all of it in the address: a link shows another person the same.

const DEFAULTS = {
  lang: "", theme: "", view: "read", t: -1, pin: -1, shown: "", temp: 1, head: "", speed: 1, lesson: 0,
  bias: 1, sample: -1, swap: "", wtemp: "", own: 0,
};
const NUMBERS = new Set(["t", "pin", "temp", "speed", "lesson", "bias", "sample", "own"]);
const VIEWS = ["read", "reach", "write", "train"];

/** The state; `on` is told which names changed. Knobs are k.COLUMN.KNOB=VALUE. */
export class State {
  constructor() {
    this.values = { ...DEFAULTS };
    this.knobs = {};
    this.text = "";
    this.listeners = [];
    this.read();
    addEventListener("hashchange", () => {
      if (location.hash.slice(1) !== this.written) this.read(true);
    });
  }

  get(name) { return this.values[name]; }

  on(listener) { this.listeners.push(listener); }

  set(changes) {
    const changed = Object.keys(changes).filter((name) => this.values[name] !== changes[name]);
    Object.assign(this.values, changes);
    if (changed.length) this.tell(new Set(changed));
  }

  knobsOf(column) { return this.knobs[column] ?? {}; }

  turn(column, knobs) {
    this.knobs[column] = knobs;
    this.tell(new Set(["knobs"]));
  }

  setText(text) {
    this.text = text;
    this.write();
  }

  tell(changed) {
    this.write();
    for (const listener of this.listeners) listener(changed);
  }

  read(isTelling = false) {
    const given = new URLSearchParams(location.hash.slice(1));
    const before = { ...this.values };
    this.values = { ...DEFAULTS };
    this.knobs = {};
    for (const [name, value] of given) {
      if (name === "text") this.text = value;
      else if (name.startsWith("k.")) {
        const [, column, knob] = name.split(".");
        this.knobs[column] = { ...this.knobs[column], [knob]: value };
      } else if (name in DEFAULTS && (!NUMBERS.has(name) || Number.isFinite(Number(value)))) {
        this.values[name] = NUMBERS.has(name) ? Number(value) : value;
      }
    }
    if (!VIEWS.includes(this.values.view)) this.values.view = "read";
    if (isTelling) {
      const changed = Object.keys(DEFAULTS).filter((name) => before[name] !== this.values[name]);
      this.tell(new Set([...changed, "knobs"]));
    }
  }

  write() {
    const kept = Object.entries(this.values).filter(([name, value]) => value !== DEFAULTS[name]);
    const words = new URLSearchParams(kept);
    for (const [column, knobs] of Object.entries(this.knobs))
      for (const [knob, value] of Object.entries(knobs)) words.set(`k.${column}.${knob}`, value);
    if (this.text) words.set("text", this.text);
    this.written = words.toString();
    if (this.written !== location.hash.slice(1)) history.replaceState(null, "", `#${this.written}`);
  }
}
