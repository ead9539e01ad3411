/* One function a kind of panel; each takes the place to draw in, the panel and the page's data. */
(function (root) {
  "use strict";
  const { format, colour, palette } = root.preview;
  const INK = "#24292e", MUTED = "#6e7781", LINE = "#e3e6ea";
  const FONT = getComputedStyle(document.body).fontFamily;
  const TEXT = { color: INK, fontFamily: FONT, fontSize: 11 };
  const instances = [];

  function escaped(text) {
    const element = document.createElement("span");
    element.textContent = text;
    return element.innerHTML;
  }

  function chart(place, option) {
    const instance = root.echarts.init(place, null, { renderer: "canvas" });
    instance.setOption(Object.assign({ animation: false, textStyle: TEXT }, option));
    instances.push(instance);
    return instance;
  }
  root.addEventListener("resize", () => instances.forEach((instance) => instance.resize()));

  /** A long name without its middle: names of one family differ at their ends. */
  function cut(text, most) {
    const kept = Math.floor((most - 1) / 2);
    return text.length > most ? text.slice(0, most - 1 - kept) + "…" + text.slice(text.length - kept) : text;
  }

  function timeAxis(panel) {
    return {
      type: "time", min: panel.from, max: panel.to,
      axisLine: { lineStyle: { color: LINE } }, axisTick: { show: false },
      splitLine: { show: true, lineStyle: { color: "#f0f2f4" } },
      axisLabel: { color: MUTED, fontSize: 10, hideOverlap: true, formatter: { day: "{MM}-{dd}", hour: "{HH}:{mm}", minute: "{HH}:{mm}", second: "{HH}:{mm}:{ss}" } },
    };
  }

  function valueAxis(unit, right, extra) {
    return Object.assign({
      type: "value", position: right ? "right" : "left", splitNumber: 4,
      axisLabel: { color: MUTED, fontSize: 10, formatter: (value) => format(value, unit) },
      axisLine: { show: false }, axisTick: { show: false },
      splitLine: { show: !right, lineStyle: { color: LINE } },
      nameTextStyle: { color: MUTED, fontSize: 10 },
    }, extra);
  }

  function soft(series, key, pick) {
    const bounds = series.map((one) => one[key]).filter((bound) => typeof bound === "number");
    return bounds.length ? (range) => pick(range[key === "softMin" ? "min" : "max"], ...bounds) : null;
  }

  /** Marks of annotations: thin lines with a triangle under the axis, their text in a list below the page's head. */
  function annotationLines(annotations, panel) {
    const inside = annotations.filter((one) => one.time >= panel.from && one.time <= panel.to);
    if (!inside.length) return null;
    return {
      type: "line", name: "\u0000annotations", data: [], silent: false, xAxisIndex: 0, yAxisIndex: 0,
      markLine: {
        symbol: ["none", "triangle"], symbolSize: 6, symbolRotate: 180, silent: false,
        label: { show: false },
        tooltip: { formatter: (mark) => `<b>${escaped(mark.data.title)}</b><br>${escaped(mark.data.text)}` },
        data: inside.map((one) => ({ xAxis: one.time, title: one.title, text: one.text, lineStyle: { color: colour(one.color), type: "dashed", width: 1.2 } })),
      },
    };
  }

  function legend(panel, series) {
    const list = document.createElement("ul");
    list.className = "legend";
    series.forEach((one) => {
      const item = document.createElement("li");
      const swatch = document.createElement("i");
      swatch.style.background = one.swatch;
      if (one.dashed) swatch.className = "dashed", (swatch.style.background = "none"), (swatch.style.borderColor = one.swatch);
      item.append(swatch, one.name || "value");
      list.append(item);
    });
    return list;
  }

  function withLegend(place, panel, series) {
    const box = document.createElement("div");
    box.className = "plot";
    const list = legend(panel, series.slice(0, 24));
    place.append(box, list);
    const rest = document.createElement("li");
    const shorten = () => {
      const left = series.length - list.querySelectorAll("i").length;
      rest.textContent = `and ${left} more`;
      if (left) list.append(rest);
      return list.scrollHeight > list.clientHeight + 1 && list.children.length > 2;
    };
    while (shorten()) (rest.isConnected ? rest.previousSibling : list.lastChild).remove();
    return box;
  }

  function timeseries(place, panel, page) {
    let next = 0;
    const styled = panel.series.map((one) => Object.assign({ swatch: one.color ? colour(one.color) : palette[next++ % palette.length] }, one));
    const box = withLegend(place, panel, styled);
    const left = styled.filter((one) => !one.right), right = styled.filter((one) => one.right);
    const highest = Math.max(...styled.flatMap((one) => one.points.map((point) => point[1] || 0)), 0);
    const lines = styled.map((one) => ({
      name: one.name, type: one.bars ? "bar" : "line", data: one.points, yAxisIndex: one.right ? 1 : 0,
      showSymbol: false, connectNulls: false, stack: one.stack || null, z: one.bars ? 1 : 3,
      barWidth: one.bars ? "98%" : null,
      itemStyle: { color: one.swatch, opacity: one.bars ? 0.45 : 1 },
      lineStyle: { color: one.swatch, width: one.width, type: one.dashed ? "dashed" : "solid" },
      areaStyle: !one.bars && one.fill ? { color: one.swatch, opacity: one.fill / 100 } : null,
      tooltip: { valueFormatter: (value) => (value === null || value === undefined ? "-" : format(value, one.unit)) },
    }));
    if (panel.steps.length) {
      lines.push({
        type: "line", name: "\u0000thresholds", data: [], yAxisIndex: 0,
        markLine: {
          symbol: "none", silent: true, label: { show: false },
          data: panel.steps.filter(([value]) => value <= highest * 1.2 || value <= 0.06).map(([value, name]) => ({ yAxis: value, lineStyle: { color: colour(name), type: "dashed" } })),
        },
      });
    }
    if (panel.exemplars.length) {
      lines.push({
        type: "scatter", name: "\u0000exemplars", data: panel.exemplars, symbol: "diamond", symbolSize: 6, z: 4,
        itemStyle: { color: "#1f60c4", opacity: 0.75 },
        tooltip: { trigger: "item", formatter: (point) => `exemplar ${format(point.value[1], panel.unit)}<br>trace ${escaped(point.value[2])}` },
      });
    }
    const marks = annotationLines(page.annotations, panel);
    if (marks) lines.push(marks);
    const unitOf = (some) => (some[0] ? some[0].unit : panel.unit);
    return chart(box, {
      grid: { left: 8, right: right.length ? 10 : 14, top: right.length ? 26 : 10, bottom: 6, containLabel: true },
      xAxis: timeAxis(panel),
      yAxis: [
        valueAxis(unitOf(left), false, { min: soft(left, "softMin", Math.min), max: soft(left, "softMax", Math.max), scale: !left.some((one) => one.softMin === 0) }),
        valueAxis(unitOf(right), true, { show: right.length > 0, min: 0, max: soft(right, "softMax", Math.max), name: (right[0] || {}).rightLabel || "", nameGap: 10, nameTextStyle: { color: MUTED, fontSize: 10, align: "right", padding: [0, -12, 0, 0] } }),
      ],
      tooltip: { trigger: "axis", confine: true, textStyle: { fontSize: 11 } },
      series: lines,
    });
  }

  function stat(place, panel) {
    panel.values.slice(0, 4).forEach((one) => {
      const box = document.createElement("div");
      box.className = "stat";
      const text = document.createElement("b");
      text.textContent = one.value === null ? panel.noValue : format(one.value, panel.unit, one.decimals);
      text.style.color = colour(one.color) || INK;
      box.append(text);
      place.append(box);
      if (!one.curve.length) return;
      const spark = document.createElement("div");
      spark.className = "spark";
      place.append(spark);
      chart(spark, {
        grid: { left: 0, right: 0, top: 2, bottom: 0 },
        xAxis: { type: "time", show: false }, yAxis: { type: "value", show: false, scale: true },
        series: [{ type: "line", data: one.curve, showSymbol: false, lineStyle: { color: colour(one.color), width: 1.5 }, areaStyle: { color: colour(one.color), opacity: 0.15 } }],
      });
    });
  }

  function table(place, panel) {
    const element = document.createElement("table");
    const head = element.createTHead().insertRow();
    panel.columns.forEach((column) => {
      const cell = document.createElement("th");
      cell.textContent = column.title;
      if (column.number) cell.className = "num";
      head.append(cell);
    });
    const body = element.createTBody();
    panel.rows.forEach((cells) => {
      const row = body.insertRow();
      cells.forEach((cell, index) => {
        const column = panel.columns[index];
        const place = row.insertCell();
        place.textContent = cell.text || format(cell.value, column.unit, column.decimals) || column.noValue;
        if (column.number) place.className = "num";
        if (cell.color && colour(cell.color)) { place.style.color = colour(cell.color); place.style.fontWeight = 600; }
      });
    });
    const box = document.createElement("div");
    box.className = "scroll";
    box.append(element);
    place.append(box);
  }

  function heatmap(place, panel, page) {
    const box = document.createElement("div");
    box.className = "plot";
    place.append(box);
    const used = panel.cells.map((cell) => cell[1]);
    const low = Math.min(...used), high = Math.max(...used);
    const names = panel.bounds.slice(low, high + 1).map((bound) => (bound === "+Inf" ? "more" : "≤ " + format(Number(bound), panel.unit)));
    const most = Math.max(...panel.cells.map((cell) => cell[2]));
    const clock = (at) => new Date(at).toTimeString().slice(0, 5);
    return chart(box, {
      grid: { left: 8, right: 12, top: 8, bottom: 6, containLabel: true },
      xAxis: { type: "category", data: panel.times.map(clock), axisLabel: { color: MUTED, fontSize: 10, hideOverlap: true }, axisTick: { show: false }, axisLine: { lineStyle: { color: LINE } } },
      yAxis: { type: "category", data: names, axisLabel: { color: MUTED, fontSize: 10 }, axisTick: { show: false }, axisLine: { show: false } },
      visualMap: { show: false, min: 0, max: 1, dimension: 3, inRange: { color: ["#fff3e4", "#fdbe83", "#f57c20", "#b13a03", "#5e1f02"] } },
      tooltip: { confine: true, textStyle: { fontSize: 11 }, formatter: (cell) => `${clock(panel.times[cell.value[0]])}, ${names[cell.value[1]]}: ${format(cell.value[2], "short")} per second` },
      series: [{ type: "heatmap", data: panel.cells.map(([x, y, value]) => [x, y - low, value, Math.sqrt(value / most)]), encode: { value: 3 } }],
    });
  }

  /** Room of an edge that passes a column, as a share of a node's. */
  const PASSING = 0.6;

  /** Columns by the longest way from a node without incoming edges: causes left, effects right. An edge that passes
      a column has a place in it, so that it leads around the nodes there. */
  function columnsOf(nodes, edges) {
    const depth = new Map(nodes.map((node) => [node.id, 0]));
    const known = edges.filter(({ source, target }) => depth.has(source) && depth.has(target) && source !== target);
    for (let round = 0; round < nodes.length; round++) {
      let moved = false;
      known.forEach(({ source, target }) => {
        if (depth.get(target) < depth.get(source) + 1 && depth.get(source) < nodes.length) {
          depth.set(target, depth.get(source) + 1);
          moved = true;
        }
      });
      if (!moved) break;
    }
    const levels = [...new Set(depth.values())].sort((a, b) => a - b);
    const columns = levels.map(() => []);
    nodes.forEach((node) => columns[levels.indexOf(depth.get(node.id))].push({ id: node.id, room: 1, size: node.mainstat || 0 }));
    const way = new Map();
    const previous = new Map(nodes.map((node) => [node.id, known.filter((edge) => edge.target === node.id).map((edge) => edge.source)]));
    known.forEach((edge, number) => {
      const from = levels.indexOf(depth.get(edge.source)), to = levels.indexOf(depth.get(edge.target));
      const stops = [];
      for (let column = from + 1; column < to; column++) {
        const stop = { id: `\u0000way ${number} ${column}`, room: PASSING, size: 0 };
        previous.set(stop.id, [stops.length ? stops[stops.length - 1] : edge.source]);
        columns[column].push(stop);
        stops.push(stop.id);
      }
      if (stops.length) way.set(edge, stops[Math.floor((stops.length - 1) / 2)]);
    });
    // Each column in the order of what it is reached from, so that fewer edges cross.
    const at = new Map();
    columns.forEach((column) => {
      column.forEach((one) => {
        const from = (previous.get(one.id) || []).filter((id) => at.has(id)).map((id) => at.get(id));
        one.order = from.length ? from.reduce((sum, y) => sum + y, 0) / from.length : 0.5;
      });
      column.sort((a, b) => a.order - b.order || b.size - a.size);
      const all = column.reduce((sum, one) => sum + one.room, 0);
      let used = 0;
      column.forEach((one) => {
        at.set(one.id, (used + one.room / 2) / all);
        used += one.room;
      });
    });
    const rooms = Math.max(...columns.map((column) => column.reduce((sum, one) => sum + one.room, 0)));
    return { columns, at, way, rooms };
  }

  function nodeGraph(place, panel) {
    const box = document.createElement("div");
    box.className = "plot";
    place.append(box);
    const { columns, at, way, rooms } = columnsOf(panel.nodes, panel.edges);
    box.style.minHeight = `${Math.ceil(rooms * 26 + 70)}px`;
    const width = box.clientWidth || 800, height = box.clientHeight || 400;
    const room = (height - 70) / rooms;
    // Names stand below circles where there is room, else beside small dots.
    const roomy = room >= 62;
    const size = roomy ? Math.min(58, room - 24) : Math.max(8, Math.min(16, room - 10));
    const margin = 90;
    const spots = new Map();
    columns.forEach((column, index) => column.forEach((one) => {
      const x = columns.length === 1 ? width / 2 : margin + (index * (width - 2 * margin)) / (columns.length - 1);
      spots.set(one.id, [x, 20 + at.get(one.id) * (height - 70)]);
    }));
    /** How much an edge bends to pass its place in the column in its middle. */
    const bend = (edge) => {
      if (!way.has(edge)) return 0.06;
      const [from, to, by] = [edge.source, edge.target, way.get(edge)].map((id) => spots.get(id));
      const straight = from[1] + ((to[1] - from[1]) * (by[0] - from[0])) / (to[0] - from[0]);
      return (2 * (straight - by[1])) / (to[0] - from[0]);
    };
    const stat = (value, unit) => (value === null || value === undefined || value === "" ? "" : format(value, unit));
    const numbers = (one, side) => [stat(one.mainstat, panel.units[side][0]), stat(one.secondarystat, panel.units[side][1])].filter(Boolean).join("  ·  ");
    const named = (node) => `{t|${cut(node.title || node.id, 30)}}` + (node.subtitle ? (roomy ? "\n" : " ") + `{s|${cut(node.subtitle, 40)}}` : "");
    const align = roomy ? "center" : "left";
    const last = new Set(columns.length > 1 ? columns[columns.length - 1].map((one) => one.id) : []);
    /** Left of the dot in the last column, where there is no room to the right. */
    const side = (node) => (last.has(node.id) ? -1 : 1);
    return chart(box, {
      tooltip: { confine: true, textStyle: { fontSize: 11 } },
      series: [{
        type: "graph", layout: "none", roam: false, left: 0, right: 0, top: 0, bottom: 0,
        width: width, height: height, zoom: 1, edgeSymbol: ["none", "arrow"], edgeSymbolSize: [0, 8],
        data: [
          // Two unseen corners keep the graph's own scale equal to pixels.
          { id: "\u0000a", x: 0, y: 0, symbolSize: 0, silent: true, label: { show: false } },
          { id: "\u0000b", x: width, y: height, symbolSize: 0, silent: true, label: { show: false } },
          ...panel.nodes.map((node) => ({
            id: node.id, name: node.id, x: spots.get(node.id)[0], y: spots.get(node.id)[1], symbolSize: size,
            itemStyle: { color: "#ffffff", borderColor: colour(node.color) || "#8e8e8e", borderWidth: 3 },
            label: { show: size >= 44, position: "inside", formatter: numbers(node, "nodes"), fontSize: size >= 54 && numbers(node, "nodes").length < 10 ? 10 : 8, color: INK },
            value: numbers(node, "nodes"),
          })),
          ...panel.nodes.map((node) => ({
            id: "\u0000label " + node.id, x: spots.get(node.id)[0] + (roomy ? 0 : side(node) * (size / 2 + 2)), y: spots.get(node.id)[1] + (roomy ? size / 2 + 1 : 0), symbolSize: 1, silent: true,
            itemStyle: { color: "transparent" },
            label: { show: true, position: roomy ? "bottom" : side(node) < 0 ? "left" : "right", distance: 2, fontSize: 11, color: INK, formatter: named(node), backgroundColor: "rgba(255,255,255,0.7)", rich: { t: { fontWeight: 600, align, lineHeight: 15 }, s: { color: MUTED, fontSize: 10, align, lineHeight: 13 } } },
          })),
        ],
        links: panel.edges.filter((edge) => spots.has(edge.source) && spots.has(edge.target)).map((edge) => ({
          source: edge.source, target: edge.target, value: numbers(edge, "edges"),
          lineStyle: { color: colour(edge.color) || "#8e8e8e", width: Math.max(1, Math.min(10, edge.thickness || 1.5)), opacity: 0.75, curveness: bend(edge) },
          label: { show: roomy, formatter: numbers(edge, "edges"), fontSize: 10, color: INK, backgroundColor: "rgba(255,255,255,0.85)", padding: [1, 3] },
        })),
      }],
    });
  }

  function stateTimeline(place, panel) {
    const box = document.createElement("div");
    box.className = "plot";
    box.style.minHeight = `${panel.lanes.length * 16 + 30}px`;
    place.append(box);
    const data = panel.lanes.flatMap((lane, index) => lane.stretches.map(([from, to, name, text]) => ({ value: [index, from, to, text], itemStyle: { color: colour(name), opacity: 0.85 } })));
    return chart(box, {
      grid: { left: 20, right: 14, top: 6, bottom: 6, containLabel: true },
      xAxis: timeAxis(panel),
      yAxis: { type: "category", data: panel.lanes.map((lane) => lane.name), inverse: true, axisLabel: { color: INK, fontSize: 11, formatter: (name) => cut(name, 28) }, axisTick: { show: false }, axisLine: { show: false } },
      tooltip: { confine: true, textStyle: { fontSize: 11 }, formatter: (one) => `${escaped(panel.lanes[one.value[0]].name)}: ${escaped(one.value[3])}` },
      series: [{
        type: "custom", data, encode: { x: [1, 2], y: 0 },
        renderItem: (parameters, api) => {
          const start = api.coord([api.value(1), api.value(0)]), end = api.coord([api.value(2), api.value(0)]);
          const height = Math.min(26, api.size([0, 1])[1] * 0.8);
          const area = parameters.coordSys;
          const shape = root.echarts.graphic.clipRectByRect({ x: start[0], y: start[1] - height / 2, width: end[0] - start[0], height }, { x: area.x, y: area.y, width: area.width, height: area.height });
          return shape && { type: "rect", shape, style: api.style() };
        },
      }],
    });
  }

  function barChart(place, panel) {
    let next = 0;
    const styled = panel.series.map((one) => Object.assign({ swatch: one.color ? colour(one.color) : palette[next++ % palette.length] }, one));
    const box = withLegend(place, panel, styled);
    return chart(box, {
      grid: { left: 20, right: 24, top: 8, bottom: 6, containLabel: true },
      xAxis: valueAxis(panel.unit, false, { position: "bottom" }),
      yAxis: { type: "category", data: panel.categories, inverse: true, axisLabel: { color: INK, fontSize: 11, formatter: (name) => cut(name, 32) }, axisTick: { show: false }, axisLine: { lineStyle: { color: LINE } } },
      tooltip: { trigger: "axis", confine: true, textStyle: { fontSize: 11 }, valueFormatter: (value) => format(value, panel.unit) },
      series: styled.map((one) => ({ type: "bar", name: one.name, data: one.values, stack: panel.stacked ? "all" : null, barMaxWidth: 38, itemStyle: { color: one.swatch, opacity: 0.85 } })),
    });
  }

  function trend(place, panel) {
    const styled = panel.series.map((one, index) => Object.assign({ swatch: one.color ? colour(one.color) : palette[index % palette.length] }, one));
    const box = withLegend(place, panel, styled);
    const right = styled.filter((one) => one.right), left = styled.filter((one) => !one.right);
    return chart(box, {
      grid: { left: 8, right: right.length ? 10 : 14, top: 12, bottom: 18, containLabel: true },
      xAxis: { type: "value", name: panel.x, nameLocation: "middle", nameGap: 22, scale: true, axisLabel: { color: MUTED, fontSize: 10 }, splitLine: { lineStyle: { color: "#f0f2f4" } } },
      yAxis: [valueAxis((left[0] || {}).unit || "", false, { min: 0 }), valueAxis((right[0] || {}).unit || "", true, { show: right.length > 0, min: 0 })],
      tooltip: { trigger: "axis", confine: true, textStyle: { fontSize: 11 } },
      series: styled.map((one) => ({
        type: "line", name: one.name, data: one.points, yAxisIndex: one.right ? 1 : 0, symbolSize: 8, symbol: "circle",
        itemStyle: { color: one.swatch }, lineStyle: { color: one.swatch, width: 2 },
        tooltip: { valueFormatter: (value) => format(value, one.unit) },
      })),
    });
  }

  function text(place, panel) {
    const box = document.createElement("div");
    box.className = "prose";
    box.innerHTML = panel.content; // rendered from Markdown with HTML switched off, or escaped
    place.append(box);
  }

  root.preview.charts = {
    timeseries, stat, table, heatmap, nodeGraph, trend, text, barchart: barChart, "state-timeline": stateTimeline,
  };
})(window);
