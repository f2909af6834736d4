"use strict";
// Charts with their tooltips, and the page explorer. Text goes into the page as text, never as markup.

const tip = document.getElementById("tip");
const say = (text) => { tip.hidden = !text; tip.textContent = text ?? ""; };
document.addEventListener("pointermove", (event) => {
  if (tip.hidden) return;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 18;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 12 : below}px`;
});

// How charts look; labels of an axis take at most 0.4 of the chart's width.
const theme = (width) => ({
  background: null, font: getComputedStyle(document.body).fontFamily, view: { stroke: null }, legend: { disable: true },
  axis: {
    labelColor: "var(--soft)", titleColor: "var(--ink)", gridColor: "var(--line)", domainColor: "var(--soft)", tickColor: "var(--soft)",
    labelFontSize: 13, titleFontSize: 13, titleFontWeight: "normal", titlePadding: 8, labelLimit: Math.min(220, 0.4 * width), labelSeparation: 6,
  },
  text: { fontSize: 13, color: "var(--soft)" }, rule: { color: "var(--ink)" }, line: { strokeWidth: 2.2, strokeJoin: "round", strokeCap: "round" },
});
// Draws the chart that an element holds the specification of. Without `ast` and `expr`, Vega would make code of text.
// A chart that cannot be drawn, now or later, is replaced by a sentence; then nothing is returned.
function drawn(place, elsewhere = "its values are in the tables") {
  const fail = (error) => {
    console.error(error);
    place.textContent = `This chart could not be drawn; ${elsewhere}.`;
  };
  try {
    const { spec } = vegaLite.compile(JSON.parse(place.textContent), { config: theme(place.clientWidth) });
    const view = new vega.View(vega.parse(spec, null, { ast: true }), {
      expr: vegaInterpreter.expressionInterpreter, container: place, renderer: "svg", tooltip: (handler, event, item, text) => say(text),
    });
    view.error = fail; // where Vega would only log it
    return view.run();
  } catch (error) { fail(error); }
}

const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

for (const place of document.querySelectorAll(".chart:not([data-role])")) drawn(place);
explore(JSON.parse(document.getElementById("paths").textContent), document.querySelector(".explorer"));

function explore(data, root) {
  const part = (role, inside = root) => inside.querySelector(`[data-role=${role}]`);
  const query = part("query"), reads = part("reads"), play = root.querySelector("[data-do=play]");
  const sides = [...root.querySelectorAll(".side")].map((side, place) => ({
    root: side, layout: part("layout", side), said: part("said", side), tiles: part("tiles", side), page: part("page", side),
    index: Math.min(place, data.layouts.length - 1), chosen: -1, at: 0, // of its reads: looked at, and reached by Tab
  }));
  if (data.layouts.length < 2) sides.splice(1).forEach((side) => side.root.remove());
  if (!data.queries.length) return root.remove();
  const found = drawn(part("found"), "the lines above count the right answers at hand");
  let timer = 0;

  const path = (side) => data.queries[query.value][side.index];
  const rightOf = (one) => one.found.filter((f) => f[2]).length;
  const rightBy = (one, done) => one.found.filter((f) => f[2] && f[0] >= 0 && f[0] < done).length;
  const usedBy = (one, done) => one.used.filter((u) => u[2] <= done);
  const hopsOf = (one) => one.reads.map((read) => read[1]);

  data.queries.forEach((paths, number) => {
    query.add(new Option(`${number}: ${paths.map((one) => one.reads.length).join(" → ")} pages`, number));
  });
  for (const side of sides) {
    data.layouts.forEach((layout, number) => side.layout.add(new Option(layout.name, number)));
    side.layout.value = side.index;
    side.layout.onchange = () => { side.index = Number(side.layout.value); start(); };
    side.tiles.onpointerover = (event) => say(event.target.closest("[data-tip]")?.dataset.tip);
    side.tiles.onpointerleave = () => say();
    side.tiles.onkeydown = (event) => walk(side, event);
  }
  query.onchange = start;
  reads.oninput = () => { pause(); draw(); };
  root.querySelector("[data-do=before]").onclick = () => turn(-1);
  root.querySelector("[data-do=after]").onclick = () => turn(1);
  play.onclick = () => {
    if (timer) return pause();
    if (reads.value === reads.max) reads.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => { reads.stepUp(); if (reads.value === reads.max) pause(); draw(); }, 160);
    speak();
    draw();
  };

  function pause() { clearInterval(timer); timer = 0; play.textContent = "Play"; speak(); }
  // While it plays, a screen reader would speak of every read; it is told of the last one instead.
  function speak() { for (const side of sides) side.said.setAttribute("aria-live", timer ? "off" : "polite"); }
  function turn(step) {
    const count = data.queries.length;
    query.value = (Number(query.value) + step + count) % count;
    start();
  }
  function start() {
    pause();
    reads.max = Math.max(...sides.map((side) => path(side).reads.length));
    reads.value = reads.max;
    for (const side of sides) [side.chosen, side.at] = [-1, 0];
    draw();
  }

  // Arrow keys go from read to read, in the order of reading; what was on the page is shown as they go.
  function walk(side, event) {
    const last = path(side).reads.length - 1;
    const to = { ArrowLeft: side.at - 1, ArrowUp: side.at - 1, ArrowRight: side.at + 1, ArrowDown: side.at + 1, Home: 0, End: last }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") choose(side, side.at);
    else if (event.key === "Escape") choose(side, -1);
    else if (Number.isInteger(to)) look(side, Math.min(Math.max(to, 0), last));
    else return;
    event.preventDefault();
  }
  function choose(side, place) { look(side, place === side.chosen ? -1 : place); }
  function look(side, place) {
    side.chosen = place;
    if (place >= 0) side.at = place;
    draw();
    side.tiles.querySelector("[tabindex='0']")?.focus();
  }

  // Everything as it is after so many reads of each side.
  function draw() {
    const now = Number(reads.value);
    reads.setAttribute("aria-valuetext", `after ${plural(now, "read")}`);
    for (const side of sides) {
      const one = path(side), layout = data.layouts[side.index], done = Math.min(now, one.reads.length);
      side.root.className = `side ${layout.style}`;
      const focused = side.tiles.contains(document.activeElement);
      side.tiles.replaceChildren(tilesOf(side, one, layout, done));
      side.tiles.setAttribute("aria-label", `Pages read in ${layout.name}, in the order of reading`);
      if (focused) side.tiles.querySelector("[tabindex='0']")?.focus();
      const used = usedBy(one, done).length;
      const right = rightBy(one, done);
      side.said.textContent = `${done} of ${plural(one.reads.length, "page")} read, ${used === 1 ? "1 vertex" : `${used} vertices`} expanded, ` +
        `${right} of ${plural(rightOf(one), "right answer")} at hand`;
      side.page.textContent = side.chosen < 0 ? "Choose a page to see what was on it." : tell(one, layout, side.chosen);
    }
    found?.data("steps", sides.flatMap(stepsOf)).signal("most", Number(reads.max)).signal("done", now).description(chartLabel(now)).run();
  }

  function tell(one, layout, place) {
    const [page, at] = one.reads[place];
    const used = one.used.filter((u) => u[0] === place);
    const right = one.found.filter((f) => f[0] === place && f[2]).length;
    const nearest = Math.min(...used.map((u) => u[3]).filter((d) => d !== null));
    return `Page ${page.toLocaleString("en")}: read ${place + 1} of ${one.reads.length}, hop ${at}; ${used.length} of ${layout.nodes} ` +
      `nodes expanded${Number.isFinite(nearest) ? `, the nearest at ${nearest.toLocaleString("en")}` : ""}; ${plural(right, "right answer")}`;
  }

  function tilesOf(side, one, layout, done) {
    const all = sides.map((other) => hopsOf(path(other))), first = Math.min(...all.flat()), last = Math.max(...all.flat());
    const most = Math.max(...all.map((hops) => Math.max(...hops.map((h) => hops.filter((other) => other === h).length))));
    const columns = Math.max(1, Math.round(Math.sqrt(layout.nodes * 0.6))), rows = Math.ceil(layout.nodes / columns);
    const room = side.tiles.clientWidth / (last - first + 1) - 12;
    const cell = Math.max(layout.nodes > 1 ? 5 : 12, Math.min(layout.nodes > 1 ? 11 : 26, Math.floor(room / columns)));
    const width = columns * cell + 5, height = rows * cell + 5, step = width + 6;
    const total = { width: (last - first + 1) * step, height: most * (height + 5) + 18 };
    const picture = svg("svg", { width: total.width, height: total.height, viewBox: `-2 -2 ${total.width + 4} ${total.height + 4}`, role: "none" });
    if (done) picture.append(svg("rect", { class: "now", x: (one.reads[done - 1][1] - first) * step - 3, y: -2, width: step, height: total.height + 2, rx: 4 }));
    const high = new Map();
    one.reads.forEach(([, at], place) => {
      const y = high.get(at) ?? 0;
      high.set(at, y + 1);
      const tile = svg("g", {
        class: `tile${place >= done ? " later" : ""}${side.chosen === place ? " chosen" : ""}`,
        transform: `translate(${(at - first) * step} ${y * (height + 5)})`,
        role: "option", tabindex: side.at === place ? 0 : -1, "aria-selected": side.chosen === place, "aria-label": tell(one, layout, place),
      }, svg("rect", { class: "page", width, height, rx: 3 }));
      tile.dataset.tip = tell(one, layout, place);
      const used = new Set(usedBy(one, done).filter((u) => u[0] === place).map((u) => u[1]));
      const right = new Set(one.found.filter((f) => f[0] === place && f[2] && place < done).map((f) => f[1]));
      for (let i = 0; i < layout.nodes; i++) {
        const x = 3 + (i % columns) * cell, top = 3 + Math.floor(i / columns) * cell, size = cell - 1;
        tile.append(svg("rect", { class: `cell${used.has(i) ? " used" : ""}${right.has(i) ? " right" : ""}`, x, y: top, width: size, height: size, rx: 1 }));
        if (right.has(i)) tile.append(svg("circle", { class: "core", cx: x + size / 2, cy: top + size / 2, r: cell * 0.32 }));
      }
      tile.onclick = () => choose(side, place);
      picture.append(tile);
    });
    for (let hop = first; hop <= last; hop += last - first > 24 ? 5 : 1)
      picture.append(svg("text", { class: "hop-name", "aria-hidden": "true", x: (hop - first) * step + width / 2, y: total.height - 4 }, String(hop)));
    return picture;
  }

  function chartLabel(now) {
    const all = sides.map((side) => standing(side, Math.min(now, path(side).reads.length)));
    return `Right answers at hand against pages read: ${all.join("; ")}`;
  }
  function standing(side, done) {
    const one = path(side);
    return `${data.layouts[side.index].name} ${rightBy(one, done)} of ${rightOf(one)} after ${plural(done, "page")}`;
  }
  // What the chart shows of a side: its right answers after each number of reads.
  function stepsOf(side, number) {
    const one = path(side), last = one.reads.length, colour = `var(--${data.layouts[side.index].style})`;
    return Array.from({ length: last + 1 }, (_, pages) => (
      { side: number, pages, right: rightBy(one, pages), last, colour, tip: standing(side, pages) }
    ));
  }

  start();
}
