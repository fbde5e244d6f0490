// The views of the explorer, and which of them an address shows.

import { ask, card, count, el, find, hasToken, keepToken, nameOf, plural, Refused, say, searchBox, svg, table } from "./parts.js";
import { axis, bar, drawMap, lines, number, range, ratingText, rows as drawRows, setScale } from "./charts.js";

const main = document.getElementById("main");
const go = (view, id = null) => {
  location.hash = id === null ? `#/${view}` : `#/${view}/${encodeURIComponent(id)}`;
};
const to = (view, id) => `#/${view}/${encodeURIComponent(id)}`;
let facts = null;

const legend = (rows, before = false) => {
  const key = (kind, text) => el("span", {}, el("span", { class: `key ${kind}` }), text);
  return el("p", { class: "legend" }, key("range", "where 90% of ratings would be"),
    rows.some((row) => row.doubt !== null) ? key("doubt", "the part that more ratings narrow") : null,
    before ? key("ghost", "before you rated") : null);
};

async function exactly(side, id) {
  const { found } = await find(side, id, 1);
  return found.length && String(found[0].id) === id ? found[0] : null;
}

const examples = (side, rows, words) => el("p", { class: "examples" }, words,
  rows.map((row) => el("a", { class: "chip", href: to(side, row.id) }, nameOf(row, "id"))));

// A list of predictions: what, an interval bar, and the numbers of it.
function predictions(rows, { ranked = false, before = null, why = null } = {}) {
  const list = el(ranked ? "ol" : "ul", { class: "bars" });
  rows.forEach((row, k) => {
    const was = before?.get(row.item);
    list.append(el("li", {},
      el("span", { class: "what" }, ranked ? el("span", { class: "rank", "aria-hidden": "true" }, `${k + 1}`) : null,
        el("a", { href: to("item", row.item) }, nameOf(row))),
      bar(row, was),
      el("span", { class: "numbers" }, el("b", {}, el("span", { class: "hidden-text" }, "expected "), number(row.mean)),
        el("span", { class: "muted" }, el("span", { class: "hidden-text" }, ", between "), range(row))),
      why ? el("button", { type: "button", class: "quiet", "aria-expanded": "false", "aria-label": `Why ${nameOf(row)}?`,
        onclick: (event) => why(row, event.currentTarget) }, "Why?") : null));
  });
  return el("div", { class: why ? "lists with-why" : "lists" }, axis(), list);
}

// Users

async function userView(id) {
  const box = searchBox({ side: "user", label: "Look up a user",
    placeholder: "User id", choose: (row) => go("user", row.id) });
  const { found } = await find("user", "", 5);
  const user = id === null ? found[0] : await exactly("user", id);
  if (!user) return [el("div", { class: "top" }, box), el("p", { class: "hint", role: "alert" }, `The model knows no user “${id}”.`)];
  const [own, best] = await Promise.all([
    facts.ratings === null ? null : ask(`/api/ratings?n=1000&user=${encodeURIComponent(user.id)}`),
    ask("/api/recommend", { users: [user.id], n: 20, exclude_seen: facts.ratings !== null }),
  ]);
  const name = nameOf(user, "id");
  return [
    el("div", { class: "top" }, box, el("p", { class: "subject" }, el("strong", {}, `User ${name}`), ` has ${plural(user.ratings, "rating")} in training`),
      id === null ? examples("user", found.slice(1), "Others:") : null),
    el("div", { class: "two" },
      card("Recommended", legend(best.recommendations), predictions(best.recommendations, { ranked: true, why: (row, button) => explain(user, row, button) })),
      own ? card(`Rated (${count(own.total)})`, histogram(own.counts), ratedList(own)) : card("Rated", el("p", { class: "hint" }, "The model was saved without its ratings.")),
    )];
}

