"use strict";
const tip = document.getElementById("tip");

function show(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = Math.max(left, 4) + "px";
  tip.style.top = (fits ? below : event.clientY - tip.offsetHeight - 12) + "px";
}

function hide() {
  tip.hidden = true;
}

for (const part of document.querySelectorAll("[data-tip]")) {
  part.addEventListener("pointermove", (event) => show(event, part.dataset.tip));
  part.addEventListener("pointerleave", hide);
}

/* A line chart carries its points: rows of [x, heading, [[color, y, text] ...]]. */
for (const chart of document.querySelectorAll("svg[data-points]")) {
  const { bottom, rows } = JSON.parse(chart.dataset.points);
  const layer = document.createElementNS("http://www.w3.org/2000/svg", "g");
  chart.append(layer);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const row = rows.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    const dots = row[2].map(([color, y]) => `<circle class="dot ${color}" cx="${row[0]}" cy="${y}" r="4"/>`);
    layer.innerHTML = `<line class="cross" x1="${row[0]}" x2="${row[0]}" y1="12" y2="${bottom}"/>` + dots.join("");
    show(event, [row[1], ...row[2].map((point) => point[2])].join("\n"));
  });
  chart.addEventListener("pointerleave", () => {
    layer.innerHTML = "";
    hide();
  });
}

for (const filters of document.querySelectorAll(".filters")) {
  const exhibits = filters.parentElement.querySelectorAll(".exhibit");
  const buttons = filters.querySelectorAll("button");
  for (const button of buttons) {
    const kind = button.dataset.show;
    const chosen = [...exhibits].filter((item) => kind === "all" || item.dataset.kind === kind);
    button.textContent += ` (${chosen.length})`;
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", other === button);
      for (const item of exhibits) item.hidden = !chosen.includes(item);
    });
  }
  filters.hidden = false;
}
