"use strict";
const root = document.documentElement;
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

const variables = JSON.parse(document.getElementById("variables").textContent);

// The colours of a light page become those of the style as it is now.
function coloured(part) {
  if (Array.isArray(part)) return part.map(coloured);
  return part in variables ? getComputedStyle(root).getPropertyValue(variables[part]).trim() : part;
}

// Texts become those of the page's language, where there is a translation.
function resolved(part, words) {
  if (Array.isArray(part)) return part.map((value) => resolved(value, words));
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(Object.entries(part).map(([name, value]) => {
    if (name.endsWith("color") || name === "colorscale") return [name, coloured(value)];
    if (name === "text" && typeof value === "string") return [name, words[value] ?? value];
    return [name, resolved(value, words)];
  }));
}

function draw() {
  const config = { displayModeBar: false, responsive: true };
  for (const [id, { data, layout }] of Object.entries(figures)) {
    const words = layout.meta?.[root.lang] ?? {};
    Plotly.react(id, resolved(data, words), resolved(layout, words), config);
  }
}

function translate() {
  const asked = location.hash.slice(1) || navigator.language;
  root.lang = asked.startsWith("zh") ? "zh" : "en";
  draw();
}

for (const button of document.querySelectorAll("button[data-to]"))
  button.addEventListener("click", () => { location.hash = button.dataset.to; });
window.addEventListener("hashchange", translate);
dark.addEventListener("change", draw);
translate();
