"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const data = JSON.parse(byId("data").textContent);
  const bytesOf = (text) => {
    const characters = atob(text);
    const bytes = new Uint8Array(characters.length);
    for (let i = 0; i < bytes.length; i += 1) bytes[i] = characters.charCodeAt(i);
    return bytes;
  };
  const OPEN = -Infinity;

  /* ---- figures: the page's colours are theirs, and they are drawn one by one so that the page can be read meanwhile ---- */
  const plots = [...document.querySelectorAll(".plot")].map((node) => ({ node, spec: data.figures[node.dataset.key] }));
  const touch = matchMedia("(pointer: coarse)").matches;
  const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  const themed = (layout) => {
    const style = getComputedStyle(root);
    const [text, grid, line, card] = ["--text", "--grid", "--line", "--card"].map((name) => style.getPropertyValue(name).trim());
    const copy = { ...layout, font: { ...layout.font, color: text }, modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: text } };
    copy.hoverlabel = { ...layout.hoverlabel, bgcolor: card, bordercolor: line, font: { color: text } };
    if (touch) copy.dragmode = false;
    if (innerWidth < 560) copy.font.size = 11;
    for (const key of Object.keys(copy).filter((name) => /^[xy]axis\d*$/.test(name))) {
      copy[key] = { ...copy[key], gridcolor: grid, zerolinecolor: line, linecolor: line, tickcolor: line };
    }
    return copy;
  };
  const draw = ({ node, spec }) => Plotly.react(node, spec.data, themed(spec.layout), options);
  const drawn = () => plots.filter(({ node }) => node.dataset.done);
  const setTheme = (name) => {
    root.dataset.theme = name;
    drawn().forEach(draw);
  };
  const unpack = async () => {
    const packed = new Blob([bytesOf(byId("plotly").textContent)]).stream();
    const source = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).text();
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
  };
  const failed = ({ node }, words) => {
    node.classList.add("failed");
    node.textContent = words;
    root.dataset.drawn = "failed";
  };
  const drawAll = async () => {
    try {
      await unpack();
    } catch (fault) {
      plots.forEach((plot) => failed(plot, `This browser cannot draw the figure (${fault.message}); one from 2023 or later can.`));
      return;
    }
    const faults = [];
    for (const plot of plots) {
      try {
        await draw(plot);
        plot.node.dataset.done = "true";
      } catch (fault) {
        faults.push([plot, `This figure could not be drawn (${fault.message}).`]);
      }
      await new Promise((resolve) => { setTimeout(resolve, 0); });
    }
    performance.mark("drawn");
    if (faults.length) faults.forEach((fault) => failed(...fault));
    else root.dataset.drawn = "true";
  };

  /* ---- theme and paper ---- */
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  byId("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open])")] };
    before.closed.filter(({ id }) => id !== "json").forEach((node) => { node.open = true; });
    root.dataset.theme = "light";
    drawn().forEach(({ node, spec }) => {
      const size = { width: 660, height: 0.85 * spec.layout.height };
      Plotly.react(node, spec.data, { ...themed(spec.layout), ...size }, { ...options, responsive: false });
    });
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    before.closed.forEach((node) => { node.open = false; });
    setTheme(before.theme);
    before = null;
  });

  /* ---- the doors ---- */
  const floats = (text) => new Float64Array(bytesOf(text).buffer);
  const rows = {
    id: floats(data.table.s_id), ood: floats(data.table.s_ood), kind: bytesOf(data.table.kind),
    weight: data.table.weight ? floats(data.table.weight) : null,
  };
  const CORRECT = 0, WRONG = 1, STEPS = 1000;
  const sorted = { id: rows.id.filter(Number.isFinite).sort(), ood: rows.ood.filter(Number.isFinite).sort() };
  const tau = { id: OPEN, ood: OPEN };
  const valueAt = (role, step) => {
    const scores = sorted[role];
    if (step === 0 || !scores.length) return OPEN;
    return scores[Math.min(scores.length - 1, Math.floor((step * scores.length) / STEPS))];
  };
  const below = (role, value) => {
    const scores = sorted[role];
    let low = 0, high = scores.length;
    while (low < high) { const mid = (low + high) >> 1; if (scores[mid] < value) low = mid + 1; else high = mid; }
    return scores.length ? low / scores.length : 0;
  };
  const count = () => {
    const c = { ta: 0, fa_id: 0, fa_ood: 0, n_id: 0 };
    for (let i = 0; i < rows.kind.length; i += 1) {
      const weight = rows.weight ? rows.weight[i] : 1;
      const kind = rows.kind[i];
      if (kind <= WRONG) c.n_id += weight;
      const finite = Number.isFinite(rows.id[i]) && Number.isFinite(rows.ood[i]);
      if (!finite || rows.id[i] < tau.id || rows.ood[i] < tau.ood) continue;
      if (kind === CORRECT) c.ta += weight; else if (kind === WRONG) c.fa_id += weight; else c.fa_ood += weight;
    }
    c.accepted = c.ta + c.fa_id + c.fa_ood;
    c.fr = c.n_id - c.ta;
    c.precision = c.accepted > 0 ? c.ta / c.accepted : 0;
    c.recall = c.ta / c.n_id;
    c.f1 = (2 * c.ta) / (c.accepted + c.n_id);
    c.risk = c.accepted > 0 ? (c.fa_id + c.fa_ood) / c.accepted : null;
    c.coverage = (c.ta + c.fa_id) / c.n_id;
    return c;
  };
  const COUNTS = ["ta", "fa_id", "fa_ood", "fr", "accepted"], RATES = ["precision", "recall", "f1", "risk", "coverage"];
  const plain = new Intl.NumberFormat("en", { maximumFractionDigits: data.table.sampled ? 0 : 3 });
  const policy = () => JSON.stringify({
    schema_version: 1, method: "manual", tau_id: tau.id === OPEN ? null : tau.id, tau_ood: tau.ood === OPEN ? null : tau.ood,
    scores: data.policy.scores, bundle: data.policy.bundle, note: "Chosen by hand in a report; it carries no evidence.",
  }, null, 2);
  const showCounts = () => {
    const c = count();
    for (const key of [...COUNTS, ...RATES]) {
      const node = byId(`live-${key}`);
      const known = c[key] !== null && Number.isFinite(c[key]);
      node.dataset.value = known ? String(c[key]) : "";
      node.textContent = known ? (COUNTS.includes(key) ? plain.format(c[key]) : c[key].toFixed(4)) : "–";
    }
    const risk = c.risk === null ? "and accepts nothing" : `with ${(100 * c.risk).toFixed(2)} % of the accepted wrong`;
    byId("live-words").textContent = `Covers ${(100 * c.coverage).toFixed(1)} % of in-distribution, ${risk}.`;
    byId("policy-json").value = policy();
  };
  const plane = document.querySelector('.plot[data-key="plane"]');
  let waiting = false;
  const moveDoors = () => {
    if (!plane || !plane.dataset.done || waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const spec = data.figures.plane.layout;
      const left = Math.max(tau.id, spec.xaxis.range[0]), bottom = Math.max(tau.ood, spec.yaxis.range[0]);
      Plotly.relayout(plane, {
        "shapes[0].x0": Math.min(left, spec.xaxis.range[1]), "shapes[0].y0": Math.min(bottom, spec.yaxis.range[1]),
        "shapes[1].x0": left, "shapes[1].x1": left, "shapes[1].visible": tau.id !== OPEN && tau.id !== data.policy.tau_id,
        "shapes[2].y0": bottom, "shapes[2].y1": bottom, "shapes[2].visible": tau.ood !== OPEN && tau.ood !== data.policy.tau_ood,
      });
    });
  };
  const set = (role, value, step) => {
    const slide = byId(`slide-${role}`);
    const share = below(role, value);
    tau[role] = value;
    slide.value = String(step ?? (value === OPEN ? 0 : Math.ceil(share * STEPS)));
    slide.setAttribute("aria-valuetext", value === OPEN ? "open" : `${(100 * share).toFixed(1)} % of samples below`);
    byId(`tau-${role}`).value = value === OPEN ? "" : String(value);
    byId(`tau-${role}`).setAttribute("aria-invalid", "false");
  };
  const refresh = () => { showCounts(); moveDoors(); };
  for (const role of ["id", "ood"]) {
    byId(`slide-${role}`).addEventListener("input", (event) => {
      const step = Number(event.target.value);
      set(role, valueAt(role, step), step);
      refresh();
    });
    byId(`tau-${role}`).addEventListener("change", (event) => {
      const words = event.target.value.trim();
      const value = words === "" || words === "open" ? OPEN : Number(words);
      const wrong = Number.isNaN(value) || value === Infinity;
      event.target.setAttribute("aria-invalid", String(wrong));
      if (wrong) return;
      set(role, value);
      refresh();
    });
  }
  const both = (pair) => {
    set("id", pair.tau_id === null ? OPEN : pair.tau_id);
    set("ood", pair.tau_ood === null ? OPEN : pair.tau_ood);
    refresh();
  };
  byId("reset").addEventListener("click", () => both(data.policy));
  byId("best").addEventListener("click", () => both(data.best));
  byId("copy").addEventListener("click", async () => {
    const area = byId("policy-json");
    let done = true;
    try {
      await navigator.clipboard.writeText(area.value);
    } catch {
      byId("json").open = true;
      area.select();
      done = document.execCommand("copy");
    }
    byId("copied").textContent = done ? "Copied." : "Copy the selected text.";
  });
  both(data.policy);
  await drawAll();
})();
