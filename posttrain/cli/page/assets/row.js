// Keys of a row's page: n and p go to the next and the previous row, a and r press the buttons.
"use strict";

document.addEventListener("keydown", (event) => {
  const writing = event.target.matches("input, select, textarea");
  if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
  const link = { n: "a[rel=next]", p: "a[rel=prev]" }[event.key];
  if (link) document.querySelector(link)?.click();
  document.querySelector(`button[data-key="${CSS.escape(event.key)}"]`)?.click();
});
