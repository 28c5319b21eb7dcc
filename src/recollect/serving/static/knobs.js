// The knobs of a column: sliders and choices that change the model and read the sentence again.

import { h, put, slider } from "./dom.js";
import { t } from "./words.js";

function shown(knob) {
  if (knob.id === "scale") return (value) => t(value ? "on" : "off");
  if (knob.id === "window") return (value) => (value ? String(value) : t("all"));
  if (knob.id === "forget") return (value) => String(value).replace("-", "−") + (value === knob.values[knob.base] ? ` (${t("trained")})` : "");
  return (value) => `× ${value}`;
}

function choice(knob, chosen, set) {
  const options = knob.values.map((value, i) => h("option", { value: i, text: i ? nameOf(knob, value) : t("nobody") }));
  const select = h("select", { "aria-label": t("knock"), onchange: () => set(Number(select.value)) }, options);
  select.value = chosen;
  return h("label", { class: "slider" }, h("span", { text: t("knock") }), select);
}

function nameOf(knob, value) {
  const [layer, part] = value.split(":");
  const number = Number(layer.split(".")[1]) + 1;
  return /^\d+$/.test(part) ? t("headNo", Number(part) + 1, number) : t("gateNo", t(part), number);
}

/** Return the panel of a column's knobs. */
export function knobPanel(app, column) {
  const panel = h("details", { class: "knobs" });
  if (!column.knobs.length || !column.symbols.texts.length) return h("div", { class: "knobs none" });
  if (!app.source.turns(column)) return h("p", { class: "knobs quiet", text: t("liveOnly", app.exhibit.command) });
  const state = app.state.knobsOf(column.id);
  const status = h("p", { class: "quiet", role: "status" });
  panel.open = Object.keys(state).length > 0 || app.opened.has(column.id);
  panel.addEventListener("toggle", () => app.opened[panel.open ? "add" : "delete"](column.id));
  const turn = async (knob, place) => {
    const value = String(knob.values[place]);
    const others = app.source.live ? { ...app.state.knobsOf(column.id) } : {};
    delete others[knob.id];
    const knobs = place === knob.base ? others : { ...others, [knob.id]: value };
    status.textContent = t("computing");
    await app.turn(column, knobs);
    status.textContent = app.problemOf(column) || (app.source.live ? "" : t("oneKnob"));
    if (!app.source.live) refresh();
  };
  const inputs = () => column.knobs.map((knob) => {
    const given = app.state.knobsOf(column.id)[knob.id];
    const at = given === undefined ? knob.base : knob.values.findIndex((value) => String(value) === given);
    const chosen = at < 0 ? knob.base : at;
    if (knob.id === "knock") return choice(knob, chosen, (place) => turn(knob, place));
    return slider(t(knob.id), knob.values, chosen, (place) => turn(knob, place), shown(knob));
  });
  const body = h("div", {}, inputs());
  const refresh = () => {
    const focused = document.activeElement;
    const place = [...body.querySelectorAll("input, select")].indexOf(focused);
    put(body, inputs());
    if (place >= 0) body.querySelectorAll("input, select")[place].focus();
  };
  const reset = h("button", { type: "button", class: "text", text: t("reset"), onclick: async () => { await app.turn(column, {}); status.textContent = ""; refresh(); } });
  panel.append(h("summary", { text: t("knobs") }), body, status, reset);
  status.textContent = app.problemOf(column);
  return panel;
}