async function explain(user, row, button) {
  const item = button.closest("li");
  if (button.getAttribute("aria-expanded") === "true") {
    item.querySelector(".why").remove();
    button.setAttribute("aria-expanded", "false");
    return;
  }
  const found = await ask("/api/explain", { user: user.id, item: row.item, most: 6 });
  const words = { mean: "the mean of all ratings", user_bias: "how this user rates", item_bias: "how this item is rated",
    own_features: "the user's taste", designs: "what they chose to rate", features: "the user's taste", selection: "that they would rate it", mood: "their mood at the time" };
  const parts = Object.entries(found.parts).map(([name, part]) => [words[name] ?? name, part.mean]);
  const list = (rows, plus) => {
    const most = Math.max(...rows.map(([, v]) => Math.abs(v)), 1e-9), digits = most < 0.095 ? 3 : 2;
    return el("ul", { class: "adds" }, rows.map(([text, v, link]) => {
      const length = el("span", { class: v < 0 ? "minus" : "plus" });
      length.style.width = `${48 * Math.abs(v) / most}%`;
      return el("li", {}, el("span", {}, link ? el("a", { href: link }, text) : text),
        el("span", { class: "signed", "aria-hidden": "true" }, length), el("b", {}, `${v > 0 && plus ? "+" : ""}${v.toFixed(digits)}`));
    }));
  };
  const ratings = (found.ratings ?? []).map((r) => [`${nameOf(r)}, rated ${ratingText(r.rating)}`, r.adds, to("item", r.item)]);
  const shown = el("div", { class: "why" }, el("h3", {}, "What the prediction is made of"), list(parts, true),
    ratings.length ? [el("h3", {}, "Which of their ratings matter most"), list(ratings, true)] : null);
  item.append(shown);
  button.setAttribute("aria-expanded", "true");
  say(`${nameOf(row)} explained below it`);
}

function histogram(counts) {
  const levels = facts.scale.levels;
  if (!levels || levels.length > 11) return null;
  const many = levels.map((level) => counts.find((c) => Math.abs(c.rating - level) < 1e-9)?.count ?? 0);
  const most = Math.max(...many, 1);
  return el("div", { class: "histogram", role: "img", "aria-label": levels.map((l, k) => `${many[k]} of ${ratingText(l)}`).join(", ") },
    levels.map((level, k) => {
      const column = el("span", { class: "stack" });
      column.style.height = `${Math.max(100 * many[k] / most, 2)}%`;
      return el("span", { class: "level" }, el("span", { class: "many" }, `${many[k]}`), el("span", { class: "well" }, column), ratingText(level));
    }));
}

function ratedList(own) {
  const rows = own.ratings;
  return el("div", { class: "tall", tabindex: "0", role: "group", "aria-label": "Ratings of the user" },
    el("ul", { class: "rated" }, rows.map((r) => el("li", {}, el("a", { href: to("item", r.item) }, nameOf(r)),
      r.held_out ? el("span", { class: "tag" }, "held out") : null, el("b", {}, ratingText(r.rating))))),
    own.total > rows.length ? el("p", { class: "muted" }, `and ${count(own.total - rows.length)} more`) : null);
}

// Visitor: rate a few items, and watch the intervals.

const visit = { rated: new Map(), first: null, history: [], offered: null, watched: null, more: [] };

