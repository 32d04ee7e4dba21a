"use strict";
// The one drawer of graphs. Nodes are {heading, lines, style, round, caption, hint}, edges [from, to, role] by
// the places of nodes; dagre lays them out, the rest is plain SVG that the page's style colors.
const SVG = "http://www.w3.org/2000/svg";
const CHAR = { heading: 7.6, small: 6.4 };

function element(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// Long text loses its middle where there is a widest node; its end often tells it from others.
function clipped(text, size, widest) {
  const most = Math.floor((widest - 20) / size);
  return text.length > most ? text.slice(0, most - 9) + "…" + text.slice(-8) : text;
}

function sized(node, widest) {
  const lines = [[node.heading, "heading"], ...node.lines.map((line) => [line, "small"])]
    .map(([text, kind]) => [clipped(text, CHAR[kind], widest), kind]);
  const width = Math.max(...lines.map(([text, kind]) => text.length * CHAR[kind])) + 20;
  return { lines, width: Math.min(widest, Math.max(90, width)), height: 14 + 16 * lines.length };
}

function laidOut(data, { rankdir, widest = Infinity, ranksep = 70 }) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir, nodesep: 22, ranksep, edgesep: 10, marginx: 20, marginy: 20 });
  graph.setDefaultEdgeLabel(() => ({}));
  data.nodes.forEach((node, i) => graph.setNode(String(i), sized(node, widest)));
  data.edges.forEach(([from, to], i) => graph.setEdge(String(from), String(to), {}, String(i)));
  dagre.layout(graph);
  return graph;
}

function curve(points, across) {
  const [first, ...rest] = points;
  let path = `M${first.x},${first.y}`;
  rest.forEach((point, i) => {
    const before = points[i], x = (before.x + point.x) / 2, y = (before.y + point.y) / 2;
    path += across
      ? ` C${x},${before.y} ${x},${point.y} ${point.x},${point.y}`
      : ` C${before.x},${y} ${point.x},${y} ${point.x},${point.y}`;
  });
  return path;
}

function drawEdges(graph, data, scene) {
  const across = graph.graph().rankdir === "LR";
  return data.edges.map(([from, to, role], i) => {
    const { points } = graph.edge({ v: String(from), w: String(to), name: String(i) });
    const path = element("path", { class: "edge", d: curve(points, across) }, scene);
    const middle = points[Math.floor(points.length / 2)];
    const label = element("text", { class: "role", x: middle.x, y: middle.y - 4 }, scene, role);
    return [path, label];
  });
}

function drawNodes(graph, data, scene, chosen) {
  return data.nodes.map((node, i) => {
    const { x, y, width, height, lines } = graph.node(String(i));
    const group = element("g", {
      class: `node ${node.style}`,
      transform: `translate(${x - width / 2},${y - height / 2})`, tabindex: 0, role: "button",
      "aria-label": node.caption,
    }, scene);
    element("rect", { width, height, rx: node.round }, group);
    lines.forEach(([text, kind], row) =>
      element("text", { x: 10, y: 20 + 16 * row, class: kind }, group, text));
    element("title", {}, group, node.hint);
    group.addEventListener("click", () => chosen(i));
    group.addEventListener("keydown", (event) => { if (event.key === "Enter") chosen(i); });
    return group;
  });
}
