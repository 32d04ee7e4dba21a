"use strict";
// The page around the drawing of DATA = {root, nodes, edges: [from, to, role]}: pan, search, facts.
const WIDEST = 260;
const byId = (id) => document.getElementById(id);
const scene = byId("scene"), svg = byId("graph"), panel = byId("panel");
const incoming = DATA.nodes.map(() => []), outgoing = DATA.nodes.map(() => []);
DATA.edges.forEach(([from, to], edge) => { outgoing[from].push(edge); incoming[to].push(edge); });

function html(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made[key] = value;
  made.append(...children);
  return made;
}

function fitting(graph) {
  const { width, height } = graph.graph(), box = svg.getBoundingClientRect();
  return Math.min(1.2, box.width / width, box.height / height);
}

// Of left-to-right and top-to-bottom, the one that can be shown larger.
function best() {
  const across = laidOut(DATA, { rankdir: "LR", widest: WIDEST });
  if (DATA.nodes.length > 200 || fitting(across) > 0.9) return across;
  const downward = laidOut(DATA, { rankdir: "TB", widest: WIDEST });
  return fitting(downward) > fitting(across) * 1.1 ? downward : across;
}

function reach(start, edgesOf, end) {
  const nodes = new Set([start]), edges = new Set(), queue = [start];
  while (queue.length) {
    for (const edge of edgesOf[queue.pop()]) {
      edges.add(edge);
      const other = DATA.edges[edge][end];
      if (!nodes.has(other)) { nodes.add(other); queue.push(other); }
    }
  }
  return { nodes, edges };
}

function light(nodes, edges) {
  scene.classList.toggle("lit", nodes !== null);
  groups.forEach((group, i) => group.classList.toggle("on", nodes !== null && nodes.has(i)));
  dots.forEach((dot, i) => dot.classList.toggle("on", nodes !== null && nodes.has(i)));
  arrows.forEach((pair, i) => pair.forEach((part) => part.classList.toggle("on", edges.has(i))));
}

function choose(i) {
  groups.forEach((group, other) => group.classList.toggle("chosen", other === i));
  if (i === null) { panel.hidden = true; light(null, new Set()); return; }
  const up = reach(i, incoming, 0), down = reach(i, outgoing, 1);
  light(new Set([...up.nodes, ...down.nodes]), new Set([...up.edges, ...down.edges]));
  history.replaceState(null, "", "#" + encodeURIComponent(DATA.nodes[i].title));
  describe(i, up.nodes.size - 1, down.nodes.size - 1);
  reveal(i);
}

// The panel may have just covered the node, or a link may name one that is far away.
function reveal(i) {
  const { x, y, width, height } = layout.node(String(i)), box = svg.getBoundingClientRect();
  const left = view.x + (x - width / 2) * view.scale, right = left + width * view.scale;
  const top = view.y + (y - height / 2) * view.scale, bottom = top + height * view.scale;
  if (left < 0 || right > box.width || top < 0 || bottom > box.height) show(i);
}

function shown(name, value) {
  if (name === "started" || name === "created") return new Date(value * 1000).toISOString().slice(0, 19) + "Z";
  return typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 6 }) : String(value);
}

function facts(title, pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== "");
  if (!rows.length) return [];
  return [html("h3", { textContent: title }), html("table", {}, ...rows.map(([name, value]) =>
    html("tr", {}, html("th", { textContent: name }), html("td", { textContent: shown(name, value) }))))];
}

function neighbors(title, edges, end) {
  if (!edges.length) return [];
  return [html("h3", { textContent: title }), html("table", {}, ...edges.map((edge) => {
    const other = DATA.edges[edge][end];
    const link = html("a", { textContent: DATA.nodes[other].caption, href: "#" });
    link.addEventListener("click", (event) => { event.preventDefault(); choose(other); show(other); });
    return html("tr", {}, html("th", { textContent: DATA.edges[edge][2] }), html("td", {}, link));
  }))];
}

function preview(node) {
  const seen = node.preview;
  if (!seen) return [];
  if (seen.files) return facts("files (bytes)", seen.files);
  const title = html("h3", { textContent: node.kind === "stage" ? "end of the log" : seen.table ? "first rows" : "content" });
  if (seen.text !== undefined) return [title, html("pre", { textContent: seen.text })];
  const cells = (row, tag) => html("tr", {}, ...row.map((cell) => html(tag, { textContent: cell })));
  return [title, html("div", { className: "scroll" }, html("table", {},
    cells(seen.table.columns, "th"), ...seen.table.rows.map((row) => cells(row, "td"))))];
}

function describe(i, above, below) {
  const node = DATA.nodes[i], given = Object.entries(node.facts);
  const close = html("button", { className: "close", textContent: "×", title: "Close (Esc)" });
  close.addEventListener("click", () => choose(null));
  const bad = node.recalled ? [html("p", { className: "bad", textContent: `Recalled: ${node.recalled}` })] : [];
  panel.replaceChildren(
    close, html("h2", { textContent: node.heading }),
    html("div", { textContent: node.name === node.heading ? "" : node.name }), ...bad,
    html("p", { textContent: `${above} nodes lead here, ${below} follow` }),
    ...facts("facts", [["type", node.type], ...given.filter(([name]) => !name.startsWith("param "))]),
    ...facts("parameters", given.filter(([name]) => name.startsWith("param ")).map(([name, value]) => [name.slice(6), value])),
    ...facts("metrics", Object.entries(node.metrics)),
    ...neighbors("from", incoming[i], 0), ...neighbors("to", outgoing[i], 1), ...preview(node));
  panel.hidden = false;
}