async function visitorView() {
  if (!visit.offered) {
    const { found } = await find("item", "", 40);
    visit.offered = found.filter((_, k) => k % 2 === 0).slice(0, 12);
    visit.watched = found.filter((_, k) => k % 2 === 1).slice(0, 8);
  }
  const answers = el("div", { class: "answers" }), summary = el("section", { class: "card doubt-of", "aria-label": "What is not known of your taste" });
  const mine = el("div", { class: "mine" });
  const box = searchBox({ side: "item", label: "Find something to rate", placeholder: facts.titles ? "Title" : "Item id",
    choose: (row) => {
      visit.more = [row, ...visit.more.filter((one) => one.id !== row.id)];
      draw();
      mine.querySelector(`input[name="rate-${CSS.escape(String(row.id))}"]`)?.focus();
    } });
  function rate(row, rating) {
    if (rating === null) {
      visit.rated.delete(row.id);
      draw();
      mine.querySelector("input, button")?.focus();
    } else visit.rated.set(row.id, { row, rating, time: Math.floor(Date.now() / 1000) });
    say(rating === null ? `${nameOf(row, "id")} is not rated any more` : `${nameOf(row, "id")} rated ${ratingText(rating)}`);
    show();
  }
  function draw() {
    const named = new Map([...visit.rated.values()].map(({ row }) => [row.id, row]));
    for (const row of [...visit.more, ...visit.offered]) named.set(row.id, row);
    const rows = [...named.values()].slice(0, Math.max(matchMedia("(min-width: 60rem)").matches ? 9 : 4, visit.rated.size + 2));
    mine.replaceChildren(...rows.map((row) => rater(row, visit.rated.get(row.id)?.rating ?? null, rate)));
  }
  let turn = 0;
  async function show() {
    const now = ++turn;
    const ratings = [...visit.rated.values()].map(({ row, rating, time }) => ({ item: row.id, rating, ...(facts.timed ? { time } : {}) }));
    const found = await ask("/api/visitor", { ratings, n: 8, items: visit.watched.map((row) => row.id) });
    if (now !== turn) return;
    visit.first ??= new Map(found.predictions.map((row) => [row.item, row]));
    const half = (row) => row.doubt ?? row.sd;
    const doubt = found.predictions.reduce((sum, row) => sum + half(row), 0) / Math.max(found.predictions.length, 1);
    visit.history[ratings.length] = doubt;
    visit.history.length = ratings.length + 1;
    summary.replaceChildren(...doubtOf(ratings.length, doubt));
    answers.replaceChildren(card("What the model expects of you", legend(found.predictions, ratings.length > 0),
      predictions(found.predictions, { before: ratings.length ? visit.first : null })),
    card("Recommended to you", predictions(found.recommendations, { ranked: true })));
  }
  draw();
  await show();
  return [summary, el("div", { class: "two visitor" },
    card("Rate three items or more", el("p", { class: "muted" }, "The model has never seen you. Each rating tells it something, and the intervals shrink. Nothing is kept."), box, mine),
    answers)];
}

