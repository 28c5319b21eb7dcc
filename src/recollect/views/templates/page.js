"use strict";
const root = document.documentElement;

function translate() {
  const asked = location.hash.slice(1) || navigator.language;
  root.lang = asked.startsWith("zh") ? "zh" : "en";
}

for (const button of document.querySelectorAll("button[data-to]"))
  button.addEventListener("click", () => { location.hash = button.dataset.to; });
window.addEventListener("hashchange", translate);
translate();
