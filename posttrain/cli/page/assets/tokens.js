// A rollout's tokens: colored by one measure, with all that is known of one under the pointer.
"use strict";

const known = JSON.parse(document.getElementById("known").textContent);
const facts = known.tokens.flat(); // [id, logprob, advantage, reward, learned, entropy]
const box = document.getElementById("tokens");
const tokens = [...box.querySelectorAll(".token")];
const tip = document.getElementById("tip");
const MEANINGS = {
  logprob: "the stronger the color, the less likely the engine found the token; what was only read has none",
  entropy: "the stronger the color, the less sure the policy was before the step learned",
  advantage: "green was better than the group, red was worse",
  mask: "colored tokens bear loss",
};
const advantages = facts.map((fact) => Math.abs(fact[2] ?? 0));
const largest = Math.max(...advantages, 1e-9);
let active = -1;

function color(fact, measure) {
  const [, logprob, advantage, , learned, entropy] = fact;
  if (measure === "logprob" && logprob !== null) {
    return ["var(--c2)", Math.sqrt(Math.min(1, -logprob / 4)) * 75];
  }
  if (measure === "entropy" && entropy !== null) {
    return ["var(--c2)", Math.min(1, entropy / 4) * 75];
  }
  if (measure === "advantage" && advantage) {
    return [advantage > 0 ? "var(--good)" : "var(--bad)", (Math.abs(advantage) / largest) * 50];
  }
  if (measure === "mask" && learned) return ["var(--c1)", 28];
  return null;
}

function paint(measure) {
  document.getElementById("meaning").textContent = MEANINGS[measure];
  for (const button of document.querySelectorAll("[data-measure]")) {
    button.setAttribute("aria-pressed", String(button.dataset.measure === measure));
  }
  tokens.forEach((token, index) => {
    const found = color(facts[index], measure);
    const mixed = found && `color-mix(in srgb, ${found[0]} ${found[1].toFixed(0)}%, transparent)`;
    token.style.backgroundColor = mixed || "";
  });
}

function told(index) {
  const [id, logprob, advantage, reward, learned, entropy] = facts[index];
  const lines = [`${JSON.stringify(tokens[index].textContent)}  token ${id}`];
  if (logprob === null) lines.push("read, not drawn: it bears no loss");
  else {
    const probability = `${(100 * Math.exp(logprob)).toPrecision(3)}%`;
    lines.push(`log-probability ${logprob.toPrecision(4)} (${probability})`);
    lines.push(entropy === null ? "entropy: not kept (rl.learner.entropies)" : `entropy ${entropy.toPrecision(4)} nats`);
    lines.push(`advantage ${advantage === null ? "none" : advantage.toPrecision(3)}`);
    lines.push(learned ? "bears loss" : "bears no loss");
    if (reward !== null) lines.push(`paid for this token ${reward.toPrecision(3)}`);
    lines.push(`reward of the answer ${known.reward ?? "not judged"}`);
    for (const part of known.components) lines.push(`  ${part.name} ${part.value ?? "not judged"}`);
  }
  return lines.join("\n");
}

function show(index) {
  if (active >= 0) tokens[active].classList.remove("active");
  active = index;
  tip.hidden = index < 0;
  if (index < 0) return;
  const token = tokens[index];
  token.classList.add("active");
  tip.textContent = told(index);
  const place = token.getClientRects()[0];
  const left = Math.min(place.left, window.innerWidth - tip.offsetWidth - 8);
  const above = place.bottom + tip.offsetHeight + 8 > window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above ? place.top - tip.offsetHeight - 4 : place.bottom + 4}px`;
}

box.addEventListener("pointerover", (event) => {
  const token = event.target.closest(".token");
  show(token ? tokens.indexOf(token) : -1);
});
box.addEventListener("pointerleave", () => show(-1));
box.addEventListener("blur", () => show(-1));
box.addEventListener("keydown", (event) => {
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  if (event.key === "Escape") show(-1);
  if (!(event.key in steps)) return;
  event.preventDefault();
  const first = facts.findIndex((fact) => fact[1] !== null);
  const next = active < 0 ? Math.max(first, 0) : active + steps[event.key];
  const index = Math.max(0, Math.min(tokens.length - 1, next));
  tokens[index].scrollIntoView({ block: "nearest" });
  show(index);
});
const kept = facts.some((fact) => fact[5] !== null);
document.querySelector('[data-measure="entropy"]').hidden = !kept;
for (const button of document.querySelectorAll("[data-measure]")) {
  button.addEventListener("click", () => paint(button.dataset.measure));
}
paint("logprob");
