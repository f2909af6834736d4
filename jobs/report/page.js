"use strict";
// Tooltips of all plots, and the page explorer. Text goes into the page as text, never as markup.

const tip = document.getElementById("tip");
document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  tip.hidden = !mark;
  if (mark) tip.textContent = mark.dataset.tip;
});
document.addEventListener("pointermove", (event) => {
  if (tip.hidden) return;
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const below = event.clientY + 18;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 12 : below}px`;
});

const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

explore(JSON.parse(document.getElementById("paths").textContent), document.querySelector(".explorer"));

function explore(data, root) {
  const part = (role, inside = root) => inside.querySelector(`[data-role=${role}]`);
  const [query, hop, found] = ["query", "hop", "found"].map((role) => part(role));
  const sides = [...root.querySelectorAll(".side")].map((side, place) => ({
    root: side, layout: part("layout", side), said: part("said", side), tiles: part("tiles", side), page: part("page", side),
    index: Math.min(place, data.layouts.length - 1), chosen: -1,
  }));
  if (data.layouts.length < 2) sides.splice(1).forEach((side) => side.root.remove());
  if (!data.queries.length) return root.remove();
  let timer = 0;

  const path = (side) => data.queries[query.value][side.index];
  const lastHop = () => Math.max(0, ...sides.flatMap((side) => [...path(side).reads.map((r) => r[1]), ...path(side).used.map((u) => u[2])]));
  const rightOf = (one) => one.found.filter((f) => f[2]).length;

  data.queries.forEach((paths, number) => {
    const reads = paths.map((one) => one.reads.length).join(" → ");
    query.add(new Option(`${number}: ${reads} pages`, number));
  });
  for (const side of sides) {
    data.layouts.forEach((layout, number) => side.layout.add(new Option(layout.name, number)));
    side.layout.value = side.index;
    side.layout.onchange = () => { side.index = Number(side.layout.value); start(); };
  }
  query.onchange = start;
  hop.oninput = () => { pause(); draw(); };
  root.querySelector("[data-do=before]").onclick = () => turn(-1);
  root.querySelector("[data-do=after]").onclick = () => turn(1);
  const play = root.querySelector("[data-do=play]");
  play.onclick = () => {
    if (timer) return pause();
    if (hop.value === hop.max) hop.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => { hop.stepUp(); draw(); if (hop.value === hop.max) pause(); }, 450);
    draw();
  };

  function pause() { clearInterval(timer); timer = 0; play.textContent = "Play"; }
  function turn(step) {
    const count = data.queries.length;
    query.value = (Number(query.value) + step + count) % count;
    start();
  }
  function start() {
    pause();
    hop.max = lastHop();
    hop.value = hop.max;
    for (const side of sides) side.chosen = -1;
    draw();
  }

  function draw() {
    const now = Number(hop.value);
    for (const side of sides) {
      const one = path(side), layout = data.layouts[side.index];
      side.root.className = `side ${layout.style}`;
      side.tiles.replaceChildren(tilesOf(side, one, layout, now));
      const read = one.reads.filter((r) => r[1] <= now).length;
      const used = one.used.filter((u) => u[2] <= now).length;
      const right = one.found.filter((f) => f[2] && f[0] >= 0 && one.reads[f[0]][1] <= now).length;
      const end = now === Number(hop.max) ? "at the end" : `after hop ${now}`;
      side.said.textContent = `${end}: ${plural(read, "page")} read, ${plural(used, "vertex").replace("vertexs", "vertices")} expanded, ` +
        `${right} of ${rightOf(one)} right answers at hand`;
      side.page.textContent = side.chosen < 0 ? "Choose a page to see what was on it." : tell(one, layout, side.chosen);
    }
    found.replaceChildren(progress(now));
  }

  function tell(one, layout, place) {
    const [page, at] = one.reads[place];
    const used = one.used.filter((u) => u[0] === place);
    const right = one.found.filter((f) => f[0] === place && f[2]).length;
    const nearest = Math.min(...used.map((u) => u[3]).filter((d) => d !== null));
    return `Page ${page.toLocaleString("en")}: read ${place + 1} of ${one.reads.length}, hop ${at}; ${used.length} of ${layout.nodes} ` +
      `nodes expanded${Number.isFinite(nearest) ? `, the nearest at ${nearest.toLocaleString("en")}` : ""}; ${plural(right, "right answer")}`;
  }

  function tilesOf(side, one, layout, now) {
    const columns = Math.max(1, Math.round(Math.sqrt(layout.nodes * 0.6))), rows = Math.ceil(layout.nodes / columns);
    const room = side.tiles.clientWidth / (lastHop() + 1) - 12;
    const cell = Math.max(layout.nodes > 1 ? 5 : 12, Math.min(layout.nodes > 1 ? 11 : 26, Math.floor(room / columns)));
    const width = columns * cell + 5, height = rows * cell + 5;
    const hops = lastHop(), step = width + 6, high = new Map();
    const places = one.reads.map(([, at]) => { const y = high.get(at) ?? 0; high.set(at, y + 1); return [at * step, y * (height + 5)]; });
    const most = Math.max(1, ...sides.flatMap((other) => [...count(path(other).reads)]));
    const total = { width: (hops + 1) * step, height: most * (height + 5) + 18 };
    const picture = svg("svg", { width: total.width, height: total.height, viewBox: `-2 -2 ${total.width + 4} ${total.height + 4}` });
    picture.append(svg("rect", { class: "now", x: now * step - 3, y: -2, width: step, height: total.height + 2, rx: 4 }));
    one.reads.forEach(([, at], place) => {
      const [x, y] = places[place];
      const tile = svg("g", { class: `tile${at > now ? " later" : ""}${side.chosen === place ? " chosen" : ""}`, transform: `translate(${x} ${y})` });
      tile.dataset.tip = tell(one, layout, place);
      tile.dataset.read = place;
      tile.append(svg("rect", { class: "page mark", width, height, rx: 3 }));
      const kinds = new Map(), cores = new Set();
      for (const [of, which, when] of one.used) if (of === place && when <= now) kinds.set(which, "used");
      for (const [of, which, right] of one.found) if (of === place && right && at <= now) { cores.add(which); kinds.set(which, `found ${kinds.get(which) ?? ""}`); }
      for (let i = 0; i < layout.nodes; i++) {
        const left = 3 + (i % columns) * cell, top = 3 + Math.floor(i / columns) * cell;
        tile.append(svg("rect", { class: `cell ${kinds.get(i) ?? ""}`, x: left, y: top, width: cell - 1, height: cell - 1, rx: 1 }));
        if (cores.has(i)) tile.append(svg("circle", { class: "core", cx: left + (cell - 1) / 2, cy: top + (cell - 1) / 2, r: cell * 0.42 }));
      }
      tile.onclick = () => { side.chosen = side.chosen === place ? -1 : place; draw(); };
      picture.append(tile);
    });
    for (let h = 0; h <= hops; h += hops > 24 ? 5 : 1)
      picture.append(svg("text", { class: "hop-name mid", x: h * step + width / 2, y: total.height - 4 }, String(h)));
    return picture;
  }
  function count(reads) {
    const high = new Map();
    for (const [, at] of reads) high.set(at, (high.get(at) ?? 0) + 1);
    return high.values();
  }

  function progress(now) {
    const [w, h, left, bottom, top] = [1000, 200, 40, 38, 24];
    const most = Math.max(1, ...sides.map((side) => path(side).reads.length));
    const x = (pages) => left + (pages / most) * (w - left - 12), y = (right) => h - bottom - (right / data.k) * (h - bottom - top);
    const picture = svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "Right answers at hand against pages read" });
    for (const t of new Set([0, Math.round(data.k / 2), data.k])) {
      picture.append(svg("line", { class: "grid", x1: left, x2: w - 12, y1: y(t), y2: y(t) }));
      picture.append(svg("text", { class: "tick end", x: left - 8, y: y(t) + 4 }, String(t)));
    }
    const step = [1, 2, 5, 10, 20, 50, 100].find((s) => most / s <= 14) ?? 200;
    for (let t = 0; t <= most; t += step) picture.append(svg("text", { class: "tick mid", x: x(t), y: h - bottom + 18 }, String(t)));
    picture.append(svg("text", { class: "label mid", x: (left + w) / 2, y: h - 3 }, "pages read"));
    picture.append(svg("text", { class: "label", x: 0, y: 11 }, "right answers at hand"));
    for (const side of sides) {
      const one = path(side), gains = new Array(one.reads.length + 1).fill(0);
      for (const [of, , right] of one.found) if (right && of >= 0) gains[of + 1]++;
      let right = 0, points = "", mark = [x(0), y(0)];
      gains.forEach((gain, pages) => {
        if (pages) points += ` ${x(pages)},${y(right)}`;
        right += gain;
        points += ` ${x(pages)},${y(right)}`;
        if (pages === 0 || one.reads[pages - 1][1] <= now) mark = [x(pages), y(right)];
      });
      const style = data.layouts[side.index].style;
      picture.append(svg("polyline", { class: `line ${style}`, points }));
      picture.append(svg("circle", { class: `dot ${style}`, cx: mark[0], cy: mark[1], r: 5 }));
    }
    return picture;
  }

  start();
}
