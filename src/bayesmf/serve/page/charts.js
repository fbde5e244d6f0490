// Drawings: interval bars, the map, lines and columns. Colours are those of the style sheet.

import { el, svg, nameOf } from "./parts.js";

// Interval bars. All bars of a page share one scale.

let scale = { low: 0, high: 1, step: null, levels: null };
let digits = 2;

export function setScale(given) {
  scale = given;
  digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(scale.high - scale.low, 1e-9))));
}

export const number = (value) => value.toFixed(digits);
export const ratingText = (value) => String(Number(value.toFixed(digits + 1)));
const clip = (value) => Math.min(Math.max(value, scale.low), scale.high);  // a Gaussian has no ends
const along = (value) => {
  const margin = (scale.high - scale.low) * 0.04;
  return 100 * (clip(value) - scale.low + margin) / (scale.high - scale.low + 2 * margin);
};

function span(kind, low, high) {
  const part = el("span", { class: kind });
  part.style.left = `${along(low)}%`;
  part.style.width = `${Math.max(along(high) - along(low), 0.5)}%`;
  return part;
}

const ends = (row) =>
  (row.doubt === null ? [row.low, row.high] : [row.mean - 1.645 * row.doubt, row.mean + 1.645 * row.doubt]);

// The whole interval is where a rating would be; the dark part is what is not known of the taste.
export function bar(row, before = null) {
  const parts = el("div", { class: "bar", "aria-hidden": "true" });
  const levels = scale.levels && scale.levels.length <= 11 ? scale.levels : [scale.low, scale.high];
  for (const level of levels) {
    const tick = el("span", { class: "tick" });
    tick.style.left = `${along(level)}%`;
    parts.append(tick);
  }
  parts.append(span("range", row.low, row.high));
  if (row.doubt !== null) parts.append(span("doubt", ...ends(row)));
  if (before) parts.append(span("ghost", ...ends(before)));
  const dot = el("span", { class: "dot" });
  dot.style.left = `${along(row.mean)}%`;
  parts.append(dot);
  return parts;
}

export function axis() {
  const levels = scale.levels && scale.levels.length <= 11 ? scale.levels : [scale.low, scale.high];
  const marks = levels.filter((_, k) => levels.length <= 6 || k % 2 === levels.length % 2 || k === levels.length - 1);
  const line = el("div", { class: "axis", "aria-hidden": "true" });
  for (const level of marks) {
    const mark = el("span", {}, ratingText(level));
    mark.style.left = `${along(level)}%`;
    line.append(mark);
  }
  return line;
}

export const range = (row) => `${number(clip(row.low))} to ${number(clip(row.high))}`;

// The map of items. How wide a name is depends on its letters, so it is measured before it is placed.

const pen = document.createElement("canvas").getContext("2d");
const textWidth = (text, font) => {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
};

export function drawMap({ points, chosen, near, go }) {
  const W = wide() ? 640 : 360, H = 0.75 * W, P = 18;
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
  const place = (values, size) => {
    const low = Math.min(...values), high = Math.max(...values);
    return (v) => P + (size - 2 * P) * (high > low ? (v - low) / (high - low) : 0.5);
  };
  const X = place(xs, W), Y = place(ys, H);
  const most = Math.max(...points.map((p) => p.ratings), 1);
  const size = (p) => 1.6 + 3.4 * Math.sqrt(p.ratings / most);
  const spots = points.map((p) => ({ p, x: X(p.x), y: H - Y(p.y), r: size(p) }));
  const is = (id) => spots.find((s) => s.p.item === id);
  const here = chosen === null ? null : is(chosen);
  const nearby = near.map(is).filter(Boolean);
  const special = new Set([here, ...nearby]);
  const frame = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "map", role: "img", "aria-label":
    here ? `Map of ${points.length} items. ${nameOf(here.p)} is marked, with its ${nearby.length} neighbours on the map.`
      : `Map of ${points.length} items.` });
  frame.append(...spots.filter((s) => !special.has(s)).map((s) =>
    svg("circle", { class: "spot", cx: s.x, cy: s.y, r: s.r })));
  if (here) frame.append(...nearby.map((s) => svg("line", { class: "tie", x1: here.x, y1: here.y, x2: s.x, y2: s.y })));
  frame.append(...nearby.map((s) => svg("circle", { class: "spot near", cx: s.x, cy: s.y, r: s.r + 1.5 })));
  if (here) frame.append(svg("circle", { class: "spot here", cx: here.x, cy: here.y, r: here.r + 3 }));
  const taken = here ? [[here.x - 7, here.y - 7, 14, 14]] : [];
  const label = (s, kind, font) => {
    const whole = nameOf(s.p), room = [W - s.x - 14, s.x - 14];
    let text = whole.length > 26 ? `${whole.slice(0, 25)}…` : whole;
    while (text.length > 2 && textWidth(text, font) > Math.max(...room)) text = `${text.slice(0, -2)}…`;
    const width = textWidth(text, font), left = width > room[0];
    const box = [left ? s.x - width - 10 : s.x + 8, s.y - 9, width, 18];
    if (taken.some((b) => box[0] < b[0] + b[2] && b[0] < box[0] + box[2] && box[1] < b[1] + b[3] && b[1] < box[1] + box[3])) return;
    taken.push(box);
    if (!here) frame.append(svg("circle", { class: "named", cx: s.x, cy: s.y, r: s.r }));
    frame.append(svg("text", { class: kind, x: left ? s.x - 9 : s.x + 9, y: s.y + 4, "text-anchor": left ? "end" : "start" }, text));
  };
  if (here) label(here, "label here", "700 15px");
  const known = [...spots].sort((a, b) => b.p.ratings - a.p.ratings).slice(0, wide() ? 30 : 12);
  (here ? nearby : known).forEach((s) => label(s, "label", "13px"));
  const told = el("p", { class: "under" }, "Point at an item to see its name; click or tap to go there.");
  const ring = svg("circle", { class: "ring", r: 8, cx: -20, cy: -20 });
  frame.append(ring);
  const closest = (event) => {
    const box = frame.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * W, y = (event.clientY - box.top) / box.height * H;
    let best = null, least = 900;
    for (const s of spots) {
      const far = (s.x - x) ** 2 + (s.y - y) ** 2;
      if (far < least) [best, least] = [s, far];
    }
    return best;
  };
  frame.addEventListener("pointermove", (event) => {
    const s = closest(event);
    ring.setAttribute("cx", s ? s.x : -20);
    ring.setAttribute("cy", s ? s.y : -20);
    if (s) told.textContent = `${nameOf(s.p)}: ${s.p.ratings.toLocaleString("en")} ratings`;
  });
  frame.addEventListener("click", (event) => { const s = closest(event); if (s) go(s.p.item); });
  return el("figure", {}, frame, told);
}

