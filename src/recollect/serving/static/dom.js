// Elements, without a framework. Text is always set as text, so that nothing in a prompt or a sample is markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; `props` are attributes, `on…` listeners, `class`, and `text`. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Return an SVG element. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replace what is in an element. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat().filter(Boolean));
  return element;
}

/** Return a value of the style sheet, such as a colour. */
export function css(name, element = document.documentElement) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

/** Return a label and a range input that calls `set` with its place among the stops. */
export function slider(label, stops, chosen, set, shown = String) {
  const out = h("output", { class: "value", text: shown(stops[chosen]) });
  const input = h("input", {
    type: "range", min: 0, max: stops.length - 1, step: 1, value: chosen, "aria-label": label,
    "aria-valuetext": shown(stops[chosen]),
    oninput: () => {
      out.textContent = shown(stops[input.value]);
      input.setAttribute("aria-valuetext", out.textContent);
      set(Number(input.value));
    },
  });
  return h("label", { class: "slider" }, h("span", { text: label }), out, input);
}
