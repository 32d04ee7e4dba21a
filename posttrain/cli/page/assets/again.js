// Parts of a page that are asked for again while something runs; the page itself when it is over.
"use strict";

const SECONDS = 2;

async function renew(part, before) {
  let now = before;
  try {
    const response = await fetch(part.dataset.again);
    now = (await response.text()).trim();
    if (now !== before) part.innerHTML = now;
    // What ran is over: the tables of the page have it now.
    if (before && !now) location.reload();
  } catch {
    part.textContent = "The app does not answer; is posttrain ui still running?";
  }
  setTimeout(() => renew(part, now), SECONDS * 1000);
}

for (const part of document.querySelectorAll("[data-again]")) renew(part, "");
