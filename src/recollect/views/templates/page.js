"use strict";
const root = document.documentElement;
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");

// Colours var(--name) are the style's, texts {en, zh} are in the page's language.
function resolved(part) {
  if (typeof part === "string" && part.startsWith("var("))
    return getComputedStyle(root).getPropertyValue(part.slice(4, -1)).trim();
  if (Array.isArray(part)) return part.map(resolved);
  if (part === null || typeof part !== "object") return part;
  if ("en" in part && "zh" in part) return part[root.lang];
  return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, resolved(value)]));
}

function draw() {
  const config = { displayModeBar: false, responsive: true };
  for (const [id, figure] of Object.entries(figures))
    Plotly.react(id, resolved(figure.data), resolved(figure.layout), config);
}

function speak() {
  const asked = location.hash.slice(1) || navigator.language;
  root.lang = asked.startsWith("zh") ? "zh" : "en";
  draw();
}

for (const button of document.querySelectorAll("button[data-to]"))
  button.addEventListener("click", () => { location.hash = button.dataset.to; });
window.addEventListener("hashchange", speak);
dark.addEventListener("change", draw);
speak();
