"use strict";

// Headings become buttons here rather than in the page, which is read without scripts too.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    if (heading.tagName !== "TH") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const turns = { ascending: "descending", descending: "" };
      const order = turns[heading.getAttribute("aria-sort")] ?? "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      if (order) heading.setAttribute("aria-sort", order);
      body.append(...(order ? sorted(original, column, order) : original));
    });
  });
}

// Rows by one column; equal rows stay in their first order, and rows without a value come last.
function sorted(rows, column, order) {
  const sign = order === "ascending" ? 1 : -1;
  const keyed = rows.map((row) => [row.cells[column].dataset.sort, row]);
  keyed.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    if (Number.isNaN(x)) return sign * a.localeCompare(b, "en", { numeric: true });
    return x === y ? 0 : sign * (x < y ? -1 : 1);
  });
  return keyed.map(([, row]) => row);
}

// Colours: as the system has them until the reader says otherwise.
{
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("bayesmf-theme", root.dataset.theme); } catch { /* not remembered */ }
    name();
  });
  system.addEventListener("change", name);
  name();
  button.hidden = false;
}

// The folded contents would cover what was chosen from them.
for (const link of document.querySelectorAll("details.contents a")) {
  link.addEventListener("click", () => { link.closest("details").open = false; });
}

// The contents show where the reader is: the last section whose start has passed the upper third.
{
  const links = new Map();
  for (const link of document.querySelectorAll("nav.side > ul > li > a")) {
    links.set(document.getElementById(link.getAttribute("href").slice(1)), link);
  }
  const show = () => {
    let here = null;
    for (const [section, link] of links) {
      link.removeAttribute("aria-current");
      if (section.getBoundingClientRect().top < innerHeight / 3) here = link;
    }
    if (here) here.setAttribute("aria-current", "true");
  };
  addEventListener("scroll", show, { passive: true });
  show();
}
