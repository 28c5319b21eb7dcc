// What the page shows, all of it in the address: a link shows another person the same.

const DEFAULTS = {
  lang: "", theme: "", view: "read", t: -1, pin: -1, shown: "", temp: 1, head: "", speed: 1, lesson: 0,
  bias: 1, sample: -1, swap: "", wtemp: "", own: 0,
};
const NUMBERS = new Set(["t", "pin", "temp", "speed", "lesson", "bias", "sample", "own"]);
const WHOLE = new Set(["t", "pin", "lesson", "sample", "own"]);
const VIEWS = ["read", "reach", "write", "train"];

/** Return whether a name can have a value: a place between two symbols is none. */
function isFitting(name, value) {
  return WHOLE.has(name) ? Number.isInteger(value) : !NUMBERS.has(name) || Number.isFinite(value);
}

/** The state; `on` is told which names changed. Knobs are k.COLUMN.KNOB=VALUE. */
export class State {
  constructor() {
    this.values = { ...DEFAULTS };
    this.knobs = {};
    this.text = "";
    this.listeners = [];
    this.read();
    addEventListener("hashchange", () => { // another link in this tab: its sentence, models and knobs are opened anew
      if (location.hash.slice(1) !== this.written) location.reload();
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

  read() {
    const given = new URLSearchParams(location.hash.slice(1));
    const isOfPage = (name) => !["lang", "theme", "lesson", "text"].includes(name);
    this.isBareLesson = given.has("lesson") && ![...given.keys()].some(isOfPage); // the lesson sets the rest
    for (const [name, value] of given) {
      if (name === "text") this.text = value;
      else if (name.startsWith("k.")) {
        const [, column, knob] = name.split(".");
        if (column && knob) this.knobs[column] = { ...this.knobs[column], [knob]: value };
      } else if (Object.hasOwn(DEFAULTS, name) && isFitting(name, Number(value))) {
        this.values[name] = NUMBERS.has(name) ? Number(value) : value;
      }
    }
    if (!VIEWS.includes(this.values.view)) this.values.view = "read";
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