// Lines on two axes. Drawings are narrow where the screen is, so that their letters stay as large.

const wide = () => matchMedia("(min-width: 60rem)").matches;
const box = { get W() { return wide() ? 480 : 340; }, H: 300, left: 46, right: 24, top: 14, bottom: 38 };
const ticks = (low, high, many = 5) => {
  const rough = (high - low) / many || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) found.push(v);
  return found;
};
const short = (v) => (v !== 0 && (Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3) ? v.toExponential(1) : String(Number(v.toPrecision(6))));

export function lines({ label, series, x, y, diagonal, shade, points, percent, H = box.H }) {
  const inside = { w: box.W - box.left - box.right, h: H - box.top - box.bottom };
  const X = (v) => box.left + inside.w * (v - x.low) / (x.high - x.low || 1);
  const Y = (v) => box.top + inside.h * (1 - (v - y.low) / (y.high - y.low || 1));
  const text = percent ? (v) => `${Math.round(100 * v)}%` : short;
  const frame = svg("svg", { viewBox: `0 0 ${box.W} ${H}`, class: "chart", role: "img", "aria-label": label });
  if (shade) frame.append(svg("rect", { class: "shade", x: X(x.low), y: box.top, width: X(shade) - X(x.low), height: inside.h }));
  for (const v of ticks(y.low, y.high)) {
    frame.append(svg("line", { class: "grid", x1: box.left, x2: box.W - box.right, y1: Y(v), y2: Y(v) }),
      svg("text", { x: box.left - 6, y: Y(v) + 4, "text-anchor": "end" }, text(v)));
  }
  for (const v of ticks(x.low, x.high)) {
    frame.append(svg("text", { x: X(v), y: H - box.bottom + 17, "text-anchor": "middle" }, text(v)));
  }
  frame.append(svg("text", { class: "title", x: box.left + inside.w / 2, y: H - 4, "text-anchor": "middle" }, x.name));
  if (diagonal) frame.append(svg("line", { class: "ideal", x1: X(x.low), y1: Y(x.low), x2: X(x.high), y2: Y(x.high) }));
  series.forEach((values, k) => {
    const path = values.filter(([, v]) => v !== null).map(([a, b]) => `${X(a).toFixed(1)},${Y(b).toFixed(1)}`).join(" ");
    frame.append(svg("polyline", { class: `line c${k % 4}`, points: path }));
    if (points) frame.append(...values.map(([a, b]) => svg("circle", { class: `mark c${k % 4}`, cx: X(a), cy: Y(b), r: 4 })));
  });
  return frame;
}

// Bars with their numbers: one row for each name. A mark stands where the value should be.
export function rows({ label, names, values, notes, ideal = null, text }) {
  const most = Math.max(...values.map((v) => Math.abs(v ?? 0)), ideal ?? 0, 1e-9);
  return el("ul", { class: "rows", "aria-label": label }, names.map((name, k) => {
    const length = el("span", { class: "length" }), well = el("span", { class: "well", "aria-hidden": "true" }, length);
    length.style.width = `${100 * Math.abs(values[k] ?? 0) / most}%`;
    if (ideal !== null) {
      const mark = el("span", { class: "goal" });
      mark.style.left = `${100 * ideal / most}%`;
      well.append(mark);
    }
    return el("li", {}, el("span", {}, name), well, el("b", {}, text(values[k])), el("span", { class: "muted" }, notes[k]));
  }));
}