let view = { x: 0, y: 0, scale: 1 };
function place() {
  scene.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.scale})`);
  scene.classList.toggle("far", view.scale < 0.55);
  const box = svg.getBoundingClientRect();
  for (const [name, value] of [["x", -view.x], ["y", -view.y], ["width", box.width], ["height", box.height]])
    pane.setAttribute(name, value / view.scale);
}

// A small picture of everything, with a window that shows what is on screen.
function drawMap() {
  const { width, height } = layout.graph(), scale = Math.min(220 / width, 150 / height);
  map.setAttribute("viewBox", `0 0 ${width} ${height}`);
  map.setAttribute("width", Math.max(24, width * scale));
  map.setAttribute("height", Math.max(24, height * scale));
  const marks = DATA.nodes.map((_, i) => {
    const { x, y, width: wide, height: high } = layout.node(String(i)), least = 3 / scale;
    const w = Math.max(wide, least), h = Math.max(high, least);
    return element("rect", { class: "dot", x: x - w / 2, y: y - h / 2, width: w, height: h }, map);
  });
  element("rect", { class: "window", id: "pane" }, map);
  return marks;
}

function jump(event) {
  const box = map.getBoundingClientRect(), { width, height } = layout.graph();
  center((event.clientX - box.left) / box.width * width, (event.clientY - box.top) / box.height * height);
}

function fit(onlyGrow) {
  const { width, height } = layout.graph(), box = svg.getBoundingClientRect();
  const scale = fitting(layout);
  view = { scale, x: (box.width - width * scale) / 2, y: (box.height - height * scale) / 2 };
  // Too much to read at once: begin at the root, with room on the side where the rest is.
  if (onlyGrow && scale < 0.3) { view.scale = 0.7; show(DATA.root, DATA.direction === "up" ? 0.88 : 0.12); }
  place();
}

function show(i, across = 0.5) {
  const { x, y } = layout.node(String(i));
  center(x, y, across);
}

function center(x, y, across = 0.5) {
  const box = svg.getBoundingClientRect();
  view.x = box.width * across - x * view.scale;
  view.y = box.height / 2 - y * view.scale;
  place();
}

function zoom(factor, x, y) {
  const scale = Math.min(4, Math.max(0.02, view.scale * factor)), by = scale / view.scale;
  view = { scale, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
  place();
}

byId("map").addEventListener("pointerdown", (event) => { jump(event); event.target.setPointerCapture(event.pointerId); });
byId("map").addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
let drag = null;
svg.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX - view.x, y: event.clientY - view.y, from: [event.clientX, event.clientY] };
});
window.addEventListener("pointermove", (event) => {
  if (!drag) return;
  svg.classList.add("dragging");
  view = { ...view, x: event.clientX - drag.x, y: event.clientY - drag.y };
  place();
});
window.addEventListener("pointerup", (event) => {
  const still = drag && Math.hypot(event.clientX - drag.from[0], event.clientY - drag.from[1]) < 4;
  if (still && !event.target.closest(".node") && svg.contains(event.target)) choose(null);
  drag = null;
  svg.classList.remove("dragging");
});

function find(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) { light(null, new Set()); byId("count").textContent = `${DATA.nodes.length} nodes`; return []; }
  const hits = haystacks.flatMap((hay, i) => (words.every((word) => hay.includes(word)) ? [i] : []));
  light(new Set(hits), new Set());
  byId("count").textContent = `${hits.length} of ${DATA.nodes.length}`;
  return hits;
}

let turn = 0;
byId("search").addEventListener("input", (event) => { turn = 0; find(event.target.value); });
byId("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const hits = find(event.target.value);
  if (!hits.length) return;
  const hit = hits[turn++ % hits.length];
  view.scale = Math.max(view.scale, 0.7);
  show(hit);
  choose(hit);
});
byId("fit").addEventListener("click", () => fit(false));
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { byId("search").value = ""; find(""); choose(null); return; }
  if (event.target.tagName === "INPUT") return;
  if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
  if (event.key === "f") fit(false);
});

const haystacks = DATA.nodes.map((node) => [node.caption, node.name, node.type, node.id, node.recalled ?? "",
  ...Object.values(node.facts), ...Object.keys(node.metrics)].join(" ").toLowerCase());
const layout = best();
const map = byId("map"), dots = drawMap(), pane = byId("pane");
const arrows = drawEdges(layout, DATA, scene), groups = drawNodes(layout, DATA, scene, choose);
byId("legend").append(...[["stage", "stage"], ["data", "data"], ["model", "model"], ["report", "report"],
  ["verifier", "verifier"], ["tokenizer, template", "part"], ["release", "release"]].map(([name, color]) => {
  const swatch = html("i", {});
  swatch.style.background = `var(--${color})`;
  return html("li", {}, swatch, name);
}));
fit(true);
find("");
// A link may name a node: page.html#sft@latest-run, or #3fa9c1d2.
function follow() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const named = wanted ? DATA.nodes.findIndex((node) => node.title === wanted || node.id === wanted) : -1;
  if (named >= 0) choose(named);
}
window.addEventListener("hashchange", follow);
follow();
document.documentElement.dataset.ready = "yes";
