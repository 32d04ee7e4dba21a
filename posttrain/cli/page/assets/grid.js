// A list of any number of rows: only those in sight are in the page, and they come by blocks.
"use strict";

const HEIGHT = 30; // pixels of a row, as in the style sheet
const BLOCK = 100; // rows of one question to the server
const KEPT_BLOCKS = 60;
const MOST_PENDING = 4;
const PATIENCE = 25; // milliseconds
const TALLEST = 8000000; // pixels; browsers cannot scroll much farther

class Grid {
  constructor(root) {
    this.root = root;
    this.given = JSON.parse(root.querySelector("script").textContent);
    this.view = root.querySelector(".grid-view");
    this.space = root.querySelector(".grid-space");
    this.layer = root.querySelector(".grid-rows");
    this.counter = document.getElementById("count");
    this.form = document.getElementById("question");
    this.elements = new Map(); // row -> element in sight
    this.spare = [];
    this.active = 0;
    this.asked = 0;
    this.waiting = 0;
    this.take(this.given.first);
    this.view.addEventListener("scroll", () => this.draw(), { passive: true });
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.layer.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.draw()).observe(this.view);
    for (const button of root.querySelectorAll("[data-sort]")) {
      button.addEventListener("click", () => this.sort(button));
    }
    const choices = document.getElementById("choices");
    if (choices) {
      fetch(choices.dataset.at)
        .then((response) => response.text())
        .then((text) => { choices.outerHTML = text; });
    }
    if (this.form) {
      let timer = 0;
      const soon = () => {
        clearTimeout(timer);
        timer = setTimeout(() => this.ask(), 150);
      };
      this.form.addEventListener("input", soon);
      this.form.addEventListener("change", soon);
      this.form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.ask();
      });
    }
  }

  // The question as the address has it.
  question() {
    const params = new URLSearchParams();
    if (this.form) {
      for (const [name, value] of new FormData(this.form)) if (value) params.append(name, value);
    }
    if (this.given.sort) {
      params.set("sort", this.given.sort);
      if (this.given.descending) params.set("descending", "true");
    }
    return params;
  }

  // Begin anew with the first rows of an answer.
  take(answer) {
    this.total = answer.total;
    this.blocks = new Map([[0, answer.rows]]);
    this.pending = new Set();
    this.active = 0;
    this.space.style.height = `${Math.min(this.total * HEIGHT, TALLEST)}px`;
    this.root.querySelector("[role=grid]").setAttribute("aria-rowcount", this.total + 1);
    if (this.counter) {
      const all = this.given.rows;
      const words = (count) => count.toLocaleString("en-US");
      this.counter.textContent =
        this.total === all ? `${words(all)} rows` : `${words(this.total)} of ${words(all)} rows`;
    }
    for (const [, element] of this.elements) this.put(element);
    this.elements.clear();
    this.draw();
  }

  async ask() {
    const turn = ++this.asked;
    const params = this.question();
    history.replaceState(null, "", params.size ? `?${params}` : location.pathname);
    const answer = await this.fetch(0, params);
    if (turn !== this.asked || !answer) return;
    this.view.scrollTop = 0;
    this.take(answer);
  }

  async fetch(block, params) {
    params.set("start", block * BLOCK);
    params.set("count", BLOCK);
    const said = document.getElementById("said");
    try {
      const response = await fetch(`${this.given.rows_at}?${params}`);
      const answer = await response.json();
      if (said) said.textContent = answer.problem || "";
      return answer.problem ? null : answer;
    } catch {
      if (said) said.textContent = "The app does not answer; is posttrain ui still running?";
      return null;
    }
  }

  // Ask for what is in sight, and for what comes next that way; not for what flies past.
  want() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      const first = Math.floor(this.from / BLOCK);
      const last = Math.floor((this.to - 1) / BLOCK);
      const wanted = this.down ? [first, last, last + 1] : [last, first, first - 1];
      for (const block of new Set(wanted)) {
        if (block >= 0 && block * BLOCK < this.total) this.need(block);
      }
    }, PATIENCE);
  }

  async need(block) {
    if (this.blocks.has(block) || this.pending.has(block)) return;
    if (this.pending.size >= MOST_PENDING) {
      this.want();
      return;
    }
    this.pending.add(block);
    const { asked, blocks, pending } = this;
    const answer = await this.fetch(block, this.question());
    pending.delete(block);
    if (asked !== this.asked || !answer) return;
    blocks.set(block, answer.rows);
    if (blocks.size > KEPT_BLOCKS) blocks.delete(blocks.keys().next().value);
    this.draw();
  }

  // Row at the upper edge, with a fraction; past the tallest page, scrolling goes in larger steps.
  top() {
    const room = this.space.offsetHeight - this.view.clientHeight;
    const all = this.total * HEIGHT - this.view.clientHeight;
    if (all <= room || room <= 0) return this.view.scrollTop / HEIGHT;
    return ((this.view.scrollTop / room) * all) / HEIGHT;
  }

  draw() {
    const top = this.top();
    const sight = this.view.clientHeight / HEIGHT;
    const from = Math.max(0, Math.floor(top) - 4);
    const to = Math.min(this.total, Math.ceil(top + sight) + 4);
    for (const [row, element] of this.elements) {
      if (row < from || row >= to) {
        this.put(element);
        this.elements.delete(row);
      }
    }
    this.down = from >= (this.from ?? 0);
    Object.assign(this, { from, to });
    const shift = this.view.scrollTop - top * HEIGHT;
    for (let row = from; row < to; row += 1) {
      let element = this.elements.get(row);
      if (!element) {
        element = this.spare.pop() || this.build();
        this.elements.set(row, element);
        element.hidden = false;
        element.filled = false;
        element.id = `row-${row}`;
        element.setAttribute("aria-rowindex", row + 2);
      }
      element.style.transform = `translateY(${row * HEIGHT + shift}px)`;
      element.classList.toggle("active", row === this.active);
      if (!element.filled) this.fill(element, row);
    }
    this.view.setAttribute("aria-activedescendant", `row-${this.active}`);
    // The next block comes before it is seen.
    const ahead = Math.floor((this.down ? to + BLOCK / 2 : from - BLOCK / 2) / BLOCK);
    if (ahead >= 0 && ahead * BLOCK < this.total && !this.blocks.has(ahead)) this.want();
  }

  put(element) {
    element.hidden = true;
    this.spare.push(element);
  }

  build() {
    const element = document.createElement("div");
    element.className = "grid-row";
    element.setAttribute("role", "row");
    for (const column of this.given.columns) {
      const cell = document.createElement("span");
      cell.className = column.shape;
      cell.setAttribute("role", "gridcell");
      element.append(cell);
    }
    this.layer.append(element);
    return element;
  }

  fill(element, row) {
    const block = this.blocks.get(Math.floor(row / BLOCK));
    if (!block) this.want();
    const values = block ? block[row % BLOCK] : null;
    element.filled = Boolean(values);
    element.number = values ? values[0] : null;
    this.given.columns.forEach((column, index) => {
      element.children[index].textContent = values ? written(values[index + 1], column) : "";
    });
    const right = this.given.columns.findIndex((column) => column.name === "solved");
    const solved = values && right >= 0 ? values[right + 1] : null;
    element.classList.toggle("right", solved === true);
    element.classList.toggle("wrong", solved === false);
  }

  open(row, elsewhere) {
    const block = this.blocks.get(Math.floor(row / BLOCK));
    if (!block) return;
    const params = this.question();
    const asked = params.size ? `?${params}` : "";
    const address = `${this.given.row_at}/${block[row % BLOCK][0]}${asked}`;
    if (elsewhere) window.open(address, "_blank");
    else location.href = address;
  }

  click(event) {
    const element = event.target.closest(".grid-row");
    if (!element || window.getSelection().toString()) return;
    this.open(Number(element.id.slice(4)), event.ctrlKey || event.metaKey);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.view.clientHeight / HEIGHT) - 2);
    const steps = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    };
    if (event.key === "Enter") this.open(this.active, event.ctrlKey || event.metaKey);
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.active = Math.max(0, Math.min(this.total - 1, this.active + steps[event.key]));
    this.reveal(this.active);
    this.draw();
  }

  reveal(row) {
    const head = this.root.querySelector(".grid-head").offsetHeight;
    const top = this.top();
    const fits = (this.view.clientHeight - head) / HEIGHT;
    if (row >= top && row + 1 <= top + fits) return;
    const wanted = row < top ? row : row + 1 - fits;
    const room = this.space.offsetHeight - this.view.clientHeight;
    const all = this.total * HEIGHT - this.view.clientHeight;
    this.view.scrollTop = all <= room ? wanted * HEIGHT : (wanted * HEIGHT * room) / all;
  }

  sort(button) {
    const name = button.dataset.sort;
    // Up, down, and as the table has them.
    if (this.given.sort !== name) Object.assign(this.given, { sort: name, descending: false });
    else if (!this.given.descending) this.given.descending = true;
    else Object.assign(this.given, { sort: "", descending: false });
    for (const other of this.root.querySelectorAll("[data-sort]")) {
      const on = other.dataset.sort === this.given.sort;
      const way = this.given.descending ? "descending" : "ascending";
      other.closest("[role=columnheader]").setAttribute("aria-sort", on ? way : "none");
    }
    this.ask();
  }
}

function written(value, column) {
  if (value === null || value === undefined) return "";
  if (column.shape === "yes_no") return value ? "yes" : "no";
  if (column.shape !== "number" || Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 0.001 ? String(Number(value.toFixed(3))) : value.toExponential(1);
}

for (const root of document.querySelectorAll(".grid")) new Grid(root);
