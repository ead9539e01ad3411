/* Brings the page to life: reads the embedded data, draws each chart once it can be seen, follows theme, size and print. */
(function (root) {
  "use strict";

  const data = JSON.parse(document.getElementById("data").textContent);
  const curves = data.curves;
  const hidden = new Set(["p95", "p50"]);
  const charts = new Map(); // element -> function that draws it again

  /** A time of day; the data's times are already local, so UTC arithmetic must not move them again. */
  root.otelkit.clock = function (time, full) {
    const iso = new Date(time).toISOString();
    if (full) return iso.slice(0, 19).replace("T", " ");
    const span = curves ? curves.t[curves.t.length - 1] - curves.t[0] : 0;
    if (span > 36 * 3600e3)
      return iso.slice(11, 16) === "00:00" ? iso.slice(5, 10) : `${iso.slice(5, 10)} ${iso.slice(11, 16)}`;
    return iso.slice(17, 19) === "00" && span > 600e3 ? iso.slice(11, 16) : iso.slice(11, 19);
  };

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = [
      "ground",
      "raised",
      "ink",
      "muted",
      "line",
      "p99",
      "p95",
      "p50",
      "without",
      "band",
      "load",
      "causal",
      "correlated",
      "unclear",
      "none",
    ];
    const colors = Object.fromEntries(names.map((name) => [name, read(name)]));
    return Object.assign(colors, {
      loadFill: read("load-fill"),
      font: getComputedStyle(document.body).fontFamily,
    });
  }

  /** Draws into an element and remembers how; `make` returns {option, height} for a width. */
  function draw(element, make) {
    if (!element) return;
    const paint = () => {
      const width = element.clientWidth;
      if (!width) return;
      const { option, height } = make(theme(), width);
      if (height) element.style.height = `${height}px`;
      const chart = echarts.getInstanceByDom(element) || echarts.init(element, null, { renderer: "svg" });
      const zoom = (chart.getOption() || {}).dataZoom;
      chart.resize();
      chart.setOption(option, { notMerge: true });
      if (zoom && zoom.length)
        chart.dispatchAction({ type: "dataZoom", start: zoom[0].start, end: zoom[0].end });
    };
    charts.set(element, paint);
    paint();
  }

  const repaint = () => charts.forEach((paint) => paint());

  function legend() {
    const box = document.getElementById("legend");
    if (!box) return;
    const entry = (tag, text, key, color) => {
      const node = document.createElement(tag);
      const sample = document.createElement("i");
      sample.className = `key ${key}`;
      sample.style.color = `var(--${color})`;
      node.append(sample, text);
      box.append(node);
      return node;
    };
    entry("span", "P99", "", "p99");
    if (curves.counterfactual)
      entry("span", `P99 without the causal changes${curves.low ? ", 95 % band" : ""}`, "dashed", "without");
    if (curves.load) entry("span", "load", "area", "load");
    for (const name of ["p95", "p50"]) {
      if (!curves[name]) continue;
      const button = entry("button", name.toUpperCase(), "", name);
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        const show = hidden.has(name);
        if (show) hidden.delete(name);
        else hidden.add(name);
        button.setAttribute("aria-pressed", String(show));
        charts.get(document.getElementById("timeline"))();
      });
    }
  }

  /** The counts above the table show and hide the rows of their verdict. */
  function filters() {
    document.querySelectorAll("#filters button").forEach((button) => {
      button.addEventListener("click", () => {
        const show = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(show));
        document.querySelectorAll(`.verdicts tr[data-verdict="${button.dataset.verdict}"]`).forEach((row) => {
          row.hidden = !show;
        });
      });
    });
  }

  function placeboIn(details) {
    const element = details.querySelector("[data-placebo]");
    if (!element || charts.has(element)) return;
    const key = [...details.classList].find((name) => name.startsWith("v-")).slice(2);
    draw(element, (colors) => ({
      option: root.otelkit.placebo(data.placebos[element.dataset.placebo], colors, colors[key]),
    }));
  }

  legend();
  filters();
  if (curves)
    draw(document.getElementById("timeline"), (colors, width) =>
      root.otelkit.timeline(data, colors, width, hidden),
    );
  if (data.graph)
    draw(document.getElementById("graph"), (colors, width) => root.otelkit.graph(data.graph, colors, width));
  if (data.exemplars.length) {
    draw(document.getElementById("exemplars"), (colors, width) =>
      root.otelkit.exemplars(data.exemplars, colors, width),
    );
  }
  document.querySelectorAll("details").forEach((details) => {
    // Two hundred folded charts cost nothing until one is opened.
    details.addEventListener("toggle", () => details.open && placeboIn(details));
    if (details.open) placeboIn(details);
  });

  let waiting = 0;
  root.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(repaint);
  });
  root.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  root.matchMedia("print").addEventListener("change", repaint);
})(window);
