/* P99 over time with its counterfactual, the changes marked above it, load under it on the same time axis. */
(function (root) {
  "use strict";

  const { LANE, EDGE, STEM, place, lanesNeeded, measured, drawMark } = root.otelkit.marks;
  const LOAD_HEIGHT = 84;

  /** Where each grid lies, for a chart of that width. */
  function layout(width, lanes, hasLoad) {
    const narrow = width < 560;
    const left = narrow ? 44 : 56;
    const right = narrow ? 10 : 18;
    const strip = { top: 4, height: Math.max(1, lanes) * LANE };
    const p99 = { top: strip.top + strip.height + STEM, height: narrow ? 210 : 290 };
    const load = { top: p99.top + p99.height + 34, height: LOAD_HEIGHT };
    const bottom = hasLoad ? load.top + load.height : p99.top + p99.height;
    return { narrow, left, right, strip, p99, load, slider: bottom + 30, total: bottom + 62 };
  }

  /** [time, value] pairs; null makes a gap in the line. */
  function pairs(times, values) {
    return times.map((time, i) => [time, values[i]]);
  }

  function bandSeries(curves, theme) {
    const { t, low, high } = curves;
    if (!low || !high) return [];
    // Runs of known points, each one polygon: a stacked area would draw a gap as a drop to zero.
    const runs = [];
    let run = [];
    t.forEach((_, i) => {
      if (low[i] !== null && high[i] !== null) run.push(i);
      else if (run.length) (runs.push(run), (run = []));
    });
    if (run.length) runs.push(run);
    return [
      {
        id: "band",
        type: "custom",
        xAxisIndex: 1,
        yAxisIndex: 1,
        silent: true,
        clip: true,
        z: 1,
        encode: { x: 0, y: [1, 2] },
        data: runs.map((indices) => {
          const highest = Math.max(...indices.map((i) => high[i]));
          const lowest = Math.min(...indices.map((i) => low[i]));
          return [t[indices[0]], lowest, highest];
        }),
        renderItem: (params, api) => {
          const indices = runs[params.dataIndex];
          const upper = indices.map((i) => api.coord([t[i], high[i]]));
          const lower = indices.map((i) => api.coord([t[i], low[i]])).reverse();
          return { type: "polygon", shape: { points: upper.concat(lower) }, style: { fill: theme.band } };
        },
      },
    ];
  }

  function line(id, name, values, curves, style, extra) {
    return Object.assign(
      {
        id,
        name,
        type: "line",
        xAxisIndex: 1,
        yAxisIndex: 1,
        data: pairs(curves.t, values),
        showSymbol: false,
        connectNulls: false,
        animation: false,
        lineStyle: style,
        itemStyle: { color: style.color },
        emphasis: { disabled: true },
        z: 3,
      },
      extra,
    );
  }

  /** The changes as lines and rollout areas inside a plot; where there are many, only those that moved P99 stand out. */
  function changeLines(marks, theme) {
    const faint = marks.length > 24 ? 0.2 : 0.8;
    return {
      markLine: {
        silent: true,
        symbol: "none",
        animation: false,
        label: { show: false },
        data: marks.map((mark) => ({
          xAxis: mark.from,
          lineStyle: {
            color: theme[mark.verdict],
            width: mark.verdict === "causal" ? 1.5 : 1,
            type: mark.verdict === "causal" ? "solid" : "dashed",
            opacity: mark.verdict === "causal" ? 0.9 : mark.verdict === "none" ? faint / 2 : faint,
          },
        })),
      },
      markArea: {
        silent: true,
        animation: false,
        data: marks
          .filter((mark) => mark.to > mark.from)
          .map((mark) => [
            { xAxis: mark.from, itemStyle: { color: theme[mark.verdict], opacity: 0.12 } },
            { xAxis: mark.to },
          ]),
      },
    };
  }

  function format(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return "no data";
    return Math.abs(value) >= 10 ? String(Math.round(value)) : value.toFixed(Math.abs(value) >= 1 ? 1 : 2);
  }

  /** The tooltip as nodes, never as HTML text: what data says is not markup. */
  function tooltip(curves, marks, hidden) {
    return (parameters) => {
      const list = Array.isArray(parameters) ? parameters : [parameters];
      if (!list.length) return "";
      const i = nearest(curves.t, list[0].axisValue);
      const box = document.createElement("div");
      const add = (text, strong) => {
        const row = document.createElement(strong ? "strong" : "div");
        row.textContent = text;
        box.append(row);
      };
      add(root.otelkit.clock(curves.t[i], true), true);
      add(`P99 ${format(curves.p99[i])} ms`);
      if (curves.counterfactual && curves.counterfactual[i] !== null) {
        const band =
          curves.low && curves.low[i] !== null
            ? ` [${format(curves.low[i])}, ${format(curves.high[i])}]`
            : "";
        add(`without the causal changes ${format(curves.counterfactual[i])} ms${band}`);
      }
      if (curves.p95 && !hidden.has("p95")) add(`P95 ${format(curves.p95[i])} ms`);
      if (curves.p50 && !hidden.has("p50")) add(`P50 ${format(curves.p50[i])} ms`);
      if (curves.load) add(`${curves.loadName} ${format(curves.load[i])}`);
      const reach = (curves.t[curves.t.length - 1] - curves.t[0]) / 150;
      const near = marks.filter((mark) => Math.abs(mark.from - curves.t[i]) <= reach);
      near.slice(0, 4).forEach((mark) => add(`${mark.n}  ${mark.label}: ${mark.word}`));
      if (near.length > 4) add(`and ${near.length - 4} more changes`);
      return box;
    };
  }

  function nearest(times, time) {
    let low = 0;
    let high = times.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle;
      else high = middle;
    }
    return time - times[low] <= times[high] - time ? low : high;
  }

  /** The chart's option, and the height it needs, for a width and a set of curves switched off. */
  root.otelkit.timeline = function (data, theme, width, hidden) {
    const curves = data.curves;
    const first = Math.min(curves.t[0], ...data.marks.map((mark) => mark.from));
    const last = Math.max(curves.t[curves.t.length - 1], ...data.marks.map((mark) => mark.from));
    const sketch = layout(width, 1, Boolean(curves.load));
    const marks = measured(data.marks, sketch.narrow, theme.font);
    const inner = width - sketch.left - sketch.right;
    const xOf = (time) => sketch.left + (inner * (time - first)) / Math.max(1, last - first);
    const end = width - sketch.right + EDGE;
    const lanes = lanesNeeded(marks, xOf, sketch.left, end);
    const at = layout(width, lanes, Boolean(curves.load));
    const lines = changeLines(marks, theme);

    const timeAxis = (gridIndex, labels) => ({
      type: "time",
      gridIndex,
      min: first,
      max: last,
      axisLine: { show: labels, lineStyle: { color: theme.line } },
      axisTick: { show: labels, lineStyle: { color: theme.line } },
      axisLabel: {
        show: labels,
        color: theme.muted,
        fontSize: 12,
        hideOverlap: true,
        formatter: (time) => root.otelkit.clock(time, false),
      },
      splitLine: { show: false },
      axisPointer: {
        show: gridIndex > 0,
        label: { show: false },
        lineStyle: { color: theme.muted, type: "solid", width: 1 },
      },
    });
    const valueAxis = (gridIndex, name, splits) => ({
      type: "value",
      gridIndex,
      name,
      nameLocation: "end",
      nameGap: 8,
      nameTextStyle: { color: theme.muted, fontSize: 12, align: "left", padding: [0, 0, 0, -at.left + 6] },
      min: 0,
      splitNumber: splits,
      axisLabel: { color: theme.muted, fontSize: 12 },
      splitLine: { lineStyle: { color: theme.line, opacity: 0.7 } },
    });

    const series = [
      {
        id: "changes",
        type: "custom",
        xAxisIndex: 0,
        yAxisIndex: 0,
        clip: false,
        silent: true,
        data: marks.map((mark) => [mark.from, 0]),
        renderItem: (params, api) => {
          if (!params.context.placed) {
            params.context.placed = place(marks, (time) => api.coord([time, 0])[0], at.left, end, lanes);
          }
          const mark = marks[params.dataIndex];
          const spot = params.context.placed.get(mark.n);
          return spot && drawMark(mark, spot, at.strip, theme);
        },
      },
      ...bandSeries(curves, theme),
      line(
        "p99",
        "P99",
        curves.p99,
        curves,
        { color: theme.p99, width: 1.8 },
        Object.assign({ z: 5 }, lines),
      ),
    ];
    if (curves.counterfactual) {
      series.push(
        line(
          "counterfactual",
          "without",
          curves.counterfactual,
          curves,
          { color: theme.without, width: 1.6, type: [5, 4] },
          { z: 4 },
        ),
      );
    }
    if (curves.p95 && !hidden.has("p95"))
      series.push(line("p95", "P95", curves.p95, curves, { color: theme.p95, width: 1.2 }));
    if (curves.p50 && !hidden.has("p50"))
      series.push(line("p50", "P50", curves.p50, curves, { color: theme.p50, width: 1.2 }));
    if (curves.load) {
      series.push(
        line(
          "load",
          "load",
          curves.load,
          curves,
          { color: theme.load, width: 1.2 },
          Object.assign(
            { xAxisIndex: 2, yAxisIndex: 2, areaStyle: { color: theme.loadFill } },
            { markLine: lines.markLine },
          ),
        ),
      );
    }

    const axes = curves.load ? [0, 1, 2] : [0, 1];
    const option = {
      animation: false,
      useUTC: true,
      textStyle: { fontFamily: theme.font },
      grid: [at.strip, at.p99, at.load].slice(0, axes.length).map((grid) => ({
        left: at.left,
        right: at.right,
        top: grid.top,
        height: grid.height,
      })),
      xAxis: axes.map((index) => timeAxis(index, index === axes.length - 1)),
      yAxis: [
        { gridIndex: 0, type: "value", show: false, min: 0, max: 1 },
        valueAxis(1, "latency, ms", 5),
        valueAxis(2, curves.loadName, 2),
      ].slice(0, axes.length),
      axisPointer: { link: [{ xAxisIndex: "all" }] },
      tooltip: {
        trigger: "axis",
        confine: true,
        formatter: tooltip(curves, marks, hidden),
        backgroundColor: theme.ground,
        borderColor: theme.line,
        textStyle: { color: theme.ink, fontSize: 13 },
      },
      dataZoom: [
        {
          type: "slider",
          xAxisIndex: axes,
          filterMode: "none",
          top: at.slider,
          left: at.left,
          right: at.right,
          height: 20,
          showDataShadow: false,
          brushSelect: false,
          borderColor: theme.line,
          fillerColor: theme.loadFill,
          backgroundColor: theme.raised,
          handleStyle: { color: theme.ground, borderColor: theme.muted },
          moveHandleSize: 0,
          labelFormatter: (time) => root.otelkit.clock(time, false),
          textStyle: { color: theme.muted },
        },
      ],
      series,
    };
    return { option, height: at.total };
  };
})(window);