function doubtOf(many, doubt) {
  const first = visit.history[0] ?? doubt, less = Math.round(100 * (1 - doubt / first));
  const told = many ? `after ${plural(many, "rating")}: ${Math.abs(less)}% ${less >= 0 ? "less" : "more"} than before` : "before you have rated anything";
  const steps = [...visit.history.entries()].filter(([, v]) => v !== undefined);
  const W = 150, H = 40, most = Math.max(...steps.map(([, v]) => v), 1e-9);
  const X = (k) => 6 + (W - 12) * k / Math.max(steps.length - 1, 3), Y = (v) => H - 4 - (H - 10) * v / most;
  const points = steps.map(([, v], k) => [X(k), Y(v)]);
  return [
    el("p", {}, el("b", { class: "big", "data-doubt": doubt }, `± ${doubt.toFixed(2)}`), el("span", {}, `doubt about your taste ${told}`)),
    svg("svg", { class: "spark", viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" },
      svg("line", { class: "grid", x1: 0, x2: W, y1: H - 4, y2: H - 4 }),
      svg("polyline", { points: points.map((p) => p.join(",")).join(" ") }),
      points.map(([x, y]) => svg("circle", { cx: x, cy: y, r: 2.8 })))];
}

function rater(row, rating, rate) {
  const { levels, low, high } = facts.scale, name = nameOf(row, "id");
  const remove = el("button", { type: "button", class: "quiet remove", "aria-label": `Remove the rating of ${name}`, onclick: () => rate(row, null) }, "×");
  remove.hidden = rating === null;
  const set = (value) => { remove.hidden = false; rate(row, value); };
  const control = levels && levels.length <= 11
    ? el("div", { class: "levels" }, levels.map((level) => el("label", {},
      el("input", { type: "radio", name: `rate-${row.id}`, value: String(level), checked: rating === level, onchange: () => set(level) }),
      el("span", {}, ratingText(level)))))
    : el("input", { type: "range", name: `rate-${row.id}`, min: low, max: high, step: "any", "aria-label": `Rating of ${name}`,
      value: rating ?? (low + high) / 2, onchange: (event) => set(Number(event.target.value)) });
  return el("fieldset", {}, el("legend", {}, name), control, remove);
}

// Items

let map = null;

async function itemView(id) {
  const box = searchBox({ side: "item", label: "Look up an item", placeholder: facts.titles ? "Title or item id" : "Item id",
    choose: (row) => go("item", row.id) });
  if (!facts.model.rank) return [card("Items", el("p", {}, "The model has biases alone, and no features by which items could be compared."))];
  map ??= await ask("/api/map");
  const follow = (item) => go("item", item);
  const note = el("p", { class: "muted" }, `Items that lie together are liked by the same people; the axes have no names. ${map.total > map.points.length ? `The ${count(map.points.length)} items with the most ratings are shown.` : ""}`);
  if (id === null) {
    const { found } = await find("item", "", 6);
    return [el("div", { class: "top" }, box, examples("item", found, "For example:")),
      card("The map of items", note, drawMap({ points: map.points, chosen: null, near: [], go: follow }))];
  }
  const item = await exactly("item", id);
  if (!item) return [el("div", { class: "top" }, box), el("p", { class: "hint", role: "alert" }, `The model knows no item “${id}”.`)];
  const { similar } = await ask("/api/similar", { item: item.id, n: 12 });
  return [
    el("div", { class: "top" }, box, el("p", { class: "subject" }, el("strong", {}, facts.titles ? nameOf(item, "id") : `Item ${item.id}`), ` has ${plural(item.ratings, "rating")} in training`)),
    el("div", { class: "two" },
      card("Neighbours", el("p", { class: "muted" }, "How alike users like them, from -1 to 1; the percentage says in how many of the draws an item is among the nearest twelve."),
        el("ol", { class: "bars near" }, similar.map((row, k) => {
          const length = el("span", { class: "doubt" });
          length.style.width = `${100 * Math.max(row.similarity, 0)}%`;
          return el("li", {}, el("span", { class: "what" }, el("span", { class: "rank", "aria-hidden": "true" }, `${k + 1}`), el("a", { href: to("item", row.item) }, nameOf(row))),
            el("div", { class: "bar plain", "aria-hidden": "true" }, length),
            el("span", { class: "numbers" }, el("b", {}, row.similarity.toFixed(2)),
              el("span", { class: "muted" }, `${Math.round(100 * row.probability)}%`)));
        }))),
      card("Its place on the map", note, drawMap({ points: map.points, chosen: item.id, near: similar.map((row) => row.item), go: follow })))];
}

// Quality

const MEASURES = { rmse: "RMSE", mae: "MAE", crps: "CRPS", log_probability: "log probability", log_score: "log score",
  coverage_50: "coverage of 50%", coverage_80: "coverage of 80%", coverage_95: "coverage of 95%" };

async function qualityView() {
  if (!facts.tested) {
    return [card("How good is it?", el("p", {}, "No test ratings are known of this model."),
      el("p", {}, "Fit it with ", el("code", {}, "--holdout random"), " so that some are held out, or start the service with ", el("code", {}, "--test FILE"), "."))];
  }
  main.replaceChildren(el("p", { class: "hint" }, "Measuring on the test ratings…"));
  const found = await ask("/api/quality");
  const rows = found.by_user_frequency, keys = Object.keys(MEASURES).filter((key) => found[key] !== undefined);
  const ideal = (key) => (key.startsWith("coverage_") ? Number(key.slice(9)) / 100 : null);
  const shown = (v, key) => (v === null ? "–" : key.startsWith("coverage_") ? `${(100 * v).toFixed(1)}%` : v.toFixed(4));
  const drawn = el("div", {});
  const draw = (key) => drawn.replaceChildren(drawRows({ label: `${MEASURES[key]} by the ratings of the user`,
    names: rows.map((r) => r.user_ratings.replace("<=", "≤")), values: rows.map((r) => r[key]), ideal: ideal(key),
    notes: rows.map((r) => plural(r.test_ratings, "test")), text: (v) => shown(v, key) }));
  const choice = el("select", { id: "measure", onchange: (event) => draw(event.target.value) },
    keys.map((key) => el("option", { value: key }, MEASURES[key])));
  draw(keys[0]);
  const worst = found.calibration.reduce((a, b) => (Math.abs(b.coverage - b.level) > Math.abs(a.coverage - a.level) ? b : a));
  const off = 100 * Math.abs(worst.coverage - worst.level);
  return [
    el("div", { class: "figures" }, ["rmse", "mae", "coverage_80"].map((key) =>
      el("p", {}, el("b", { class: "big" }, shown(found[key], key)), el("span", {}, MEASURES[key]))),
    el("p", {}, el("b", { class: "big" }, count(found.test_ratings)), el("span", {}, found.source === "file" ? "test ratings of a file" : "ratings held out"))),
    el("div", { class: "two" },
      card("Calibration", el("p", { class: "muted" }, off < 3
        ? `The intervals can be trusted: each holds about the share of ratings that it should, at most ${off.toFixed(1)} points off.`
        : `The ${Math.round(100 * worst.level)}% interval holds ${(100 * worst.coverage).toFixed(0)}% of the ratings.`),
      lines({ label: `Share of ratings inside intervals: ${found.calibration.map((c) => `${(100 * c.coverage).toFixed(0)}% in the ${(100 * c.level).toFixed(0)}% interval`).join(", ")}`,
        series: [[[0, 0], ...found.calibration.map((c) => [c.level, c.coverage]), [1, 1]]], x: { low: 0, high: 1, name: "probability of the interval" },
        y: { low: 0, high: 1 }, diagonal: true, points: true, percent: true })),
      card("Error by user frequency", el("p", { class: "muted" }, "By how many ratings a user has, training and test together."), el("p", { class: "pick" }, el("label", { for: "measure" }, "Measure"), choice), drawn)),
    card("All measures", table("By how much users rated, training and test together", ["ratings of the user", "test ratings", ...keys.map((key) => MEASURES[key])],
      [...rows, { ...found, user_ratings: "all" }].map((r) => [r.user_ratings.replace("<=", "≤"), count(r.test_ratings), ...keys.map((key) => shown(r[key], key))])))];
}

// Chains

async function chainsView() {
  const found = await ask("/api/chains"), told = found.diagnostics;
  const mark = told.converged === true ? "good" : told.converged === false ? "bad" : "fair";
  const sign = { good: "✓", bad: "✗", fair: "?" }[mark];
  const cell = (v, n) => (v === null || v === undefined ? "–" : Math.abs(v) >= 100 ? count(Math.round(v)) : v.toFixed(n));
  const row = (name, m) => [name, cell(m.mean, 4), cell(m.sd, 4), cell(m.r_hat, 3), cell(m.ess, 0), cell(m.ess_tail, 0)];
  const rows = Object.entries(told.summaries).map(([name, m]) => row(name.replaceAll("_", " "), m));
  const { median, worst_1_percent: worst } = told.predictions;
  if (median) rows.push(row("predictions, median", median), row("predictions, worst 1%", worst));
  const traces = Object.entries(found.traces).map(([name, chains]) => {
    const all = chains.flat().filter((v) => v !== null), low = Math.min(...all), high = Math.max(...all), length = Math.max(...chains.map((c) => c.length), 1);
    const every = found.sweeps / length;
    return el("figure", {}, el("figcaption", {}, name), lines({ label: `Trace of ${name}: ${plural(chains.length, "chain")}, ${plural(found.sweeps, "sweep")}`,
      series: chains.map((chain) => chain.map((v, k) => [k * every, v])), x: { low: 0, high: found.sweeps, name: "sweep" },
      y: { low: low - 0.05 * (high - low), high: high + 0.05 * (high - low || 1) }, shade: found.warm_up, H: 230 }));
  });
  const several = Object.values(found.traces).some((chains) => chains.length > 1);
  return [
    el("section", { class: `card verdict ${mark}` }, el("span", { class: "sign", "aria-hidden": "true" }, sign), el("p", {}, told.words)),
    traces.length ? card("Traces", el("p", { class: "muted" }, `${several ? "Each colour is a chain. Chains that have converged cross one another all the time." : "There is one chain, so nothing can be compared with it."} The first ${plural(found.warm_up, "sweep")}, shaded, are the warm-up.`), el("div", { class: "three" }, traces)) : null,
    rows.length ? card("What was judged", table(`R-hat should be below ${told.targets.r_hat ?? 1.05}, and the effective draws many`, ["quantity", "mean", "sd", "R-hat", "effective draws", "in the tails"], rows)) : null];
}

// Which view is shown

const VIEWS = { user: userView, visitor: visitorView, item: itemView, quality: qualityView, chains: chainsView };
const NAMES = { user: "Users", visitor: "Visitor", item: "Items", quality: "Quality", chains: "Chains" };
let turn = 0;

function askForToken() {
  const input = el("input", { id: "token", type: "password", autocomplete: "current-password" });
  main.replaceChildren(el("form", { class: "card token", onsubmit: (event) => {
    event.preventDefault();
    keepToken(input.value.trim());
    begin();
  } }, el("h2", {}, "This service asks for its token"), el("input", { type: "text", autocomplete: "username", value: "bayesmf", hidden: true }), el("label", { for: "token" }, "Token"), input, el("button", {}, "Open")));
  input.focus();
}

async function show(first = false) {
  const now = ++turn, { hash } = location;
  const [view, id] = hash.replace(/^#\/?/, "").split("/");
  const known = VIEWS[view] ? view : "user";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${known}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${NAMES[known]} · bayesmf explorer`;
  main.setAttribute("aria-busy", "true");
  try {
    const parts = await VIEWS[known](id ? decodeURIComponent(id) : null);
    if (now !== turn) return;
    main.replaceChildren(...parts.filter(Boolean));
    if (!first) {
      main.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    say(`${NAMES[known]} shown`);
  } catch (error) {
    if (now !== turn) return;
    if (error instanceof Refused && error.status === 401) askForToken();
    else main.replaceChildren(el("p", { class: "hint", role: "alert" }, error.message));
  } finally {
    if (now === turn) {
      main.dataset.shown = hash;  // for whoever waits for it: the address alone changes earlier
      main.removeAttribute("aria-busy");
    }
  }
}

async function begin() {
  const given = location.hash.match(/^#token=(.+)$/);
  if (given) {
    keepToken(decodeURIComponent(given[1]));
    history.replaceState(null, "", "/");
  }
  try {
    if (!hasToken() && (await ask("/api/health")).token_needed) return askForToken();
    facts = await ask("/api/model");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) askForToken();
    else main.replaceChildren(el("p", { class: "hint", role: "alert" }, error.message));
    return null;
  }
  setScale(facts.scale);
  document.getElementById("facts").replaceChildren(el("b", {}, facts.name),
    ` · ${count(facts.users)} users · ${count(facts.items)} items${facts.ratings === null ? "" : ` · ${count(facts.ratings)} ratings`} · ${plural(facts.draws, "draw")} · ${facts.verdict}`);
  return show(true);
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => { if (facts) show(); });
begin();
