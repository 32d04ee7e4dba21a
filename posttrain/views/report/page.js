"use strict";
/* The pipeline, by the drawer of lineage graphs; a click leads to the stage's row. */
for (const svg of document.querySelectorAll("svg.dag")) {
  const data = JSON.parse(svg.nextElementSibling.textContent);
  const layout = laidOut(data, { rankdir: "TB", ranksep: 34 });
  const { width, height } = layout.graph();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.maxWidth = `${width}px`;
  const scene = element("g", {}, svg);
  drawEdges(layout, data, scene);
  drawNodes(layout, data, scene, (i) => {
    document.getElementById(`stage-${data.nodes[i].heading}`)?.scrollIntoView({ block: "center" });
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

/* What is folded has no width: its charts are drawn once it is opened. */
for (const folded of document.querySelectorAll("details")) {
  folded.addEventListener("toggle", () => { if (folded.open) window.drawCharts?.(folded); });
}
document.documentElement.dataset.ready = "yes";
