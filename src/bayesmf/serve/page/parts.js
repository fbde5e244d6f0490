// What every view is made of: elements, requests, the search box.

export const el = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const say = (text) => { document.getElementById("news").textContent = text; };
export const count = (number) => number.toLocaleString("en");
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
export const nameOf = (row, key = "item") => row.title ?? String(row[key] ?? row.id);

// Requests. Whole numbers that JavaScript cannot hold stay text, which the service also takes.

let token = null;
try { token = sessionStorage.getItem("bayesmf-token"); } catch { /* storage is blocked */ }
export function keepToken(given) {
  token = given;
  try { sessionStorage.setItem("bayesmf-token", given); } catch { /* it lasts as long as the page */ }
}

export const hasToken = () => token !== null;

export class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

export async function ask(path, body = null) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers };
  if (body) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, "The service does not answer. Is it still running?");
  }
  const exact = (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context
      ? context.source : value;
  const answer = JSON.parse(await response.text(), exact);
  if (!response.ok) throw new Refused(response.status, answer.error);
  return answer;
}

export const find = (side, text, n = 8) =>
  ask(`/api/${side}s?n=${n}&search=${encodeURIComponent(text)}`);

// A search box with a list of what was found: a combobox as ARIA describes it.

let boxes = 0;

export function searchBox({ side, label, placeholder, choose }) {
  const id = `box-${++boxes}`;
  const list = el("ul", { id: `${id}-list`, role: "listbox", "aria-label": label, hidden: true });
  const input = el("input", {
    id, type: "text", role: "combobox", placeholder, autocomplete: "off", spellcheck: "false",
    "aria-expanded": "false", "aria-controls": `${id}-list`, "aria-autocomplete": "list",
    maxlength: 200,
  });
  let shown = [], active = -1, turn = 0, hasty = false;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }
  function mark(next) {
    active = next;
    [...list.children].forEach((option, k) => option.setAttribute("aria-selected", k === active));
    const option = list.children[active];
    if (option) {
      input.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }
  function pick(row) {
    close();
    hasty = false;
    input.value = "";
    choose(row);
  }
  async function open() {
    const mine = ++turn;
    let answer;
    try {
      answer = await find(side, input.value);
    } catch (error) {
      return say(error.message);
    }
    if (mine !== turn || document.activeElement !== input) return null;
    shown = answer.found;
    list.removeAttribute("aria-busy");
    if (hasty && shown.length) return pick(shown[0]);
    list.replaceChildren(...shown.map((row, k) => el(
      "li", { id: `${id}-${k}`, role: "option", "aria-selected": "false",
        onpointerdown: (event) => { event.preventDefault(); pick(row); } },
      el("span", { class: "found" }, nameOf(row, "id")),
      el("span", { class: "muted" }, plural(row.ratings, "rating")),
    )));
    if (!shown.length) list.append(el("li", { class: "none" }, `No ${side} has this in it.`));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    mark(-1);
    return say(shown.length ? `${plural(answer.total, side)} found` : `no ${side} found`);
  }
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    turn += 1;  // an answer on its way is to another text
    [shown, hasty] = [[], false];  // and so is what is still in the list
    list.setAttribute("aria-busy", "true");
    waiting = setTimeout(open, 120);
  });
  input.addEventListener("focus", open);
  input.addEventListener("blur", () => { turn += 1; close(); });
  input.addEventListener("keydown", (event) => {
    const many = shown.length;
    if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open();
      else if (many) mark((active + (event.key === "ArrowDown" ? 1 : active < 0 ? 0 : -1) + many) % many);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (list.hasAttribute("aria-busy")) hasty = true;  // the first that will be found
      else if (!list.hidden && many) pick(shown[Math.max(active, 0)]);
    }
  });
  return el("div", { class: "search" }, el("label", { for: id }, label), input, list);
}

// A table of plain texts.

export function table(caption, headings, rows) {
  return [el("p", { class: "muted", "aria-hidden": "true" }, caption),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
      el("table", { "aria-label": caption },
        el("thead", {}, el("tr", {}, headings.map((text) => el("th", { scope: "col" }, text)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text, k) =>
          k ? el("td", {}, text) : el("th", { scope: "row" }, text)))))))];
}

export const card = (title, ...children) => {
  const id = `card-${++boxes}`;
  return el("section", { class: "card", "aria-labelledby": id }, el("h2", { id }, title), children.flat());
};
